"""The continuations that a step of the search goes on with: the best, or some that are drawn."""

import hashlib
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from posnet_fairseq.inference.search.search_settings import SearchSettings

# Of a vocabulary, whose best entries are looked for in the blocks with the highest maxima.
BLOCK = 128


class Candidates(NamedTuple):
    """Continuations of the hypotheses of each sentence."""

    scores: Tensor  # (S, C) log probability of the hypothesis with the continuation
    words: Tensor  # (S, C) ids of the next tokens
    rows: Tensor  # (S, C) number in the batch of the hypothesis that is continued

    def without(self, ended: Tensor, count: int) -> "Candidates":
        """Return the first `count` continuations that do not end their hypothesis; `ended` is (S, C).

        Where there are too few, some that end come last, with the score -inf, from which nothing follows.
        """
        width = ended.size(1)
        rank = torch.arange(width, device=ended.device) + ended * width
        chosen = rank.topk(count, largest=False).indices
        scores = self.scores.masked_fill(ended, -torch.inf)
        return Candidates(*(each.gather(1, chosen) for each in (scores, self.words, self.rows)))

    def select(self, sentences: Tensor) -> "Candidates":
        """Return the continuations of some sentences, by their numbers in the batch."""
        return Candidates(*(each.index_select(0, sentences) for each in self))


def best_candidates(scores: Tensor, before: Tensor, count: int) -> Candidates:
    """Return the best continuations, best first.

    The best entries lie in the blocks of the vocabulary with the largest maxima, so most of it is only searched for
    these. For large vocabularies this is several times as fast as ``topk``; equal entries may come in another order.

    Args:
        scores: (S, W, V) of the next token of each of the W hypotheses of a sentence.
        before: (S, W), added to those of each hypothesis.
        count: C, number of continuations, at most W·V.
    """
    sentences, width, words = scores.shape
    first_rows = torch.arange(0, sentences * width, width, device=scores.device)[:, None]
    blocks = words // BLOCK
    if blocks < 4 * count:
        found, chosen = (scores + before[:, :, None]).flatten(1).topk(count)
        return Candidates(found, chosen % words, first_rows + chosen // words)
    parts = scores[:, :, : blocks * BLOCK].unflatten(2, (blocks, BLOCK))
    maxima = parts.amax(dim=3).add_(before[:, :, None])
    chosen = maxima.flatten(1).topk(count, sorted=False).indices
    parents, starts = chosen // blocks, chosen % blocks * BLOCK
    kept = parts.flatten(0, 1)[first_rows + parents, chosen % blocks]
    kept = (kept + before.gather(1, parents)[:, :, None]).flatten(1)
    rest = (scores[:, :, blocks * BLOCK :] + before[:, :, None]).flatten(1)
    found, at = torch.cat([kept, rest], dim=1).topk(count)
    # Numbers of blocks, and of words beyond the last block.
    block, beyond = (at // BLOCK).clamp(max=count - 1), at - kept.size(1)
    in_block, left = beyond < 0, max(1, words % BLOCK)
    ids = torch.where(in_block, starts.gather(1, block) + at % BLOCK, blocks * BLOCK + beyond % left)
    return Candidates(found, ids, first_rows + torch.where(in_block, parents.gather(1, block), beyond // left))


class Sampler:
    """Draw continuations, with random numbers that depend on the seed, the source and the step only."""

    def __init__(self, sources: Sequence[Tensor], settings: SearchSettings, steps: int, device: torch.device) -> None:
        self._topk, self._topp = settings.sampling_topk, settings.sampling_topp
        self._epsilon = settings.sampling_epsilon
        drawn = []
        for source in sources:
            digest = hashlib.blake2b(repr((settings.seed, source.tolist())).encode(), digest_size=8).digest()
            generator = torch.Generator().manual_seed(int.from_bytes(digest) >> 1)
            # A row of numbers for each step: those of the first steps do not depend on the number of steps.
            drawn.append(torch.rand(steps, settings.beam, generator=generator, dtype=torch.float64))
        self._uniform = torch.stack(drawn).to(device)

    def __call__(self, log_probabilities: Tensor, scores: Tensor, numbers: Tensor, step: int) -> Candidates:
        """Return one continuation for each hypothesis, or all hypotheses of a sentence from its only one.

        `numbers` (S,) are of the sentences, in the order of the sources; the others are as for :func:`best_candidates`.
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
        """Return log probabilities, -inf for what is not drawn, and the tokens' ids, None if all are there."""
        if self._topk:
            each = log_probabilities.flatten(0, 1)[:, None]
            best, ids, _ = best_candidates(each, each.new_zeros(len(each), 1), self._topk)
            shape = (*log_probabilities.shape[:2], -1)
            return best.view(shape), ids.view(shape)
        if self._epsilon:
            least = log_probabilities.amax(dim=2, keepdim=True).clamp(max=math.log(self._epsilon))
            return log_probabilities.masked_fill(log_probabilities < least, -torch.inf), None
        if self._topp == 1:
            return log_probabilities, None
        likely, ids = log_probabilities.sort(dim=2, descending=True)
        probabilities = likely.exp()
        before = probabilities.cumsum(dim=2) - probabilities
        return likely.masked_fill(before >= self._topp, -torch.inf), ids
