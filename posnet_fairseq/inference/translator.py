"""Lines of plain text to translations, or beginnings to whole texts, with a search between them; given translations."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, ClassVar

import torch
from torch import Tensor

from posnet_fairseq.inference.options import MAX_TOKENS
from posnet_fairseq.inference.search.beam import BeamSearch
from posnet_fairseq.inference.search.constraints import Paths
from posnet_fairseq.inference.search.hypotheses import Hypothesis
from posnet_fairseq.inference.translation import BLANK, UNSCORED, Translation, token_alignment
from posnet_fairseq.shared.errors import UsageError, counted, option
from posnet_fairseq.shared.files import is_blank
from posnet_fairseq.shared.processes import give_memory_back
from posnet_fairseq.text.dictionary import Vocabulary
from posnet_fairseq.text.pipeline import TextPipeline
from posnet_fairseq.text.terms import normal_term, unmet

# Sources and what their translations begin with, by index of line, and notes on some lines.
Encoded = tuple[dict[int, Tensor], dict[int, Tensor] | None, list[str]]


@dataclass(frozen=True)
class Batch:
    """Encoded lines that are translated together, and what each translation begins with, if that is given."""

    sources: list[Tensor]  # (M,) token ids with the end symbol, each
    prefixes: list[Tensor] | None = None  # (P,) token ids without end symbol, each; or whole translations to score
    constraints: list[list[Paths]] | None = None  # one or more for each

    def __reduce__(self) -> tuple[Any, ...]:
        """Other processes get the values: a tensor would be an open file for as long as it is there."""
        prefixes = None if self.prefixes is None else [prefix.numpy() for prefix in self.prefixes]
        return _batch_of, ([source.numpy() for source in self.sources], prefixes, self.constraints)


def _batch_of(sources: list[Any], prefixes: list[Any] | None, constraints: list[list[Paths]] | None) -> Batch:
    return Batch([*map(torch.from_numpy, sources)], prefixes and [*map(torch.from_numpy, prefixes)], constraints)


@dataclass
class Translator:
    """A search between plain texts.

    Attributes:
        max_source: most tokens of a source, the end symbol included.
        second_input: option that gives a second text for each line.
        blank: stands for the translation of a line that is not translated.
        skipped: what is said of a line that is too long.
    """

    search: BeamSearch
    vocabulary: Vocabulary
    pipeline: TextPipeline
    max_source: int
    second_input: ClassVar = "prefix"
    blank: ClassVar = BLANK
    skipped: ClassVar = "left empty"

    def encode(self, line: str) -> Tensor:
        """Return (M,) token ids of a line of plain text, with the end symbol."""
        return self.vocabulary.source_dictionary.encode_line(self.pipeline.encode(line))

    def encode_prefix(self, line: str, number: int) -> Tensor:
        """Return (P,) token ids that the translation of line `number` begins with, without end symbol."""
        dictionary, tokens = self.vocabulary.target_dictionary, self.encode_target(line)
        ids = dictionary.encode_line(tokens)[:-1]
        pairs = zip(tokens.split(), ids.tolist(), strict=True)
        unknown = [token.removesuffix("@@").lstrip("▁") for token, index in pairs if index == dictionary.unk()]
        if unknown:
            words = " ".join(dict.fromkeys(unknown))
            raise UsageError(
                f"{option('prefix')}: line {number} has {words}, which the model's vocabulary lacks, so that no "
                "translation has it. Leave it out."
            )
        return ids

    def encode_constraints(self, texts: Iterable[str]) -> dict[str, Paths]:
        """Return the token ids that each text has within a translation; refuse texts that no translation has."""
        dictionary, found, lacking, others = self.vocabulary.target_dictionary, dict[str, Paths](), [], []
        for text in dict.fromkeys(texts):
            paths = [dictionary.ids_of(tokens)[:-1] for tokens in self.pipeline.encode_within(text)]
            found[text] = [path for path in paths if path and dictionary.unk() not in path]
            if not found[text]:
                lacking.append(repr(text))
            elif normal_term(decoded := self.pipeline.decode(dictionary.string(found[text][0]))) != text:
                others.append(f"{text!r} as {decoded!r}")
        for some, problem in (
            (lacking, "the model's vocabulary lacks a part of {}, which translations must contain. Leave it out."),
            (others, "the model writes {}, which translations must contain. Give what the model writes."),
        ):
            if some:
                more = f" and {len(some) - 10:,} others" * (len(some) > 10)
                raise UsageError(problem.format(f"{', '.join(some[:10])}{more}"))
        return found

    def encode_target(self, line: str) -> str:
        """Return tokens of plain text of the target language, without spaces around the line."""
        return self.pipeline.encode_target(self.pipeline.parts(line)[1])

    def spaces_around(self, line: str, second: str | None) -> tuple[str, str]:
        """Return what stands before and after the translation of a line; `second` is its second text."""
        before, _, after = self.pipeline.parts(line)
        return before, after

    def translate(self, batch: Batch) -> list[list[Translation]]:
        """Return translations of each source of a batch, best first."""
        if not batch.sources:
            return []
        found = zip(batch.sources, self.search(batch.sources, batch.prefixes, batch.constraints), strict=True)
        translations = [[self._translation(source, each) for each in hypotheses] for source, hypotheses in found]
        give_memory_back()
        return translations

    def encode_all(
        self, lines: Sequence[str], prefixes: Sequence[str] | None, on_long: str, numbers: Sequence[int]
    ) -> Encoded:
        """Return sources and prefixes of the lines that are translated, by index of line, and notes on some lines.

        Notes are on lines that are too long, and on those with unknown parts. Arguments are those of :class:`Batches`.
        """
        fitted, notes = self._fit([self.encode(line) for line in lines], on_long, numbers, self.max_source)
        # Some subword models have no token for a line such as "▁".
        sources = {i: tokens for i, tokens in fitted.items() if len(tokens) > 1 and not is_blank(lines[i])}
        notes += _note_on_unknown(sources, self.vocabulary.source_dictionary.unk(), numbers)
        notes += self._note_on_long(sources, numbers)
        if prefixes is None:
            return sources, None, notes
        return sources, {index: self.encode_prefix(prefixes[index], numbers[index]) for index in sources}, notes

    def size(self, source: Tensor, prefix: Tensor | None) -> int:
        """Return the tokens that a source counts for in a batch, without what its translation begins with."""
        return len(source)

    def _fit(
        self, encoded: Sequence[Tensor], on_long: str, numbers: Sequence[int], limit: int, of_line: str = ""
    ) -> tuple[dict[int, Tensor], list[str]]:
        """Return texts of at most `limit` tokens, (M,) each, by index of line, and notes on the others."""
        fitted, notes = {}, []
        for index, tokens in enumerate(encoded):
            if len(tokens) > limit:
                note = (
                    f"{of_line}line {numbers[index]} has {len(tokens)} tokens (its end symbol counted), the model "
                    f"takes {limit}"
                )
                if on_long == "error":
                    others = f"{option('on_long', 'truncate')} or {option('on_long', 'skip')}"
                    raise UsageError(f"{note}. Split it, or choose {others}.")
                notes.append(f"{note}: {'cut' if on_long == 'truncate' else self.skipped}.")
                if on_long == "skip":
                    continue
                tokens = torch.cat([tokens[: limit - 1], tokens[-1:]])
            fitted[index] = tokens
        return fitted, notes

    def _note_on_long(self, sources: Mapping[int, Tensor], numbers: Sequence[int]) -> list[str]:
        """Return a note on the lines, by index, that are longer than nearly all in training, if there are any."""
        usual = self.pipeline.usual_length
        long = [str(numbers[index]) for index, tokens in sources.items() if usual and len(tokens) > usual]
        if not long:
            return []
        return [
            f"{_lines_by(long)}: longer than 99.9% of the training lines, which have at most {usual} tokens (the end "
            "symbol counted). --split-sentences splits lines of several sentences"
        ]

    def _translation(self, source: Tensor, hypothesis: Hypothesis) -> Translation:
        source_dictionary, target_dictionary = self.vocabulary.source_dictionary, self.vocabulary.target_dictionary
        source_tokens = tuple(source_dictionary[index] for index in source.tolist())
        has_tag, attention = source_tokens[:1] == (self.pipeline.tag,), hypothesis.attention
        return Translation(
            text=self.pipeline.decode(target_dictionary.string(hypothesis.tokens)),
            score=hypothesis.score,
            tokens=tuple(target_dictionary[index] for index in hypothesis.tokens.tolist()),
            source_tokens=source_tokens,
            attention=attention,
            alignment=None if attention is None else token_alignment(attention, first=int(has_tag)),
            token_scores=hypothesis.token_scores,
            tag=self.pipeline.tag if has_tag else None,
        )


@dataclass
class Scorer(Translator):
    """Given translations in the place of found ones, of at most `max_target` tokens, the end symbol included."""

    max_target: int
    second_input = "score_translations"
    blank = UNSCORED
    skipped = "not scored"

    def encode_all(
        self, lines: Sequence[str], prefixes: Sequence[str] | None, on_long: str, numbers: Sequence[int]
    ) -> Encoded:
        """Return sources and translations of the lines, also blank ones; other lines are too long, and skipped."""
        dictionary = self.vocabulary.target_dictionary
        targets = [dictionary.encode_line(self.encode_target(line)) for line in prefixes or ()]
        sources, notes = self._fit([self.encode(line) for line in lines], on_long, numbers, self.max_source)
        fitted, more = self._fit(targets, on_long, numbers, self.max_target, "the translation of ")
        unknown = _note_on_unknown(sources, self.vocabulary.source_dictionary.unk(), numbers)
        unknown += _note_on_unknown(dict(enumerate(targets)), dictionary.unk(), numbers, "translations of ")
        both = [index for index in sources if index in fitted]
        return {i: sources[i] for i in both}, {i: fitted[i] for i in both}, [*notes, *more, *unknown]

    def spaces_around(self, line: str, second: str | None) -> tuple[str, str]:
        """Return what stands before and after a given translation, the second text."""
        return super().spaces_around(second or "", None)

    def size(self, source: Tensor, prefix: Tensor | None) -> int:
        """Return the tokens of the longer one of source and translation."""
        return max(len(source), 0 if prefix is None else len(prefix))


@dataclass
class TextGenerator(Translator):
    """A search between beginnings and texts; a blank line is the beginning of any text.

    In a batch a text counts with the `new_tokens` that it is continued by at most, about.
    """

    new_tokens: int

    def size(self, source: Tensor, prefix: Tensor | None) -> int:
        """Return the tokens that the text counts for in a batch."""
        return min(len(source) + self.new_tokens, self.max_source)

    def encode_all(
        self, lines: Sequence[str], prefixes: Sequence[str] | None, on_long: str, numbers: Sequence[int]
    ) -> Encoded:
        """Return (P,) token ids of each beginning, without end symbol, and a note on those with unknown parts, if any.

        One that is too long is refused.
        """
        encoded = [self.encode(line)[:-1] for line in lines]
        for number, tokens in zip(numbers, encoded, strict=True):
            if len(tokens) > self.max_source:
                raise UsageError(
                    f"line {number} has {len(tokens)} tokens, and the model's texts have {self.max_source} at most. "
                    "Shorten it."
                )
        beginnings = dict(enumerate(encoded))
        return beginnings, None, _note_on_unknown(beginnings, self.vocabulary.target_dictionary.unk(), numbers)


def _note_on_unknown(encoded: Mapping[int, Tensor], unk: int, numbers: Sequence[int], of_lines: str = "") -> list[str]:
    """Return a note on the lines, by index, with unknown tokens, if there are any."""
    unknown = [str(numbers[index]) for index, tokens in encoded.items() if unk in tokens]
    if not unknown:
        return []
    return [f"{of_lines}{_lines_by(unknown)}: the model's vocabulary lacks a part, which becomes <unk>"]


def _lines_by(numbers: Sequence[str]) -> str:
    """Return "line 5" or "lines 1, 2", of many the first ten."""
    numbers = list(dict.fromkeys(numbers))  # several sentences may be of one line
    return f"{'line' if len(numbers) == 1 else 'lines'} {', '.join(numbers[:10])}{' ...' * (len(numbers) > 10)}"


class Batches:
    """Encoded lines in batches of similar length, and their results in the order of the lines.

    A batch has at most `max_tokens` source tokens, padding included, or one longer line. `prefixes` are plain texts
    that the translations begin with, or for a :class:`Scorer` the translations; `numbers` are those of the lines, from
    1 on by default, for errors and :attr:`notes`. With `on_long` ``error`` a line of more tokens than the model takes
    is refused, ``truncate`` cuts it, and ``skip`` leaves it out. `constraints` are texts that each translation must
    contain: lines that have some are in other batches than those that have none.
    """

    def __init__(
        self,
        lines: Sequence[str],
        translator: Translator,
        max_tokens: int = MAX_TOKENS,
        on_long: str = "error",
        prefixes: Sequence[str] | None = None,
        numbers: Sequence[int] | None = None,
        constraints: Sequence[Sequence[str]] | None = None,
    ) -> None:
        if prefixes is not None and len(prefixes) != len(lines):
            raise UsageError(
                f"{option(translator.second_input)}: {len(prefixes)} given for {counted(len(lines), 'line')}. "
                "Give one for each, which may be empty."
            )
        numbers = numbers or range(1, len(lines) + 1)
        self._sources, self._prefixes, self.notes = translator.encode_all(lines, prefixes, on_long, numbers)
        second, self._constraints, self._edges = self._prefixes or {}, constraints, translator.pipeline.edges
        if constraints is not None and len(constraints) != len(lines):
            given = counted(len(constraints), "list")
            raise UsageError(f"{option('constraints')}: {given} for {counted(len(lines), 'line')}. Give one for each.")
        self._paths = translator.encode_constraints(chain.from_iterable(constraints or ()))
        self._batches = []
        for is_constrained in (False, True):
            chosen = [index for index in self._sources if bool(constraints and constraints[index]) == is_constrained]
            lengths = [translator.size(self._sources[index], second.get(index)) for index in chosen]
            self._batches += [[chosen[i] for i in batch] for batch in batches_by_length(lengths, max_tokens)]
        second_texts: Sequence[str | None] = prefixes or [None] * len(lines)
        self._around = [*map(translator.spaces_around, lines, second_texts)]
        self._left_out = [translator.blank if is_blank(line) else UNSCORED for line in lines]

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        for batch in self._batches:
            prefixes = None if self._prefixes is None else [self._prefixes[index] for index in batch]
            of_lines = [self._constraints[index] for index in batch] if self._constraints else [()]
            constraints = [[self._paths[text] for text in of_line] for of_line in of_lines] if of_lines[0] else None
            yield Batch([self._sources[index] for index in batch], prefixes, constraints)

    def in_order(self, results: Iterable[Sequence[list[Translation]]]) -> list[list[Translation]]:
        """Return the translations of all lines, from those of each batch, between the spaces around the lines."""
        found = [[each] for each in self._left_out]
        for batch, of_batch in zip(self._batches, results, strict=True):
            for index, result in zip(batch, of_batch, strict=True):
                before, after = self._around[index]
                found[index] = result
                if before or after:
                    found[index] = [replace(each, text=f"{before}{each.text}{after}") for each in result]
        if self._constraints is None:
            return found
        return [
            [replace(each, unmet=unmet(wanted, each.text, self._edges)) for each in several]
            for wanted, several in zip(self._constraints, found, strict=True)
        ]


def batches_by_length(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Return indices in batches of similar length, the longest first.

    None has more than `max_tokens` with padding, but for a longer line, which is a batch of its own.
    """
    batches: list[list[int]] = []
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batch and lengths[batch[0]] * (len(batch) + 1) > max_tokens:
            batches.append(batch)
            batch = []
        batch.append(index)
    return [*batches, batch] if batch else batches
