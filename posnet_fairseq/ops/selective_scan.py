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
    return state, reads @ state


class _SelectiveScan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, steps: Tensor, values: Tensor, writes: Tensor, reads: Tensor, rates: Tensor, reverse: bool
    ) -> Tensor:
        tokens, results = (steps, values, writes, reads), torch.empty_like(values)
        kept, logarithms = [], -rates
        for part in _parts(values, rates):
            state = values.new_zeros(len(values[part]), *rates.shape)
            decay = torch.empty_like(state)
            for n, row in enumerate(_rows(part, reverse, *tokens, results)):
                if n % SEGMENT == 0:
                    kept.append(state.clone())
                step, value, write, read, result = row
                _advance(state, _decay(decay, logarithms, step), write, value, out=state)
                torch.bmm(read, state, out=result)
        ctx.save_for_backward(*tokens, rates, *kept)
        ctx.reverse = reverse
        return results

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_results: Tensor) -> tuple[Tensor | None, ...]:
        *tokens, rates = ctx.saved_tensors[:5]
        kept, logarithms, to_rates = list(ctx.saved_tensors[5:]), -rates, torch.zeros_like(rates)
        gradients = [torch.empty_like(x) for x in tokens]
        segments = -(-tokens[0].size(1) // SEGMENT)
        for number, part in enumerate(_parts(to_results, rates)):
            rows = list(_rows(part, ctx.reverse, *tokens, to_results, *gradients))
            starts = kept[number * segments : (number + 1) * segments]
            to_state, to_rates_of_part = torch.zeros_like(starts[0]), torch.zeros_like(starts[0])
            memory = starts[0].new_empty(2 * SEGMENT + 1, *starts[0].shape)
            states, decays = memory[: SEGMENT + 1], memory[SEGMENT + 1 :]
            for segment in reversed(range(segments)):
                of_segment = rows[segment * SEGMENT : (segment + 1) * SEGMENT]
                states[0].copy_(starts[segment])
                for n, (step, value, write, *_) in enumerate(of_segment):
                    _advance(states[n], _decay(decays[n], logarithms, step), write, value, out=states[n + 1])
                for n, row in reversed([*enumerate(of_segment)]):
                    step, value, write, read, to_result, to_step, to_value, to_write, to_read = row
                    to_state.addcmul_(read.mT, to_result)
                    torch.bmm(to_result, states[n + 1].mT, out=to_read)
                    torch.bmm(value, to_state.mT, out=to_write)
                    torch.bmm(write, to_state, out=to_value)
                    to_state.mul_(decays[n])
                    to_logarithms = torch.mul(to_state, states[n], out=states[n + 1])
                    to_rates_of_part.addcmul_(to_logarithms, step)
                    torch.sum(to_logarithms.mul_(logarithms), dim=1, keepdim=True, out=to_step)
            to_rates -= to_rates_of_part.sum(dim=0)
        return *gradients, to_rates, None


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
