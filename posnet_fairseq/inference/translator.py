"""Lines of plain text to translations, with any search between them."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from posnet_fairseq.shared.errors import UsageError, check_range, flag
from posnet_fairseq.shared.files import is_blank
from posnet_fairseq.text.dictionary import Vocabulary
from posnet_fairseq.text.pipeline import TextPipeline

MAX_TOKENS = 2000
ON_LONG = ("error", "truncate", "skip")
# The least and the most of each setting. The rest would fill the memory, or overflow where lengths are raised to it.
LIMITS: dict[str, tuple[int, int]] = {
    "beam": (1, 10_000),
    "lenpen": (-10, 10),
    "max_len_a": (0, 1_000_000),
    "max_len_b": (1, 1_000_000_000),
}
MAX_TOKENS_LIMITS = (1, 1_000_000_000)

Result = TypeVar("Result")


@dataclass(frozen=True)
class SearchSettings:
    """Settings of a beam search.

    Attributes:
        beam: hypotheses that are kept at each step.
        lenpen: length penalty; a hypothesis is scored by its log probability over its length to this power.
        max_len_a, max_len_b: a translation of M source tokens ends after at most a·M + b tokens.
    """

    beam: int = 12
    lenpen: float = 1.0
    max_len_a: float = 0.0
    max_len_b: int = 200

    def check(self, words: int | None = None) -> None:
        """Refuse settings that are out of range.

        Args:
            words: entries of the target dictionary, if known: the beam must be smaller.

        Raises:
            UsageError: a setting is no number, or out of range.
        """
        for setting in dataclasses.fields(self):
            value, whole = getattr(self, setting.name), isinstance(setting.default, int)
            check_range(flag(setting.name), value, *LIMITS[setting.name], whole=whole)
        if words is not None and self.beam >= words:
            raise UsageError(f"--beam {self.beam}: the target dictionary has {words} entries. Give less than that.")


@dataclass(frozen=True)
class Hypothesis:
    """A hypothesis of a search.

    Attributes:
        tokens: (N,) token ids with the end symbol, on the CPU.
        score: log probability over length to the power of the length penalty.
        attention: (N, M) weights that each target token gives to each source token, if the search returns them.
    """

    tokens: Tensor
    score: float
    attention: Tensor | None = None


class Search(Protocol):
    """Finds hypotheses for a batch of sources."""

    def __call__(self, sources: Sequence[Tensor]) -> list[list[Hypothesis]]:
        """The hypotheses of each source, best first.

        Args:
            sources: (M,) token ids with the end symbol, each.
        """
        ...


@dataclass(frozen=True)
class Translation:
    """A translation of a line.

    Attributes:
        text: plain text.
        score: log probability over length to the power of the length penalty.
        tokens: N tokens of the target, the end symbol ``</s>`` included.
        source_tokens: M tokens of the source, the end symbol included.
        attention: (N, M) cross-attention weights of the last layer, the mean of its heads; each row sums to 1. None
            if they were not asked for, or the cross-attention mixer has none.
    """

    text: str
    score: float
    tokens: tuple[str, ...]
    source_tokens: tuple[str, ...]
    attention: Tensor | None = field(default=None, compare=False)


# What a blank line is translated to, without the model.
BLANK = Translation("", 0.0, (), ())


class Translator:
    """A search between plain texts.

    Args:
        search: finds hypotheses.
        vocabulary: dictionaries of the model.
        pipeline: splits text into tokens and joins them.
        max_source: most tokens of a source, the end symbol included.
    """

    def __init__(self, search: Search, vocabulary: Vocabulary, pipeline: TextPipeline, max_source: int) -> None:
        self.search, self.vocabulary, self.pipeline, self.max_source = search, vocabulary, pipeline, max_source

    def encode(self, line: str) -> Tensor:
        """(M,) token ids of a line of plain text, with the end symbol."""
        return self.vocabulary.encode(self.pipeline.encode(line))

    def translate(self, sources: Sequence[Tensor]) -> list[list[Translation]]:
        """Translations of each source of a batch, best first.

        Args:
            sources: (M,) token ids with the end symbol, each.
        """
        found = zip(sources, self.search(sources), strict=True)
        return [[self._translation(source, each) for each in hypotheses] for source, hypotheses in found]

    def text_of(self, tokens: Tensor) -> str:
        """Plain text of (N,) token ids."""
        return self.pipeline.decode(self.vocabulary.target_dictionary.string(tokens))

    def _translation(self, source: Tensor, hypothesis: Hypothesis) -> Translation:
        source_dictionary, target_dictionary = self.vocabulary.source_dictionary, self.vocabulary.target_dictionary
        return Translation(
            text=self.text_of(hypothesis.tokens),
            score=hypothesis.score,
            tokens=tuple(target_dictionary[index] for index in hypothesis.tokens.tolist()),
            source_tokens=tuple(source_dictionary[index] for index in source.tolist()),
            attention=hypothesis.attention,
        )


class Batches:
    """Encoded lines in batches of similar length, and their results in the order of the lines.

    Args:
        lines: plain text.
        translator: encodes the lines.
        max_tokens: source tokens of a batch, padding included.
        on_long: what to do with a line of more tokens than the model takes: see :func:`fit_lengths`.

    Attributes:
        notes: sentences about long lines.
        sentences: lines that are translated; blank and skipped ones are not.

    Raises:
        UsageError: a line is too long, and `on_long` is ``error``.
    """

    def __init__(
        self, lines: Sequence[str], translator: Translator, max_tokens: int = MAX_TOKENS, on_long: str = "error"
    ) -> None:
        encoded = [translator.encode(line) for line in lines]
        self._encoded, self.notes = fit_lengths(encoded, translator.max_source, on_long)
        chosen = [index for index, line in enumerate(lines) if not is_blank(line) and index in self._encoded]
        lengths = [len(self._encoded[index]) for index in chosen]
        self._batches = [[chosen[i] for i in batch] for batch in batches_by_length(lengths, max_tokens)]
        self._lines, self.sentences = len(lines), len(chosen)

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[list[Tensor]]:
        for batch in self._batches:
            yield [self._encoded[index] for index in batch]

    def in_order(self, results: Iterable[Sequence[Result]], blank: Result) -> list[Result]:
        """The results of all lines.

        Args:
            results: for each batch, the results of its sources.
            blank: result of lines that are not translated.
        """
        found = [blank] * self._lines
        for batch, of_batch in zip(self._batches, results, strict=True):
            for index, result in zip(batch, of_batch, strict=True):
                found[index] = result
        return found


def batches_by_length(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Indices in batches of similar length, the longest first, none of more than `max_tokens` with padding."""
    batches: list[list[int]] = []
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batch and lengths[batch[0]] * (len(batch) + 1) > max_tokens:
            batches.append(batch)
            batch = []
        batch.append(index)
    return [*batches, batch] if batch else batches


def fit_lengths(
    encoded: Sequence[Tensor], limit: int, on_long: str, first: int = 1
) -> tuple[dict[int, Tensor], list[str]]:
    """Sources of no more tokens than the model takes, by index of line from 0 on, and sentences to warn with.

    Args:
        encoded: (M,) token ids with the end symbol, each.
        limit: most tokens of a source.
        on_long: ``error``; ``truncate``, which cuts a source to the limit; ``skip``, which leaves the line empty.
        first: number of the first line, for the sentences.

    Raises:
        UsageError: a source is too long, and `on_long` is ``error``.
    """
    fitted, notes = {}, []
    for index, tokens in enumerate(encoded):
        if len(tokens) > limit:
            note = f"line {first + index} has {len(tokens)} tokens (its end symbol counted), the model takes {limit}"
            if on_long == "error":
                raise UsageError(f"{note}. Split it, or choose --on-long truncate or --on-long skip.")
            notes.append(f"{note}: {'cut' if on_long == 'truncate' else 'left empty'}.")
            if on_long == "skip":
                continue
            tokens = torch.cat([tokens[: limit - 1], tokens[-1:]])
        fitted[index] = tokens
    return fitted, notes
