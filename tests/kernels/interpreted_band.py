"""Run by test_kernels.py with TRITON_INTERPRET=1: the kernels of the band against torch's operations in float64.

In bfloat16 the interpreter's products are wrong; that data type is compiled only, in compiled.py.
"""

import pytest
import torch

from posnet_fairseq.ops import band, kernels, static_mixing
from posnet_fairseq.ops.kernels import band_kernels, launching
from posnet_fairseq.shared.errors import UsageError
from support.building import BANDED_IN_PLACES, random_banded_case

# B, H, N, M, d, R, γ
SHAPES = [
    (1, 1, 1, 1, 1, 1, (1, 1)),
    (2, 3, 130, 130, 12, 5, (1, 1)),
    (17, 1, 33, 33, 8, 16, (1, 1)),
    (1, 2, 65, 65, 70, 40, (1, 1)),
    (2, 1, 70, 201, 16, 16, (3, 1)),
    (2, 1, 201, 40, 8, 7, (7, 5)),
    (1, 2, 90, 210, 24, 2, (50_000_000, 21_000_001)),
    (2, 1, 150, 3, 8, 2, (1, 7)),
]


@pytest.fixture(autouse=True)
def _reproducible():
    torch.manual_seed(1)


def results(function, weights, value, which, ratio, upstream):
    weights, value = weights.detach().requires_grad_(), value.detach().requires_grad_()
    mixed = function(weights, value, which, ratio)
    return mixed, *torch.autograd.grad(mixed, (weights, value), upstream.to(mixed.dtype))


def assert_equal(shape, tails, dtype, **close):
    batch, heads, queries, keys, width, clip_distance, ratio = shape
    which = band.Band(clip_distance, tails, causal=False)
    energy = torch.randn(heads, queries, 2 * clip_distance + 1)
    make = static_mixing.BandWeights.softmax if tails else static_mixing.BandWeights.plain
    weights = make(which, ratio, energy, keys).weights
    value = torch.randn(batch, keys, heads, width, dtype=dtype).transpose(1, 2)
    upstream = torch.randn(batch, heads, queries, width).to(dtype)
    got = results(band_kernels.mix_band, weights, value, which, ratio, upstream)
    expected = results(band.mix_band, weights.double(), value.double(), which, ratio, upstream)
    for name, one, other in zip(("mixed", "to weights", "to values"), got, expected, strict=True):
        torch.testing.assert_close(one.double(), other, **close, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("tails", [True, False])
@pytest.mark.parametrize(
    "shape", SHAPES, ids=[f"quick {shape}" if shape == SHAPES[1] else str(shape) for shape in SHAPES]
)
def test_float32(shape, tails):
    assert_equal(shape, tails, torch.float32, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("shape", SHAPES[:4], ids=str)
def test_float16(shape):
    assert_equal(shape, True, torch.float16, rtol=1e-2, atol=2e-2)


@pytest.mark.parametrize("needed", ["weights", "value"])
def test_one_gradient_is_that_of_both(needed):
    which = band.Band(2, True, causal=False)
    tensors = {"weights": torch.rand(1, 40, 5), "value": torch.randn(1, 1, 40, 8)}
    tensors[needed].requires_grad_()
    upstream = torch.randn(1, 1, 40, 8)
    got = torch.autograd.grad(band_kernels.mix_band(*tensors.values(), which), tensors[needed], upstream)
    expected = torch.autograd.grad(band.mix_band(*tensors.values(), which), tensors[needed], upstream)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def test_sums_of_long_sentences_stay_in_range_in_half_precision():
    """4,000 values of 100 sum to more than the largest number in float16."""
    which = band.Band(2, tails=True, causal=False)
    weights = static_mixing.BandWeights.softmax(which, (1, 1), torch.zeros(1, 4000, 5), 4000).weights
    value = torch.full((1, 1, 4000, 1), 100.0, dtype=torch.float16)
    torch.testing.assert_close(band_kernels.mix_band(weights, value, which), value)


@pytest.mark.parametrize(("name", "options", "place"), BANDED_IN_PLACES, ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_mixers(monkeypatch, name, options, place, seed):
    """Padded batches of random lengths, with all gradients, against the dense form."""
    mixer, query, memory, real, context = random_banded_case(name, options, place, seed, torch.float32)
    inputs = [query, memory, context["positions"], *mixer.parameters()]
    found, used = [], []
    monkeypatch.setattr(
        band_kernels, "mix_band", lambda *given, mix=band_kernels.mix_band: used.append(0) or mix(*given)
    )
    for fewest_blocks in (10**9, 0):
        monkeypatch.setattr(band, "FEWEST_BLOCKS", fewest_blocks)
        monkeypatch.setattr(kernels, "are_used", lambda value: True)
        output = mixer(query, memory, **context)[real]
        cotangent = torch.ones_like(output)
        found.append((output, torch.autograd.grad(output, inputs, cotangent, allow_unused=True)))
    assert used
    torch.testing.assert_close(*found, rtol=1e-4, atol=2e-4)


def test_compiled_around(monkeypatch):
    """torch.compile takes a mixer whole, for all lengths."""
    mixer, *_ = random_banded_case("rposnet", {}, "encoder", 0, torch.float32)
    monkeypatch.setattr(band, "FEWEST_BLOCKS", 0)
    monkeypatch.setattr(kernels, "obstacle", lambda device: None)
    monkeypatch.setattr(kernels, "are_used", lambda value: kernels._are_used_on(value.get_device()))
    positions = torch.randn(100, mixer.embed_dim)
    compiled = torch.compile(mixer, fullgraph=True, dynamic=True, backend="aot_eager")
    for batch, length in ((2, 60), (3, 77)):
        x = torch.randn(batch, length, mixer.embed_dim, requires_grad=True)
        found = []
        for call in (mixer, compiled):
            output = call(x, positions=positions)
            found.append((output, *torch.autograd.grad(output.square().sum(), (x, *mixer.parameters()))))
        torch.testing.assert_close(*found)


def test_operators_of_torch():
    weights, value = torch.rand(1, 20, 3), torch.randn(2, 20, 1, 8).transpose(1, 2)
    settings = 1, True, 1, 1
    torch.library.opcheck(band_kernels._mix, (weights.requires_grad_(), value, *settings))
    torch.library.opcheck(band_kernels._to_value, (weights.detach(), value, 20, *settings))
    torch.library.opcheck(band_kernels._to_weights, (value, value, *settings))


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, RuntimeError])
def test_too_little_memory_is_no_fault_of_a_program(error):
    class Program:
        def __getitem__(self, grid):
            raise error("Triton Error [CUDA]: out of memory")

    with pytest.raises(error, match="out of memory"):
        launching.launch(Program(), (1,), torch.zeros(1))


def test_a_program_that_does_not_run(monkeypatch):
    class Program:
        def fn(self):
            pass

        def __getitem__(self, grid):
            raise RuntimeError("Failed to find C compiler.\nPlease specify via CC environment variable")

    with pytest.raises(UsageError) as error:
        launching.launch(Program(), (1,), torch.zeros(1))
    assert "The kernel fn cannot be compiled or run on this processor with triton 3" in str(error.value)
    assert "Please specify via CC environment variable. Set the environment variable POSNET_KERNELS=off" in str(
        error.value
    )
