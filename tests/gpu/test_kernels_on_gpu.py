"""Mixers that have kernels, on a real GPU: with kernels, without, and in float64, where kernels are not used."""

import copy

import pytest
import torch

from posnet_fairseq.ops import kernels
from support.building import build_mixer, vectors

pytestmark = pytest.mark.gpu

MIXERS = ["shaw", "irpe", "scalar_bias"]
LENGTH = 60
# Largest relative deviation from float64, by norms.
TOLERANCES = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}


@pytest.fixture
def with_kernels(gpu):
    """The GPU, with all that keeps kernels from being used out of the way."""
    obstacle = "a simulated GPU runs no kernels" if gpu.device.type != "cuda" else kernels.obstacle(0)
    if obstacle is not None:
        pytest.skip(getattr(obstacle, "says", obstacle))
    torch.use_deterministic_algorithms(False)  # with them attention uses no kernels
    kernels._obstacle_told.cache_clear()
    yield gpu
    kernels._obstacle_told.cache_clear()


def results(mixer, x, positions, cotangent):
    """Output, and gradients of the input and all parameters that have one."""
    x = x.clone().requires_grad_()
    output = mixer(x, positions=positions)
    gradients = torch.autograd.grad(output, [x, *mixer.parameters()], cotangent, allow_unused=True)
    return [output.detach(), *(each for each in gradients if each is not None)]


def assert_near(found, expected, tolerance):
    """By norms, relative; of a gradient that is zero but for rounding (of the keys' bias), to the largest of all."""
    norms = [wanted.norm() for wanted in expected]
    for result, wanted, norm in zip(found, expected, norms, strict=True):
        error = (result.double() - wanted).norm()
        assert error <= tolerance * (norm if norm > 1e-9 else max(norms)), (float(error), float(norm))


def launched(monkeypatch):
    """A list that names each kernel that is launched."""
    from posnet_fairseq.ops.kernels import attention_kernels

    names, original = [], attention_kernels.launch

    def launch(program, *arguments, **constants):
        names.append(program.fn.__name__)
        return original(program, *arguments, **constants)

    monkeypatch.setattr(attention_kernels, "launch", launch)
    return names


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("place", ["encoder", "decoder"])
@pytest.mark.parametrize("mixer", MIXERS)
def test_kernels_compute_what_torch_does(with_kernels, monkeypatch, mixer, place, dtype):
    names, device = launched(monkeypatch), with_kernels.device
    exact = build_mixer(mixer, place, embed_dim=32).to(device).train()
    x = torch.randn(3, LENGTH, 32, dtype=torch.float64, device=device)
    positions = vectors(LENGTH, 32)["positions"].detach()[:LENGTH].to(device)
    cotangent = torch.randn_like(x)
    # All three get the rounded numbers, so that they differ in the arithmetic alone.
    rounded = copy.deepcopy(exact).to(dtype)
    exact.load_state_dict(rounded.state_dict())
    inputs = [each.to(dtype) for each in (x, positions, cotangent)]
    expected = results(exact, *(each.double() for each in inputs))
    assert not names, "float64 is computed without kernels"
    assert_near(results(rounded, *inputs), expected, TOLERANCES[dtype])
    assert names, "no kernel was launched"
    names.clear()
    monkeypatch.setenv(kernels.SWITCH, "off")
    kernels._obstacle_told.cache_clear()
    assert_near(results(rounded, *inputs), expected, TOLERANCES[dtype])
    assert not names, "kernels are off"
