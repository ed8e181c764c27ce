"""The hypotheses of a search: what each step added, and which have ended."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Hypothesis:
    """A hypothesis of a search."""

    tokens: Tensor  # (N,) ids with the end symbol, on the CPU
    score: float  # log probability over length to the power of the length penalty
    attention: Tensor | None = None  # (N, M) weights that each target token gives to each source token
    token_scores: tuple[float, ...] = ()  # N log probabilities, whose sum the score is made of


class Hypotheses:
    """Hypotheses as a tree, on the device of the models until the search is over.

    Every row of every step is a node: its last token, and the node that it continues.

    Attributes:
        attention: the cross-attention weights of each step, (R, M), if they are kept.
    """

    def __init__(self, tokens: Tensor, beam: int) -> None:
        self._tokens, self._parents, self._first = [tokens], [torch.full_like(tokens, -1)], 0
        self.attention: list[Tensor] = []
        self._sums = [torch.zeros(len(tokens), device=tokens.device)]  # of log probabilities, up to each node
        self._beam = beam
        self._count = tokens.new_zeros(len(tokens))
        # One more place takes what is not kept.
        self._nodes = tokens.new_zeros(len(tokens), beam + 1)
        self._scores = torch.zeros(len(tokens), beam + 1, device=tokens.device)

    def end(self, numbers: Tensor, rows: Tensor, scores: Tensor, ended: Tensor) -> Tensor:
        """Keep hypotheses that end in this step, in their order, until a sentence has `beam`.

        Args:
            numbers: (S,) of the sentences.
            rows, scores, ended: (S, C) number of the hypothesis, score of it with its end symbol, and whether it ends.

        Returns:
            (S,) whether a sentence needs more hypotheses.
        """
        count = self._count[numbers]
        place = torch.where(ended, count[:, None] + ended.cumsum(dim=1) - 1, self._beam).clamp(max=self._beam)
        self._nodes[numbers[:, None], place] = rows + self._first
        self._scores[numbers[:, None], place] = scores
        count = (count + ended.sum(dim=1)).clamp(max=self._beam)
        self._count[numbers] = count
        return count < self._beam

    def extend(self, tokens: Tensor, order: Tensor, sums: Tensor) -> None:
        """Go on to the next step: (R,) each hypothesis' last token, which one it continues, and log probability."""
        self._parents.append(order + self._first)
        self._first += len(self._tokens[-1])
        self._tokens.append(tokens)
        self._sums.append(sums)

    def best(
        self, nbest: int, eos: int, lenpen: float, source_lengths: Sequence[int], ids: Tensor | None = None
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each sentence that have ended, best first, at most `nbest`.

        Scores were divided by the length to the power of `lenpen`. `source_lengths` are M of each sentence, without
        padding; tokens are places in `ids`, (W,), if that is given.
        """
        every = torch.cat(self._tokens)
        # Together: each copy is a wait for the device.
        tokens, parents = torch.stack([every if ids is None else ids[every], torch.cat(self._parents)]).tolist()
        attention, sums = torch.cat(self.attention).cpu() if self.attention else None, torch.cat(self._sums).tolist()
        found = []
        collected = zip(self._count.tolist(), self._nodes.tolist(), self._scores.tolist(), source_lengths, strict=True)
        for count, nodes, scores, length in collected:
            ended = sorted(zip(scores[:count], nodes[:count], strict=True), key=lambda pair: -pair[0])
            of_sentence = []
            for score, node in ended[:nbest]:
                path = [node]
                while parents[path[-1]] >= 0:
                    path.append(parents[path[-1]])
                path.reverse()
                symbols = torch.tensor([*(tokens[node] for node in path[1:]), eos])
                weights = None if attention is None else attention[path, :length]
                until = [*(sums[node] for node in path), score * len(path) ** lenpen]
                token_scores = tuple(after - before for before, after in itertools.pairwise(until))
                of_sentence.append(Hypothesis(symbols, score, weights, token_scores))
            found.append(of_sentence)
        return found
