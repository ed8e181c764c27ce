"""The recurrence in chunks against the recurrence itself, token by token."""

import pytest
import torch

from posnet_fairseq.ops import recurrence
from posnet_fairseq.ops.recurrence import Terms, advance, coefficients, recur
from support import recurrences

HEADS, KEYS, VALUES = 2, 5, 3
KINDS = ["plain", "of heads", "of features", "delta rule", "delta rule with decay", "shared keys"]


def terms(kind, length, batch=2):
    """Random terms of a kind; some decays are nearly 0, so that their sums would overflow as exponents."""

    def random(*shape):
        return torch.randn(batch, *shape, dtype=torch.float64)

    q, k = random(2, 1 if kind == "shared keys" else HEADS, length, KEYS).unbind(1)
    width = {"plain": 0, "delta rule": 0, "of features": KEYS}.get(kind, 1)
    log_decay = -100 * torch.rand(batch, HEADS, length, width, dtype=torch.float64) ** 6 if width else None
    write = torch.rand(batch, HEADS, length, 1, dtype=torch.float64) if "delta" in kind else None
    k = k / k.norm(dim=-1, keepdim=True) if "delta" in kind else k
    found = Terms(q, k, random(HEADS, length, VALUES), log_decay, write)
    return Terms(*(None if x is None else x.requires_grad_() for x in found))


def naive(terms, backward=False):
    """(B, H, N, d_v), of each sentence and head by itself."""
    sentences = []
    for row in range(len(terms.v)):
        heads = []
        for h in range(HEADS):
            of_head = [None if x is None else x[row, min(h, x.size(1) - 1)] for x in terms]
            q, k, v, log_decay, write = of_head
            decay = None if log_decay is None else log_decay.exp()
            heads.append(recurrences.recur(q, k, v, decay, write, backward))
        sentences.append(torch.stack(heads))
    return torch.stack(sentences)


def assert_equal(fast, slow, inputs):
    """Values and gradients."""
    inputs = list(dict.fromkeys(x for x in inputs if x is not None))
    cotangent = torch.randn_like(slow)
    torch.testing.assert_close(fast, slow, rtol=1e-9, atol=1e-9)
    how = {"allow_unused": True, "materialize_grads": True}
    gradients = [torch.autograd.grad((y * cotangent).sum(), inputs, retain_graph=True, **how) for y in (fast, slow)]
    torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-8)


@pytest.fixture(params=["one chunk", "chunks"])
def length(request, monkeypatch):
    """13 tokens, which are one chunk or four of them."""
    monkeypatch.setattr(recurrence, "CHUNK", 64 if request.param == "one chunk" else 4)
    return 13


@pytest.mark.parametrize("kind", KINDS)
def test_forward(length, kind):
    given = terms(kind, length)
    slow = naive(given)
    assert_equal(recur(given), slow, given)
    assert_equal((coefficients(given) @ given.v), slow, given)


@pytest.mark.parametrize("kind", KINDS)
def test_both_directions(length, kind):
    forward, backward = terms(kind, length), terms(kind, length)
    slow = naive(forward) + naive(backward, backward=True)
    assert_equal(recur(forward, backward), slow, [*forward, *backward])


@pytest.mark.parametrize("kind", ["plain", "of heads", "of features", "shared keys"])
def test_both_directions_of_the_same_tokens(length, kind):
    forward = terms(kind, length)
    backward = forward._replace(log_decay=terms(kind, length).log_decay)
    assert forward.shares_tokens(backward)
    slow = naive(forward) + naive(backward, backward=True)
    assert_equal(recur(forward, backward), slow, [*forward, *backward])
    assert_equal(coefficients(forward, backward) @ forward.v, slow, [*forward, *backward])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("in_place", [False, True])
@torch.no_grad()
def test_steps(kind, in_place):
    given = terms(kind, 13)
    state = torch.zeros(2, HEADS, KEYS, VALUES, dtype=torch.float64)
    results = []
    for n in range(13):
        old, before = state, state.clone()
        state, y = advance(state, Terms(*(None if x is None else x[:, :, n : n + 1] for x in given)), in_place)
        results.append(y)
        assert in_place == (state is old)
        assert in_place or torch.equal(old, before)
    torch.testing.assert_close(torch.cat(results, dim=2), naive(given))


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_overflows(kind):
    """A thousand decays of e^-100 in float32: results and gradients are finite."""
    given = Terms(*(None if x is None else x.detach().float() for x in terms(kind, 300)))
    if given.log_decay is not None:
        given = given._replace(log_decay=torch.full_like(given.log_decay, -100))
    given = Terms(*(None if x is None else x.requires_grad_() for x in given))
    inputs = [x for x in given if x is not None]
    for chosen in (given, Terms(*(None if x is None else x[:, :, :100] for x in given))):
        result = recur(chosen, chosen)
        assert result.isfinite().all()
        assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(result.sum(), inputs))
