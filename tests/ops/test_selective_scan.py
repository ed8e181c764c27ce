"""The recurrence of Mamba against a plain loop."""

import pytest
import torch
from torch.autograd import grad

from posnet_fairseq.ops import selective_scan as module
from posnet_fairseq.ops.selective_scan import Terms, advance, selective_scan


def slow_scan(steps, values, writes, reads, rates, reverse):
    rows = [None] * steps.size(1)
    state = torch.zeros(len(steps), *rates.shape, dtype=rates.dtype)
    for n in reversed(range(len(rows))) if reverse else range(len(rows)):
        decay = torch.exp(-rates * steps[:, n, None])
        state = decay * state + writes[:, n, :, None] * values[:, n, None]
        rows[n] = (reads[:, n, :, None] * state).sum(dim=1)
    return torch.stack(rows, dim=1)


def inputs(sentences=3, length=11, states=4, channels=5):
    made = [
        torch.randn(sentences, length, width, dtype=torch.float64) for width in (channels, channels, states, states)
    ]
    made.append(torch.randn(states, channels, dtype=torch.float64))
    made[0], made[4] = made[0].abs(), made[4].abs()
    return [x.requires_grad_() for x in made]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [1, 4, 11])
def test_scan_is_the_loop(monkeypatch, length, reverse):
    """Segments of 4 tokens, and parts of 2 sentences: 1 to 3 segments, and 2 parts."""
    monkeypatch.setattr(module, "SEGMENT", 4)
    monkeypatch.setattr(module, "CPU_STATE", 2 * 4 * 5)
    given = inputs(length=length)
    results = [selective_scan(Terms(*given), reverse), slow_scan(*given, reverse)]
    torch.testing.assert_close(*results)
    cotangent = torch.randn_like(results[0])
    torch.testing.assert_close(*(grad(result, given, cotangent) for result in results))


def test_steps_are_the_scan():
    *tokens, rates = inputs()
    state, rows = torch.zeros(3, 4, 5, dtype=torch.float64), []
    for n in range(11):
        state, y = advance(state, Terms(*(x[:, n : n + 1] for x in tokens), rates))
        rows.append(y)
    torch.testing.assert_close(torch.cat(rows, dim=1), selective_scan(Terms(*tokens, rates)))


def test_nothing_overflows():
    """Decays to nothing, of large rates and steps, and none at all."""
    for size in (1e30, 0.0):
        *tokens, rates = inputs()
        given = [(tokens[0] * size).detach().requires_grad_(), *tokens[1:], rates]
        y = selective_scan(Terms(*given))
        assert all(x.isfinite().all() for x in (y, *grad(y.sum(), given)))


def test_memory_grows_with_tokens_and_not_with_their_states():
    """A segment has the states of its tokens; beyond it, one state for each segment is kept."""
    given = inputs(1, 64, 16, 32)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x.numel()) or x, lambda x: x):
        selective_scan(Terms(*given))
    assert sum(saved) == sum(x.numel() for x in given) + 64 // module.SEGMENT * 16 * 32
