"""Several models that decode one batch together."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from posnet_fairseq.inference.search.decoding import Decoding


class Ensemble:
    """Models whose probabilities are averaged; their mixers may differ.

    Args:
        models, sources, need_attention: see :class:`posnet_fairseq.inference.search.decoding.Decoding`.
        temperature: scores are divided by it before the softmax.
        allowed: see :class:`posnet_fairseq.inference.search.decoding.Decoding`.
    """

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

    def step(self, tokens: Tensor) -> tuple[Tensor, Tensor | None]:
        """Log probabilities of each hypothesis' next token, (R, V) in float32, and weights.

        The weights, (R, M), are the mean over the models that have cross-attention weights; None if no model has them.

        Args:
            tokens: (R,) the last token of each hypothesis.
        """
        scores, weights = zip(*(member.step(tokens) for member in self._members), strict=True)
        mean = self._log_probabilities(scores[0])
        if len(scores) > 1:
            for one in scores[1:]:
                torch.logaddexp(mean, self._log_probabilities(one), out=mean)
            mean -= math.log(len(scores))
        found = [each for each in weights if each is not None]
        return mean, torch.stack(found).mean(dim=0) if found else None

    def reorder(self, order: Tensor, sentences: Tensor | None = None) -> None:
        """See :meth:`posnet_fairseq.inference.search.decoding.Decoding.reorder`."""
        for member in self._members:
            member.reorder(order, sentences)

    def _log_probabilities(self, scores: Tensor) -> Tensor:
        """Takes the place of the scores: a fresh tensor of this size costs more than the softmax."""
        scores = scores.float()
        if self._temperature != 1:
            scores /= self._temperature
        return torch.log_softmax(scores, dim=1, out=scores)
