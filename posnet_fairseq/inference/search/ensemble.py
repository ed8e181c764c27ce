"""A model that decodes a batch step by step, and several that decode it together."""

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from posnet_fairseq.ops.output_loss import MIN_CHUNK
from posnet_fairseq.transformer.decoder import DecoderState
from posnet_fairseq.transformer.encoder import EncoderOutput

_LOG2_E = math.log2(math.e)
_IN_CACHE = 2**16  # numbers of float32: a quarter of a megabyte
_SAFE = 60.0  # size of log Σ exp up to which float32 has the sum as precisely as others


class Decoding:
    """A model that decodes a batch step by step; the sources are encoded once.

    The hypotheses of a sentence follow one another. States of self-attention have a row for each of them; the
    encoder's output and the states of cross-attention have a row for each sentence, and move with the sentences only.

    Args:
        model: translation model, or language model without ``encoder``, in evaluation mode.
        sources: (S, M) token ids with end symbols, padded on the right; of a language model only S counts.
        need_attention: also return cross-attention weights.
        allowed: (W,) ids of the target words that are scored; None for all.
    """

    def __init__(
        self, model: Any, sources: Tensor, need_attention: bool = False, allowed: Tensor | None = None
    ) -> None:
        self._decoder = getattr(model, "decoder", model)
        self._state = DecoderState()
        self._project = self._decoder.output_layer if allowed is None else self._decoder.projection_to(allowed)
        self._sentences, self._need_attention = sources.size(0), need_attention
        self._encoded: EncoderOutput | None = model.encoder.encode(sources) if hasattr(model, "encoder") else None

    def step(self, tokens: Tensor, rows: int) -> tuple[Iterator[Tensor], Tensor | None]:
        """Return scores of each hypothesis' next token, and its cross-attention weights, (R, M), or None.

        The scores come in chunks of `rows` hypotheses, (C, V), each computed when it is asked for.
        """
        features = self._decoder.features(tokens[:, None], self._encoded, self._state, self._need_attention)
        attention = None if features.attention is None else features.attention.squeeze(1)
        return map(self._project, features.x.squeeze(1).split(rows)), attention

    def forced(self, tokens: Tensor, is_read: Tensor) -> tuple[Iterator[Tensor], Tensor | None]:
        """Return the scores after all tokens that a decoder reads in one pass, and its cross-attention weights or None.

        `tokens` are (S, N), with what follows a sentence where `is_read`, (S, N), is False. The scores come in chunks
        of tokens, (C, V), those of the first position first. The weights are (S, N, M).
        """
        assert self._encoded is not None
        features = self._decoder.features(tokens, self._encoded, need_attention=self._need_attention)
        chunks = features.x.transpose(0, 1)[is_read.T].split(MIN_CHUNK)
        return map(self._project, chunks), features.attention

    def reorder(self, order: Tensor, sentences: Tensor | None = None) -> None:
        """Continue with the hypotheses `order`, (R',), equally many per sentence; keep `sentences` only (None: all)."""
        if sentences is not None:
            self._sentences = sentences.size(0)
        beam = order.size(0) // self._sentences
        self._state.reorder(order, sentences, beam)
        if self._encoded is not None:
            self._encoded = self._encoded.select(sentences, beam)


class Ensemble:
    """Models whose probabilities are averaged; their mixers may differ.

    Arguments are those of :class:`Decoding`. With `allowed`, places in it take the place of token ids in each step.
    """

    def __init__(
        self,
        models: Sequence[Any],
        sources: Tensor,
        need_attention: bool = False,
        temperature: float = 1.0,
        allowed: Tensor | None = None,
    ) -> None:
        # Graphs of other engines have a decoding of their own.
        kinds = [getattr(model, "decoding", functools.partial(Decoding, model)) for model in models]
        self._members = [kind(sources, need_attention, allowed) for kind in kinds]
        self._temperature, self._allowed = temperature, allowed

    def step(self, tokens: Tensor, rows: int) -> tuple[Iterator[tuple[Tensor, Tensor]], Tensor | None]:
        """Return scores of each hypothesis' next token after the last ones, (R,), in chunks of `rows` hypotheses.

        Of each chunk: scores (C, V) in float32, and (C, 1) what to subtract from them for log probabilities, infinite
        or NaN where the scores are. Also returned is (R, M) the mean of the models' cross-attention weights, None if no
        model has them.
        """
        if self._allowed is not None:
            tokens = self._allowed[tokens]
        steps, weights = zip(*(member.step(tokens, rows) for member in self._members), strict=True)
        return map(self._joined, zip(*steps, strict=True)), _mean(weights)

    def forced(self, targets: Tensor, first_symbol: int, padding: int) -> tuple[Tensor, Tensor | None]:
        """Return (S, N) log probabilities of targets in float32, and (S, N, M) the mean of the weights or None.

        `targets` are (S, N) token ids with end symbols, padded on the right; padding gets 0.
        """
        before, is_word = nn.functional.pad(targets[:, :-1], (1, 0), value=first_symbol), targets != padding
        chunks, weights = zip(*(member.forced(before, is_word) for member in self._members), strict=True)
        left, found = targets.T[is_word.T][:, None], []
        for several in zip(*chunks, strict=True):
            scores, normalizer = self._joined(several)
            words, left = left.tensor_split([len(scores)])
            found.append((scores.gather(1, words) - normalizer).squeeze(1))
        log_probabilities = torch.zeros(is_word.T.shape, device=targets.device)
        return log_probabilities.masked_scatter_(is_word.T, torch.cat(found)).T, _mean(weights)

    def _joined(self, steps: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return the mean of the models' scores, (R, V) each, and what to subtract, see :meth:`step`."""
        # The scores are fresh: what is computed of them can take their place.
        scores = [each.float() if self._temperature == 1 else each.float().div_(self._temperature) for each in steps]
        if len(scores) == 1:
            return scores[0], log_sum_exp(scores[0])
        mean = torch.log_softmax(scores[0], dim=1, out=scores[0])
        for one in scores[1:]:
            torch.logaddexp(mean, torch.log_softmax(one, dim=1, out=one), out=mean)
        first = mean[:, :1]  # of a row all are NaN, or none is
        return mean, torch.where(first.isnan(), first, math.log(len(scores)))

    def reorder(self, order: Tensor, sentences: Tensor | None = None) -> None:
        """See :meth:`Decoding.reorder`."""
        for member in self._members:
            member.reorder(order, sentences)


def _mean(weights: Sequence[Tensor | None]) -> Tensor | None:
    """Return the mean of the weights that there are."""
    found = [each for each in weights if each is not None]
    return torch.stack(found).mean(dim=0) if found else None


def log_sum_exp(scores: Tensor) -> Tensor:
    """Return log Σ exp of each row, (R, 1) of (R, V)."""
    if scores.device.type == "cpu":
        # In parts that stay in a core's cache, with one place for the powers of all. Scores of trained models are so
        # small that maxima need not be subtracted. torch computes powers of 2 several times as fast as those of e.
        rows = max(1, _IN_CACHE // scores.size(1))
        place = torch.empty_like(scores[:rows])
        powers = (torch.mul(part, _LOG2_E, out=place[: len(part)]).exp2_() for part in scores.split(rows))
        found = torch.cat([each.sum(dim=1, keepdim=True) for each in powers]).log_()
        if found.abs().amax() < _SAFE:
            return found
    top = scores.amax(dim=1, keepdim=True)
    return top + (scores - top).exp_().sum(dim=1, keepdim=True).log_()
