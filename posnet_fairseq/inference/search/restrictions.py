"""What a hypothesis must and must not continue with."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from posnet_fairseq.inference.search.search_settings import SearchSettings
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text.dictionary import Dictionary


class Restrictions:
    """Changes log probabilities before continuations are chosen.

    `max_len` are the most tokens of a translation, without end symbol; `prefixes` (P,) are what each begins with.

    Attributes:
        forced: number of steps in which every sentence has a prefix to follow.
    """

    def __init__(
        self,
        settings: SearchSettings,
        dictionary: Dictionary,
        max_len: int,
        prefixes: Sequence[Tensor],
        device: torch.device,
    ) -> None:
        self._pad, self._eos, self._unk = dictionary.pad(), dictionary.eos(), dictionary.unk()
        self._settings, self._max_len = settings, max_len
        self._prefixes = pad_sequence(list(prefixes), batch_first=True, padding_value=self._pad).to(device)
        self.forced = min(map(len, prefixes))
        self._longest = max(map(len, prefixes))
        self._history: Tensor | None = None

    def apply(self, log_probabilities: Tensor, step: int, numbers: Tensor, first: int = 0) -> None:
        """Set log probabilities (S, W, V) of what is not allowed to -inf, as fairseq does for each sentence alone.

        `numbers` are those of the sentences, (S,), in the order of the prefixes; `first` is the number of their first
        hypothesis among all of the batch.
        """
        log_probabilities[:, :, self._pad] = -torch.inf
        if self._settings.unkpen:
            log_probabilities[:, :, self._unk] -= self._settings.unkpen
        if step == self._max_len:
            log_probabilities[:, :, : self._eos] = -torch.inf
            log_probabilities[:, :, self._eos + 1 :] = -torch.inf
            return
        wanted = self._prefixes[numbers, step] if step < self._longest else None
        if wanted is not None:
            # Without a prefix to follow the wanted token is padding, which has -inf already.
            index = wanted[:, None, None].expand(-1, log_probabilities.size(1), 1)
            kept = log_probabilities.gather(2, index)
        if self._history is not None:
            rows = log_probabilities.flatten(0, 1)
            history = self._history[first : first + len(rows)]
            forbid_repetitions(rows, history, self._settings.no_repeat_ngram_size)
        if step < self._settings.min_len:
            log_probabilities[:, :, self._eos] = -torch.inf
        if wanted is not None:
            log_probabilities.masked_fill_((wanted != self._pad)[:, None, None], -torch.inf)
            log_probabilities.scatter_(2, index, kept)

    def advance(self, words: Tensor, order: Tensor) -> None:
        """Take note of the last tokens, (R,), and of which of the hypotheses before they continue, (R,)."""
        if self._settings.no_repeat_ngram_size:
            words = words[:, None]
            before = self._history
            self._history = words if before is None else torch.cat([before.index_select(0, order), words], dim=1)


def refuse_ends(dictionary: Dictionary, texts: Sequence[Tensor], what: str) -> None:
    """Refuse texts, (N,) token ids without end symbol each, that contain what stands behind a text."""
    if any(bool(((text == dictionary.pad()) | (text == dictionary.eos())).any()) for text in texts):
        raise UsageError(f"a {what} contains </s> or <pad>, which stand behind a text only. Leave them out.")


def forbid_repetitions(log_probabilities: Tensor, history: Tensor, size: int) -> None:
    """Set log probabilities (R, V) of tokens that would repeat `size` tokens of `history`, (R, N), to -inf."""
    if history.size(1) >= size:
        seen = history.unfold(1, size, 1)
        last = history[:, history.size(1) - size + 1 :]
        repeated = (seen[:, :, :-1] == last[:, None]).all(dim=2)
        # A sum, as one token may follow both what is repeated and what is not.
        penalty = torch.zeros(repeated.shape, device=history.device).masked_fill(repeated, -torch.inf)
        log_probabilities.scatter_add_(1, seen[:, :, -1], penalty)
