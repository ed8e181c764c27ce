"""Lines of plain text to translations, or beginnings to whole texts, with a search between them."""

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


@dataclass(frozen=True)
class Batch:
    """Encoded lines that are translated together, and what each translation begins with, if that is given."""

    sources: list[Tensor]  # (M,) token ids with the end symbol, each
    prefixes: list[Tensor] | None = None  # (P,) token ids without end symbol, each


class Translator:
    """A search between plain texts; sources have at most `max_source` tokens, the end symbol included."""

    def __init__(self, search: BeamSearch, vocabulary: Vocabulary, pipeline: TextPipeline, max_source: int) -> None:
        self.search, self.vocabulary, self.pipeline, self.max_source = search, vocabulary, pipeline, max_source

    def encode(self, line: str) -> Tensor:
        """Return (M,) token ids of a line of plain text, with the end symbol."""
        return self.vocabulary.encode(self.pipeline.encode(line))

    def encode_prefix(self, line: str, number: int) -> Tensor:
        """Return (P,) token ids that the translation of line `number` begins with, without end symbol."""
        dictionary, tokens = self.vocabulary.target_dictionary, self.pipeline.encode_target(line)
        unknown = [token.removesuffix("@@").lstrip("▁") for token in tokens.split() if token not in dictionary]
        if unknown:
            words = " ".join(dict.fromkeys(unknown))
            raise UsageError(
                f"{option('prefix')}: line {number} has {words}, which the model's vocabulary lacks, so that no "
                "translation has it. Leave it out."
            )
        return dictionary.encode_line(tokens)[:-1]

    def translate(self, batch: Batch) -> list[list[Translation]]:
        """Return translations of each source of a batch, best first."""
        if not batch.sources:
            return []
        found = zip(batch.sources, self.search(batch.sources, batch.prefixes), strict=True)
        return [[self._translation(source, each) for each in hypotheses] for source, hypotheses in found]

    def skips(self, line: str) -> bool:
        """Return whether a line is left empty."""
        return is_blank(line)

    def size(self, source: Tensor) -> int:
        """Return the tokens that a source counts for in a batch."""
        return len(source)

    def fit(self, encoded: Sequence[Tensor], on_long: str, first: int = 1) -> tuple[dict[int, Tensor], list[str]]:
        """Return sources (M,) of no more tokens than the model takes, by index of line, and notes on the others.

        With `on_long` ``error`` a longer one is refused, ``truncate`` cuts it, and ``skip`` leaves it out.
        """
        fitted, notes, limit = {}, [], self.max_source
        for index, tokens in enumerate(encoded):
            if len(tokens) > limit:
                note = (
                    f"line {first + index} has {len(tokens)} tokens (its end symbol counted), the model takes {limit}"
                )
                if on_long == "error":
                    others = f"{option('on_long', 'truncate')} or {option('on_long', 'skip')}"
                    raise UsageError(f"{note}. Split it, or choose {others}.")
                notes.append(f"{note}: {'cut' if on_long == 'truncate' else 'left empty'}.")
                if on_long == "skip":
                    continue
                tokens = torch.cat([tokens[: limit - 1], tokens[-1:]])
            fitted[index] = tokens
        return fitted, notes

    def _translation(self, source: Tensor, hypothesis: Hypothesis) -> Translation:
        source_dictionary, target_dictionary = self.vocabulary.source_dictionary, self.vocabulary.target_dictionary
        return Translation(
            text=self.pipeline.decode(target_dictionary.string(hypothesis.tokens)),
            score=hypothesis.score,
            tokens=tuple(target_dictionary[index] for index in hypothesis.tokens.tolist()),
            source_tokens=tuple(source_dictionary[index] for index in source.tolist()),
            attention=hypothesis.attention,
            alignment=None if hypothesis.attention is None else _alignment(hypothesis.attention),
        )


def _alignment(attention: Tensor) -> tuple[tuple[int, int], ...]:
    """Return :attr:`Translation.alignment`, for (N, M) weights of tokens and end symbols."""
    if attention.size(1) < 2:  # the source is an end symbol
        return ()
    return tuple((source, target) for target, source in enumerate(attention[:-1, :-1].argmax(dim=1).tolist()))


class TextGenerator(Translator):
    """A search between beginnings and texts; a blank line is the beginning of any text.

    In a batch a text counts with the `new_tokens` that it is continued by at most, about.
    """

    def __init__(
        self, search: BeamSearch, vocabulary: Vocabulary, pipeline: TextPipeline, max_tokens: int, new_tokens: int
    ) -> None:
        super().__init__(search, vocabulary, pipeline, max_tokens)
        self._new_tokens = new_tokens

    def encode(self, line: str) -> Tensor:
        """Return (P,) token ids of a line of plain text, without the end symbol."""
        return super().encode(line)[:-1]

    def skips(self, line: str) -> bool:
        """Return whether a line is left empty: none is."""
        return False

    def size(self, source: Tensor) -> int:
        """Return the tokens that the text counts for in a batch."""
        return min(len(source) + self._new_tokens, self.max_source)

    def fit(self, encoded: Sequence[Tensor], on_long: str, first: int = 1) -> tuple[dict[int, Tensor], list[str]]:
        """Return the beginnings by index of line, from 0 on, and a note on those with unknown parts, if any."""
        for number, tokens in enumerate(encoded, start=first):
            if len(tokens) > self.max_source:
                raise UsageError(
                    f"line {number} has {len(tokens)} tokens, and the model's texts have {self.max_source} at most. "
                    "Shorten it."
                )
        unk = self.vocabulary.target_dictionary.unk()
        unknown = [str(first + index) for index, tokens in enumerate(encoded) if unk in tokens]
        if not unknown:
            return dict(enumerate(encoded)), []
        which = f"{'line' if len(unknown) == 1 else 'lines'} {', '.join(unknown[:10])}{' ...' * (len(unknown) > 10)}"
        return dict(enumerate(encoded)), [f"{which}: the model's vocabulary lacks a part, which becomes <unk>"]


class Batches:
    """Encoded lines in batches of similar length, and their results in the order of the lines.

    Args:
        lines: plain text.
        translator: encodes the lines.
        max_tokens: source tokens of a batch, padding included.
        on_long: see :meth:`Translator.fit`.
        prefixes: plain text that the translation of each line begins with, if any is given.
        first: number of the first line, for errors and :attr:`notes` on lines.
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
        encoded, self.notes = translator.fit([translator.encode(line) for line in lines], on_long, first)
        chosen = [index for index, line in enumerate(lines) if not translator.skips(line) and index in encoded]
        lengths = [translator.size(encoded[index]) for index in chosen]
        self._batches = [[chosen[i] for i in batch] for batch in batches_by_length(lengths, max_tokens)]
        self._lines, self._encoded = len(lines), encoded
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
        """Return the results of all lines, from those of each batch; those of lines not translated are `blank`."""
        found = [blank] * self._lines
        for batch, of_batch in zip(self._batches, results, strict=True):
            for index, result in zip(batch, of_batch, strict=True):
                found[index] = result
        return found


def batches_by_length(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Return indices in batches of similar length, the longest first, none of more than `max_tokens` with padding."""
    batches: list[list[int]] = []
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batch and lengths[batch[0]] * (len(batch) + 1) > max_tokens:
            batches.append(batch)
            batch = []
        batch.append(index)
    return [*batches, batch] if batch else batches
