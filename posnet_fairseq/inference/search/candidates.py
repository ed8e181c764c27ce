"""The continuations that a step of the search goes on with: the best, or some that are drawn."""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from posnet_fairseq.inference.search.settings import SearchSettings

# Of a vocabulary, whose best entries are looked for in the blocks with the highest maxima.
BLOCK = 128


class Candidates(NamedTuple):
    """Continuations of the hypotheses of each sentence.

    Attributes:
        scores: (S, C) log probability of the hypothesis with the continuation.
        words: (S, C) ids of the next tokens.
        rows: (S, C) number in the batch of the hypothesis that is continued.
    """

    scores: Tensor
    words: Tensor
    rows: Tensor

    def without(self, ended: Tensor, count: int) -> "Candidates":
        """The first continuations that do not end their hypothesis, (S, `count`).

        Where there are too few, some that end come last, with the score -inf, from which nothing follows.

        Args:
            ended: (S, C) whether it ends.
            count: number of continuations.
        """
        width = ended.size(1)
        rank = torch.arange(width, device=ended.device) + ended * width
        chosen = rank.topk(count, largest=False).indices
        scores = self.scores.masked_fill(ended, -torch.inf)
        return Candidates(*(each.gather(1, chosen) for each in (scores, self.words, self.rows)))

    def select(self, sentences: Tensor) -> "Candidates":
        """Those of some sentences, by their numbers in the batch."""
        return Candidates(*(each.index_select(0, sentences) for each in self))


def best_candidates(log_probabilities: Tensor, scores: Tensor, count: int) -> Candidates:
    """The best continuations, best first.

    Args:
        log_probabilities: (S, W, V) of the next token of each of the W hypotheses of a sentence.
        scores: (S, W) log probabilities of the hypotheses.
        count: C, number of continuations, at most W·V.
    """
    sentences, width, words = log_probabilities.shape
    # The best of a sentence are among the best of its hypotheses.
    best, index = largest(log_probabilities.view(-1, words), min(count, words))
    each = best.size(1)
    found, chosen = (best.view(sentences, width, each) + scores[:, :, None]).flatten(1).topk(count)
    rows = torch.arange(0, sentences * width, width, device=scores.device)[:, None] + chosen // each
    return Candidates(found, index.view(sentences, -1).gather(1, chosen), rows)


def largest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest entries of each row, largest first, and their indices, (R, count) each.

    Equal to ``scores.topk(count)`` up to the order of equal entries, and 2 to 3 times as fast for large vocabularies:
    the largest entries lie in the blocks with the largest maxima.

    Args:
        scores: (R, V).
        count: at most V.
    """
    rows, words = scores.shape
    blocks = words // BLOCK
    if blocks < 4 * count:
        return scores.topk(count)
    parts = scores[:, : blocks * BLOCK].unflatten(1, (blocks, BLOCK))
    chosen = parts.amax(dim=2).topk(count, sorted=False).indices
    kept = parts[torch.arange(rows, device=scores.device)[:, None], chosen].flatten(1)
    ids = (chosen[:, :, None] * BLOCK + torch.arange(BLOCK, device=scores.device)).flatten(1)
    if words % BLOCK:
        rest = torch.arange(blocks * BLOCK, words, device=scores.device).expand(rows, -1)
        kept, ids = torch.cat([kept, scores[:, blocks * BLOCK :]], dim=1), torch.cat([ids, rest], dim=1)
    found, at = kept.topk(count)
    return found, ids.gather(1, at)


class Sampler:
    """Draws continuations, with random numbers that depend on the seed, the source and the step only.

    Args:
        sources: (M,) token ids of each sentence.
        settings: of the search.
        steps: most steps of the search.
        device: of the models.
    """

    def __init__(self, sources: Sequence[Tensor], settings: SearchSettings, steps: int, device: torch.device) -> None:
        self._topk, self._topp = settings.sampling_topk, settings.sampling_topp
        # A row of numbers for each step: those of the first steps do not depend on the number of steps.
        drawn = [
            torch.rand(steps, settings.beam, generator=_generator(settings.seed, source), dtype=torch.float64)
            for source in sources
        ]
        self._uniform = torch.stack(drawn).to(device)

    def __call__(self, log_probabilities: Tensor, scores: Tensor, numbers: Tensor, step: int) -> Candidates:
        """One continuation for each hypothesis, or all hypotheses of a sentence from its only one.

        Args:
            log_probabilities, scores: see :func:`best_candidates`.
            numbers: (S,) of the sentences, in the order of the sources.
            step: from 0.
        """
        width = scores.size(1)
        likely, ids = self._likely(log_probabilities)
        # Relative to the likeliest: the only token that is allowed may be less likely than a number can say.
        total = (likely - likely.amax(dim=2, keepdim=True)).exp().to(torch.float64).cumsum(dim=2)
        sums = total[:, :, -1:]
        # Strictly below the sum, rounded as it may be, so that no token of probability 0 is found.
        wanted = self._uniform[numbers, step].unflatten(1, (width, -1)) * sums
        wanted = torch.minimum(wanted, torch.nextafter(sums, torch.zeros_like(sums)))
        found = torch.searchsorted(total, wanted, right=True).clamp(max=total.size(2) - 1)  # where NaN are summed
        words = found if ids is None else ids.gather(2, found)
        drawn = scores[:, :, None] + likely.gather(2, found)
        rows = torch.arange(words.size(0) * width, device=words.device).view(-1, width, 1).expand_as(words)
        return Candidates(drawn.flatten(1), words.flatten(1), rows.flatten(1))

    def _likely(self, log_probabilities: Tensor) -> tuple[Tensor, Tensor | None]:
        """Log probabilities to draw with, -inf for what is not drawn, and the tokens' ids, None if all are there."""
        if self._topk:
            best, ids = largest(log_probabilities.flatten(0, 1), self._topk)
            shape = (*log_probabilities.shape[:2], -1)
            return best.view(shape), ids.view(shape)
        if self._topp == 1:
            return log_probabilities, None
        likely, ids = log_probabilities.sort(dim=2, descending=True)
        probabilities = likely.exp()
        before = probabilities.cumsum(dim=2) - probabilities
        return likely.masked_fill(before >= self._topp, -torch.inf), ids


def _generator(seed: int, source: Tensor) -> torch.Generator:
    digest = hashlib.blake2b(repr((seed, source.tolist())).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest) >> 1)
