"""Lexical constraints of a search: sequences of tokens that a hypothesis must contain.

The beam of a sentence is divided between banks of hypotheses that have the same number of tokens of constraints:
dynamic beam allocation, Post and Vilar (NAACL 2018), in batches with tries as by Hu et al. (NAACL 2019).
"""

import math
from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from posnet_fairseq.inference.search.candidates import Candidates, best_candidates

Paths = Sequence[Sequence[int]]  # token ids of a constraint, in one or more ways
_KINDS = 4  # of tokens that no constraint has, as `joins` numbers them


class Automaton:
    """What each token does with the constraints of a sentence, as tables.

    Occurrences of constraints do not overlap: of those that begin at a token the longest counts, from left to right.
    A constraint is met by the token behind it, which shows that its last word ends there. Two states are of nothing
    that is begun, behind the end of a word and within a word; the others are beginnings of constraints.

    Args:
        constraints: C' of them; one that is there twice must be met twice.
        joins: (V,) whether a token goes on with the word before it (2), lets the next token go on with it (1), both (3)
            or neither (0). The end symbol is a 0.

    Attributes:
        needed: how often each of C different constraints must be met.
        sizes: most tokens of each.
        alphabet: A different tokens of all.
        next: (N, 4 + A) state after a token of a kind of `joins` that no constraint has, or of the alphabet.
        met: (N, 4 + A, C) how many constraints are met by it.
        begun: (N, C) tokens of each that a state has, if its others can follow.
    """

    def __init__(self, constraints: Sequence[Paths], joins: Sequence[int]) -> None:
        keys = [tuple(map(tuple, paths)) for paths in constraints]
        each = list(dict.fromkeys(keys))
        self.needed, self.sizes = [keys.count(key) for key in each], [max(map(len, key)) for key in each]
        self._ends = {path: number for number, key in enumerate(each) for path in key}
        self.alphabet = sorted({token for path in self._ends for token in path})
        self._joins = joins
        prefixes = sorted({path[:size] for path in self._ends for size in range(1, len(path) + 1)})
        self._states: dict[tuple[int, ...], int] = {(): 0, **{prefix: 2 + i for i, prefix in enumerate(prefixes)}}
        begun = [[0] * len(each) for _ in range(2 + len(prefixes))]
        for path, number in self._ends.items():
            for size in range(1, len(path) + 1):
                of_state = begun[self._states[path[:size]]]
                of_state[number] = max(of_state[number], self.sizes[number] - len(path) + size)
        for prefix in prefixes:  # what ends within a longer constraint is met if that one fails
            for inner in [prefix[:size] for size in range(1, len(prefix)) if prefix[:size] in self._ends][-1:]:
                begun[self._states[prefix]][self._ends[inner]] = self.sizes[self._ends[inner]]
        self.begun = torch.tensor(begun)
        symbols = [*range(-_KINDS, 0), *self.alphabet]
        states = [((), 0), ((), 1), *((prefix, 0) for prefix in prefixes)]
        steps = [[self._step(*state, token) for token in symbols] for state in states]
        self.next = torch.tensor([[state for state, _ in row] for row in steps])
        self.met = torch.tensor(
            [[[met.count(number) for number in range(len(each))] for _, met in row] for row in steps]
        )

    def _step(self, prefix: tuple[int, ...], before: int, token: int) -> tuple[int, list[int]]:
        """Return the state after a token, and numbers of the constraints that it shows to be met.

        `prefix` are the tokens of a state, `before` is of the kind of the token in front of them. Tokens below 0 are
        those of a kind: -4 to -1 for 0 to 3.
        """
        met, left = list[int](), (*prefix, token)
        while left:
            kinds = [each + _KINDS if each < 0 else self._joins[each] for each in left]
            size = 1
            if not before & 1 or not kinds[0] & 2:
                if left in self._states:
                    return self._states[left], met
                ends = [n for n in range(1, len(left)) if not kinds[n - 1] & 1 or not kinds[n] & 2]
                if found := [n for n in ends if left[:n] in self._ends]:
                    size = found[-1]
                    met.append(self._ends[left[:size]])
            before, left = kinds[size - 1], left[size:]
        return before & 1, met


class Constraints:
    """What hypotheses of a batch have of their constraints, and the continuations that they go on with.

    A hypothesis ends when it has all. Only where the maximum length ends it, those that lack least end without.

    Args:
        constraints: of each sentence, one or more.
        joins: (V,) as for :class:`Automaton`.
        eos, never: the end symbol, and a token that never follows.
        device: of the models.
    """

    def __init__(
        self, constraints: Sequence[Sequence[Paths]], joins: Tensor, eos: int, never: int, device: torch.device
    ) -> None:
        self._eos, kinds = eos, joins.tolist()
        each = [Automaton(of_sentence, kinds) for of_sentence in constraints]
        columns, most = (max(one.met.size(dim) for one in each) for dim in (1, 2))
        starts = [0, *accumulate(len(one.next) for one in each)]
        following = [
            pad(one.next + start, (0, columns - one.next.size(1))) for start, one in zip(starts, each, strict=False)
        ]
        met = [pad(one.met, (0, most - one.met.size(2), 0, columns - one.met.size(1))) for one in each]
        begun = [pad(one.begun, (0, most - one.begun.size(1))) for one in each]
        sizes = [pad(torch.tensor([one.sizes]), (0, most - len(one.sizes))).expand(len(one.next), -1) for one in each]
        # Of all states of all sentences.
        self._next, self._met, self._begun, self._sizes = (
            torch.cat(of_states).to(device) for of_states in (following, met, begun, sizes)
        )
        alphabet, needed = (
            pad_sequence([torch.tensor(values) for values in of_all], batch_first=True, padding_value=padding)
            for of_all, padding in (([one.alphabet for one in each], never), ([one.needed for one in each], 0))
        )
        # Of each sentence the columns of all tokens.
        places = torch.arange(_KINDS, columns, dtype=torch.int16).expand(alphabet.shape)
        self._columns = joins.to(torch.int16).repeat(len(each), 1).scatter_(1, alphabet, places).to(device)
        self._continues = (joins & 2 > 0).to(device)
        self._alphabet, self._left = alphabet.to(device), needed.to(device)
        self._states = torch.tensor(starts[:-1], device=device)
        self._most = 1 + max(sum(map(math.prod, zip(one.needed, one.sizes, strict=True))) for one in each)

    def apply(self, log_probabilities: Tensor, before: Tensor, first: int, is_last: bool) -> None:
        """Set log probabilities (S, W, V) of end symbols to -inf where hypotheses lack a constraint.

        `before` (S, W) are those of hypotheses, `first` is the number of the first one among all of the batch. In the
        last step, they end if no other one of the sentence lacks less.
        """
        rows = slice(first, first + before.numel())
        states = self._states[rows]
        left = (self._left[rows] - self._met[states, 0]).clamp(min=0)
        lacks = self._lack(left, self._next[states, 0]).view_as(before)
        least: Tensor | int = 0
        if is_last:
            lacks = lacks.masked_fill(before == -torch.inf, self._most)
            least = lacks.amin(dim=1, keepdim=True)
        log_probabilities[:, :, self._eos].masked_fill_(lacks > least, -torch.inf)

    def candidates(self, scores: Tensor, before: Tensor, count: int, numbers: Tensor) -> Candidates:
        """Return the best continuations of each hypothesis, and those by any token of the constraints.

        Also the end symbol and the best token that begins a word: where all likelier tokens go on with a constraint's
        last word, nothing else would leave it met.

        Args:
            scores: (S, W, V) of the next token of each of the W hypotheses of a sentence; they are changed.
            before: (S, W), added to those of each hypothesis.
            count: most continuations of each hypothesis, besides those by tokens of the constraints.
            numbers: (S,) of the sentences.
        """
        sentences, width, words = scores.shape
        tokens = self._alphabet[numbers][:, None].expand(-1, width, -1)
        tokens = torch.cat([tokens, torch.full_like(tokens[:, :, :1], self._eos)], dim=2)
        of_tokens = scores.gather(2, tokens)
        scores.scatter_(2, tokens, -torch.inf)  # each is one candidate
        begins = scores.masked_fill(self._continues, -torch.inf).max(dim=2, keepdim=True)
        scores.scatter_(2, begins.indices, -torch.inf)
        tokens = torch.cat([tokens, begins.indices], dim=2)
        rows = torch.arange(sentences * width, device=scores.device).view(sentences, width, 1).expand_as(tokens)
        by_constraints = Candidates(torch.cat([of_tokens, begins.values], dim=2) + before[:, :, None], tokens, rows)
        others = best_candidates(scores.flatten(0, 1)[:, None], before.reshape(-1, 1), min(count, words - 1))
        both = zip(others, by_constraints, strict=True)
        return Candidates(*(torch.cat([one.view(sentences, -1), two.flatten(1)], dim=1) for one, two in both))

    def allocated(self, found: Candidates, count: int, numbers: Tensor) -> Candidates:
        """Return `count` of the candidates of each sentence, by turns from all banks.

        The first is the best one of the bank that lacks least, the second that of the next bank; then follow the second
        best of all banks. `numbers` (S,) are of the sentences.
        """
        scores, by_score = found.scores.sort(dim=1, descending=True)
        states, left = self._after(found.words, found.rows, numbers)
        banks, by_bank = self._lack(left, states).gather(1, by_score).sort(dim=1, stable=True)
        place = torch.arange(scores.size(1), device=scores.device).expand_as(banks)
        begins = (banks != banks.roll(1, dims=1)).index_fill(1, place[0, :1], True)
        rank = place - place.masked_fill(~begins, 0).cummax(dim=1).values
        # A hypothesis that ends does not take the turn of one that goes on with all constraints: one is always left.
        ends = found.words.gather(1, by_score).gather(1, by_bank) == self._eos
        rank = rank - ends.cumsum(dim=1).masked_fill(ends | (banks > 0), 0)
        turn = 2 * (rank * self._most + banks) + ~ends
        turn = turn.masked_fill(scores.gather(1, by_bank) == -torch.inf, torch.iinfo(turn.dtype).max)
        chosen = by_score.gather(1, by_bank.gather(1, turn.topk(count, largest=False).indices))
        return Candidates(*(each.gather(1, chosen) for each in found))

    def advance(self, words: Tensor, order: Tensor, numbers: Tensor) -> None:
        """Take note of the last tokens, (R,), and of which of the hypotheses before they continue, (R,).

        `numbers` (S,) are of the sentences that go on.
        """
        shape = len(numbers), -1
        states, left = self._after(words.view(shape), order.view(shape), numbers)
        self._states, self._left = states.flatten(), left.flatten(0, 1)

    def _after(self, words: Tensor, rows: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Return states, (S, K), and how often constraints must be met yet, (S, K, C), after tokens of hypotheses."""
        states = self._states[rows]
        columns = self._columns[numbers[:, None], words].long()
        return self._next[states, columns], (self._left[rows] - self._met[states, columns]).clamp_(min=0)

    def _lack(self, left: Tensor, states: Tensor) -> Tensor:
        """Return how many tokens of constraints hypotheses lack, (...), of states (...) and `left`, (..., C)."""
        begun = self._begun[states].masked_fill(left == 0, 0).amax(dim=-1)
        return (left * self._sizes[states]).sum(dim=-1) - begun
