"""The optimizer fused_adam is fairseq's adam, in updates, state and checkpoints."""

import copy

import pytest
import torch
from fairseq.optim import adam
from fairseq.optim.adam import Adam, FairseqAdam, FairseqAdamConfig
from omegaconf import OmegaConf

from posnet_fairseq.fairseq_plugin.fused_adam import FairseqFusedAdam, FusedAdam

UPDATES = 20


def build(name, parameters, **options):
    cfg = OmegaConf.structured(FairseqAdamConfig(adam_betas="(0.9, 0.98)", **options))
    cfg.lr, cfg.tpu = [0.01], False
    return {"adam": FairseqAdam, "fused_adam": FairseqFusedAdam}[name](cfg, parameters)


def parameters(dtype=torch.float32):
    torch.manual_seed(1)
    return [torch.nn.Parameter(torch.randn(shape, dtype=dtype)) for shape in [(30, 20), (20,), (4, 1, 5), ()]]


def train(optimizer, weights, updates):
    for update in updates:
        torch.manual_seed(update)
        for number, weight in enumerate(weights):
            gradient = torch.randn(weight.shape).to(weight.dtype) * 10.0 ** (-3 * number)
            # One of them is not read in every update, and then has fewer updates behind it than the others.
            weight.grad = None if number == 1 and update % 3 else gradient
        optimizer.set_lr(0.01 / (1 + update))
        optimizer.step()


# A large ε shows where in the formula it stands.
@pytest.mark.parametrize("options", [{"adam_eps": 1e-9}, {"adam_eps": 0.1, "weight_decay": 0.3}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_updates_are_those_of_adam(options, dtype):
    ours, theirs = parameters(dtype), parameters(dtype)
    fused, plain = build("fused_adam", ours, **options), build("adam", theirs, **options)
    train(fused, ours, range(UPDATES))
    train(plain, theirs, range(UPDATES))
    assert not any(map(torch.equal, ours, parameters(dtype)))
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    states = (optimizer.state_dict()["state"] for optimizer in (fused, plain))
    torch.testing.assert_close(*states, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("first", "second"), [("adam", "fused_adam"), ("fused_adam", "adam")])
def test_each_goes_on_with_the_state_of_the_other(first, second):
    options = {"adam_eps": 1e-3, "weight_decay": 0.1}
    whole, cut = parameters(), parameters()
    train(build("adam", whole, **options), whole, range(UPDATES))
    before = build(first, cut, **options)
    train(before, cut, range(UPDATES // 2))
    after = build(second, cut, **options)
    after.load_state_dict(copy.deepcopy(before.state_dict()))
    train(after, cut, range(UPDATES // 2, UPDATES))
    torch.testing.assert_close(cut, whole, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_state_of_apex_goes_on(dtype):
    """It has the number of updates in its group."""
    whole = parameters(dtype)
    optimizer = build("fused_adam", whole)
    train(optimizer, whole, [0, 3])
    state = copy.deepcopy(optimizer.state_dict())
    cut = [torch.nn.Parameter(weight.detach().clone()) for weight in whole]
    train(optimizer, whole, [6])
    for each in state["state"].values():
        del each["step"]
    state["param_groups"][0]["step"] = 2
    after = build("fused_adam", cut)
    after.load_state_dict(state)
    train(after, cut, [6])
    torch.testing.assert_close(cut, whole, rtol=0, atol=0)


def test_no_other_optimizer_is_made(monkeypatch):
    def refuse():
        raise AssertionError("apex was looked for")

    monkeypatch.setattr(adam, "get_fused_adam_class", refuse)
    assert isinstance(build("fused_adam", parameters()).optimizer, FusedAdam)


def test_the_kernel_updates_full_precision(monkeypatch):
    def refuse(*_):
        raise AssertionError("fairseq's update was called")

    monkeypatch.setattr(Adam, "step", refuse)
    full, half = parameters(), parameters(torch.bfloat16)
    train(build("fused_adam", full), full, range(2))
    fused = build("fused_adam", half)
    with pytest.raises(AssertionError, match="fairseq's update"):
        train(fused, half, range(2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_gradients_are_clipped_to_their_norm(dtype):
    weights = parameters(dtype)
    for weight in weights:
        weight.grad = 3e3 * torch.randn(weight.shape).to(dtype)  # in float16 their norm would be infinite
    weights[1].grad = None
    before = [weight.grad.double() for weight in weights if weight.grad is not None]
    expected = sum(gradient.square().sum() for gradient in before).sqrt()
    assert expected > torch.finfo(torch.float16).max
    norm = build("fused_adam", weights).clip_grad_norm(2.0)
    torch.testing.assert_close(norm.double(), expected, rtol=1e-5, atol=0)
    after = [weight.grad.double() for weight in weights if weight.grad is not None]
    torch.testing.assert_close(after, [gradient * 2 / expected for gradient in before], rtol=1e-2, atol=1e-6)
