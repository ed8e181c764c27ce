"""Several models that decode one batch together."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from posnet_fairseq.inference.search.decoding import Decoding

_LOG2_E = math.log2(math.e)


class Ensemble:
    """Models whose probabilities are averaged; their mixers may differ. Arguments as of :class:`Decoding`."""

    def __init__(
        self,
        models: Sequence[Any],
        sources: Tensor,
        need_attention: bool = False,
        temperature: float = 1.0,
        allowed: Tensor | None = None,
    ) -> None:
        self._members = [Decoding(model, sources, need_attention, allowed) for model in models]
        self._temperature = temperature

    def step(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Compute the scores of each hypothesis' next token.

        Args:
            tokens: (R,) the last token of each hypothesis.

        Returns:
            (R, V) scores in float32; (R, 1) what to subtract from them for log probabilities, infinite or NaN where
            the models' scores are; and (R, M) the mean of their cross-attention weights, None if no model has them.
        """
        scores, weights = zip(*(self._member_step(member, tokens) for member in self._members), strict=True)
        found = [each for each in weights if each is not None]
        attention = torch.stack(found).mean(dim=0) if found else None
        if len(scores) == 1:
            return scores[0], log_sum_exp(scores[0]), attention
        mean = torch.log_softmax(scores[0], dim=1, out=scores[0])
        for one in scores[1:]:
            torch.logaddexp(mean, torch.log_softmax(one, dim=1, out=one), out=mean)
        first = mean[:, :1]  # of a row all are NaN, or none is
        return mean, torch.where(first.isnan(), first, math.log(len(scores))), attention

    def reorder(self, order: Tensor, sentences: Tensor | None = None) -> None:
        """See :meth:`Decoding.reorder`."""
        for member in self._members:
            member.reorder(order, sentences)

    def _member_step(self, member: Decoding, tokens: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return fresh scores, whose memory can be used again, and weights."""
        scores, weights = member.step(tokens)
        scores = scores.float()
        if self._temperature != 1:
            scores /= self._temperature
        return scores, weights


def log_sum_exp(scores: Tensor) -> Tensor:
    """Return log Σ exp of each row, (R, 1) of (R, V)."""
    top = scores.amax(dim=1, keepdim=True)
    # torch computes powers of 2 on CPUs several times as fast as those of e.
    powers = torch.add(top * -_LOG2_E, scores, alpha=_LOG2_E).exp2_()
    return top + powers.sum(dim=1, keepdim=True).log()
