"""Lines of plain text to translations, with a search between them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import torch
from torch import Tensor

from posnet_fairseq.inference.arguments import MAX_TOKENS
from posnet_fairseq.inference.search.beam import BeamSearch
from posnet_fairseq.inference.search.hypotheses import Hypothesis
from posnet_fairseq.shared.errors import UsageError, option
from posnet_fairseq.shared.files import is_blank
from posnet_fairseq.text.dictionary import Vocabulary
from posnet_fairseq.text.pipeline import TextPipeline

Result = TypeVar("Result")


@dataclass(frozen=True)
class Translation:
    """A translation of a line.

    Attributes:
        text: plain text.
        score: log probability over length to the power of the length penalty.
        tokens: N tokens of the target, the end symbol ``</s>`` included.
        source_tokens: M tokens of the source, the end symbol included.
        attention: (N, M) cross-attention weights of the last layer, the mean of its heads; each row sums to 1. None
            if they were not asked for.
        alignment: (source, target) for each target token but the end symbol: the number of the source token, from 0 and
            other than the end symbol, that it gives the largest weight. None without weights.
    """

    text: str
    score: float
    tokens: tuple[str, ...]
    source_tokens: tuple[str, ...]
    attention: Tensor | None = field(default=None, compare=False)
    alignment: tuple[tuple[int, int], ...] | None = field(default=None, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes that are not None as plain values, which JSON can have."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.attention is not None:
            values["attention"] = self.attention.tolist()
        return {name: value for name, value in values.items() if value is not None}


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

    def __init__(self, search: BeamSearch, vocabulary: Vocabulary, pipeline: TextPipeline, max_source: int) -> None:
        self.search, self.vocabulary, self.pipeline, self.max_source = search, vocabulary, pipeline, max_source

    def encode(self, line: str) -> Tensor:
        """(M,) token ids of a line of plain text, with the end symbol."""
        return self.vocabulary.encode(self.pipeline.encode(line))

    def encode_prefix(self, line: str, number: int = 1) -> Tensor:
        """(P,) token ids of plain text that a translation begins with, without end symbol.

        Args:
            line: the text.
            number: of the line, for the error's text.

        Raises:
            UsageError: the model's vocabulary lacks a part of it.
        """
        dictionary, tokens = self.vocabulary.target_dictionary, self.pipeline.encode_target(line)
        unknown = [token.removesuffix("@@").lstrip("▁") for token in tokens.split() if token not in dictionary]
        if unknown:
            words = " ".join(dict.fromkeys(unknown))
            raise UsageError(
                f"{option('prefix')}: line {number} has {words}, which the model's vocabulary lacks, so that no "
                "translation has it. Leave it out."
            )
        return dictionary.encode_line(tokens)[:-1]

    def translate(self, batch: "Batch") -> list[list[Translation]]:
        """Return translations of each source of a batch, best first."""
        if not batch.sources:
            return []
        found = zip(batch.sources, self.search(batch.sources, batch.prefixes), strict=True)
        return [[self._translation(source, each) for each in hypotheses] for source, hypotheses in found]

    def check(self, batches: "Batches") -> None:
        """Refuse batches before the first is translated.

        Raises:
            UsageError: the settings of the search or the prefixes leave a batch no translation.
        """
        for batch in batches:
            self.search.check(batch.sources, batch.prefixes)

    def skips(self, line: str) -> bool:
        """Whether a line is left empty."""
        return is_blank(line)

    def size(self, source: Tensor) -> int:
        """Tokens that a source counts for in a batch."""
        return len(source)

    def fit(self, encoded: Sequence[Tensor], on_long: str, first: int = 1) -> tuple[dict[int, Tensor], list[str]]:
        """See :func:`fit_lengths`."""
        return fit_lengths(encoded, self.max_source, on_long, first)

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
            alignment=None if hypothesis.attention is None else _alignment(hypothesis.attention),
        )


def _alignment(attention: Tensor) -> tuple[tuple[int, int], ...]:
    """As :attr:`Translation.alignment`, for (N, M) weights of tokens and end symbols."""
    if attention.size(1) < 2:  # the source is an end symbol
        return ()
    return tuple((source, target) for target, source in enumerate(attention[:-1, :-1].argmax(dim=1).tolist()))


@dataclass(frozen=True)
class Batch:
    """Encoded lines that are translated together.

    Attributes:
        sources: (M,) token ids with the end symbol, each.
        prefixes: (P,) token ids that each translation begins with, without end symbol; None if none is given.
    """

    sources: list[Tensor]
    prefixes: list[Tensor] | None = None


class Batches:
    """Encoded lines in batches of similar length, and their results in the order of the lines.

    Args:
        lines: plain text.
        translator: encodes the lines.
        max_tokens: source tokens of a batch, padding included.
        on_long: what to do with a line of more tokens than the model takes: see :func:`fit_lengths`.
        prefixes: plain text that the translation of each line begins with, if any is given.
        first: number of the first line, for errors and notes.

    Attributes:
        notes: sentences about lines that are too long, or have what the vocabulary lacks.
        sentences: lines that are translated; blank and skipped ones are not.

    Raises:
        UsageError: a line is too long, and `on_long` is ``error``; the numbers of prefixes and lines differ; or a
            prefix has what the vocabulary lacks.
    """

    def __init__(
        self,
        lines: Sequence[str],
        translator: Translator,
        max_tokens: int = MAX_TOKENS,
        on_long: str = "error",
        prefixes: Sequence[str] | None = None,
        first: int = 1,
    ) -> None:
        if prefixes is not None and len(prefixes) != len(lines):
            raise UsageError(
                f"{option('prefix')}: {len(prefixes)} are given for {len(lines)} lines. Give one for each, which may "
                "be empty."
            )
        encoded = [translator.encode(line) for line in lines]
        self._encoded, self.notes = translator.fit(encoded, on_long, first)
        chosen = [index for index, line in enumerate(lines) if not translator.skips(line) and index in self._encoded]
        lengths = [translator.size(self._encoded[index]) for index in chosen]
        self._batches = [[chosen[i] for i in batch] for batch in batches_by_length(lengths, max_tokens)]
        self._lines, self.sentences = len(lines), len(chosen)
        self._prefixes = None
        if prefixes is not None:
            self._prefixes = {i: translator.encode_prefix(prefixes[i], first + i) for i in chosen}

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        for batch in self._batches:
            prefixes = None if self._prefixes is None else [self._prefixes[index] for index in batch]
            yield Batch([self._encoded[index] for index in batch], prefixes)

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
                raise UsageError(
                    f"{note}. Split it, or choose {option('on_long')} truncate or {option('on_long')} skip."
                )
            notes.append(f"{note}: {'cut' if on_long == 'truncate' else 'left empty'}.")
            if on_long == "skip":
                continue
            tokens = torch.cat([tokens[: limit - 1], tokens[-1:]])
        fitted[index] = tokens
    return fitted, notes
