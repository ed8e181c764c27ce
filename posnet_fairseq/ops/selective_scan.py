"""The recurrence of Mamba: h_n = exp(-A Δ_n) ⊙ h_{n-1} + B_n w_nᵀ and y_n = h_nᵀ C_n (Gu and Dao, 2023, Algorithm 2).

h has S numbers for each of C channels. All decays differ, so that there are no matrices to multiply by: a loop over the
tokens, with sentences in parts whose h stay in the cache. The h of all tokens are never there together: the backward
pass makes those of a segment again. Only decays are exponentiated, never a positive number.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from posnet_fairseq.ops.derivatives import once_differentiable
from posnet_fairseq.ops.dtypes import without_autocast
from posnet_fairseq.ops.operators import operator

# Tokens of a segment, in front of which h is kept for the backward pass.
SEGMENT = 16
# Numbers in the h of the sentences of a part, unless one sentence has more.
CPU_STATE, GPU_STATE = 2**17, 2**28


class Terms(NamedTuple):
    """What tokens contribute to the recurrence, and read from it, all in float32 or wider.

    Attributes:
        steps: Δ ≥ 0, (B, N, C).
        values: w, (B, N, C).
        writes: B, (B, N, S).
        reads: C, (B, N, S).
        rates: A ≥ 0, (S, C).
    """

    steps: Tensor
    values: Tensor
    writes: Tensor
    reads: Tensor
    rates: Tensor


def selective_scan(terms: Terms, reverse: bool = False) -> Tensor:
    """Return y of all tokens, (B, N, C), from h = 0 before the first one.

    `reverse`: tokens are read from the last to the first, so that h_n follows from h_{n+1}.
    """
    return _SelectiveScan.apply(*terms, reverse)


def advance(state: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
    """Return h after one token more, (B, S, C), and y of that token, (B, 1, C). `terms`: of one token."""
    steps, values, writes, reads, rates = terms
    state = torch.addcmul(state * (-rates * steps).exp(), writes.mT, values)
    with without_autocast(state):
        return state, reads @ state


class _SelectiveScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        *terms, ctx.reverse = arguments
        results, kept = _scan(*terms, ctx.reverse)
        ctx.save_for_backward(*terms, kept)
        return results

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_results: Tensor) -> tuple[Tensor | None, ...]:
        return *_gradients(*ctx.saved_tensors, to_results, ctx.reverse), None


def _empty(terms: Terms) -> tuple[Tensor, Tensor]:
    """Return memory for y, and for h in front of each segment, (segments, B, S, C)."""
    batch, length, _ = terms.values.shape
    kept = terms.values.new_empty(-(-length // SEGMENT), batch, *terms.rates.shape)
    return torch.empty_like(terms.values, memory_format=torch.contiguous_format), kept


@operator(
    "selective_scan(Tensor steps, Tensor values, Tensor writes, Tensor reads, Tensor rates, bool reverse)"
    " -> (Tensor, Tensor)",
    lambda *arguments: _empty(Terms(*arguments[:5])),
)
def _scan(
    steps: Tensor, values: Tensor, writes: Tensor, reads: Tensor, rates: Tensor, reverse: bool
) -> tuple[Tensor, Tensor]:
    results, kept = _empty(Terms(steps, values, writes, reads, rates))
    logarithms = -rates
    for part in _parts(values, rates):
        state = torch.zeros_like(kept[0, part])
        decay = torch.empty_like(state)
        for n, row in enumerate(_rows(part, reverse, steps, values, writes, reads, results)):
            if n % SEGMENT == 0:
                kept[n // SEGMENT, part] = state
            step, value, write, read, result = row
            _advance(state, _decay(decay, logarithms, step), write, value, out=state)
            torch.bmm(read, state, out=result)
    return results, kept


@operator(
    "selective_scan_backward(Tensor steps, Tensor values, Tensor writes, Tensor reads, Tensor rates, Tensor kept, "
    "Tensor to_results, bool reverse) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    lambda *arguments: tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in arguments[:5]),
)
def _gradients(
    steps: Tensor,
    values: Tensor,
    writes: Tensor,
    reads: Tensor,
    rates: Tensor,
    kept: Tensor,
    to_results: Tensor,
    reverse: bool,
) -> tuple[Tensor, ...]:
    tokens, logarithms = (steps, values, writes, reads), -rates
    gradients = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in tokens]
    to_logarithms = torch.zeros_like(rates, memory_format=torch.contiguous_format)
    for part in _parts(values, rates):
        rows = list(_rows(part, reverse, *tokens, to_results, *gradients))
        to_state, to_logarithms_of_part = (torch.zeros_like(kept[0, part]) for _ in range(2))
        memory = kept.new_empty(2 * SEGMENT + 1, *to_state.shape)
        states, decays = memory[: SEGMENT + 1], memory[SEGMENT + 1 :]
        for segment in reversed(range(len(kept))):
            of_segment = rows[segment * SEGMENT : (segment + 1) * SEGMENT]
            states[0].copy_(kept[segment, part])
            for n, (step, value, write, *_) in enumerate(of_segment):
                _advance(states[n], _decay(decays[n], logarithms, step), write, value, out=states[n + 1])
            for n, row in reversed([*enumerate(of_segment)]):
                step, value, write, read, to_result, to_step, to_value, to_write, to_read = row
                to_state.addcmul_(read.mT, to_result)
                torch.bmm(to_result, states[n + 1].mT, out=to_read)
                torch.bmm(value, to_state.mT, out=to_write)
                torch.bmm(write, to_state, out=to_value)
                to_state.mul_(decays[n])
                products = torch.mul(to_state, states[n], out=states[n + 1])  # gradients of -A Δ
                to_logarithms_of_part.addcmul_(products, step)
                torch.sum(products.mul_(logarithms), dim=1, keepdim=True, out=to_step)
        to_logarithms += to_logarithms_of_part.sum(dim=0)
    return *gradients, to_logarithms.neg_()


def _parts(values: Tensor, rates: Tensor) -> Iterator[slice]:
    """Yield the sentences of each part."""
    size = max(1, (CPU_STATE if values.device.type == "cpu" else GPU_STATE) // max(1, rates.numel()))
    for first in range(0, len(values), size):
        yield slice(first, first + size)


def _rows(part: slice, reverse: bool, *tokens: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield views of the tokens of some sentences, (B, 1, any) each, in the order in which they are read."""
    rows = list(zip(*(x[part].split(1, dim=1) for x in tokens), strict=True))
    yield from reversed(rows) if reverse else rows


def _decay(into: Tensor, logarithms: Tensor, step: Tensor) -> Tensor:
    """Return exp(-A Δ), (B, S, C), in the memory of `into`; `logarithms` are -A."""
    return torch.mul(logarithms, step, out=into).exp_()


def _advance(state: Tensor, decay: Tensor, write: Tensor, value: Tensor, out: Tensor) -> None:
    torch.mul(state, decay, out=out).addcmul_(write.mT, value)
