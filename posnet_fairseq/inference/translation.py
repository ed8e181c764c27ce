"""A translation with its score, tokens and words, and what each of them is aligned to; and how it is printed."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from posnet_fairseq.text.subwords import words_of_pieces


@dataclass(frozen=True)
class Translation:
    """A translation of a line.

    Words are those that subwords are pieces of: what spaces separate for sentencepiece, and for BPE the words of the
    tokenizer that the text was split by first, as Moses escapes them.

    Attributes:
        text: plain text.
        score: log probability over length to the power of the length penalty; NaN of a line that is skipped.
        tokens: N tokens of the target, the end symbol ``</s>`` included.
        source_tokens: M tokens of the source, the end symbol included; of a language model's beginning, without.
        attention: (N, M) cross-attention weights of the last layer, the mean of its heads; each row sums to 1, in
            ``differential`` to 1 - λ. None if they were not asked for, and of lines that are blank or skipped.
        alignment: (source, target) for each target token but the end symbol: the number of the source token, from 0 and
            other than tag and end symbol, that it gives the largest weight. None without weights.
        token_scores: N log probabilities of the tokens, as the search counts them: after temperature and penalties.
        unmet: terms or constraints that the text lacks, one that it should have twice and has once once. None if there
            were neither.
        tag: the first source token, if it is the tag of a target language; no word. None if there is none.
    """

    text: str
    score: float
    tokens: tuple[str, ...]
    source_tokens: tuple[str, ...]
    attention: Tensor | None = field(default=None, compare=False)
    alignment: tuple[tuple[int, int], ...] | None = field(default=None, compare=False)
    token_scores: tuple[float, ...] = field(default=(), compare=False)
    unmet: tuple[str, ...] | None = None
    tag: str | None = None

    @property
    def log_probability(self) -> float:
        """The log probability of all tokens."""
        return sum(self.token_scores) if self.tokens else self.score

    @property
    def words(self) -> tuple[str, ...]:
        """Words of the target, without the end symbol."""
        return tuple(words_of_pieces(self.tokens[:-1])[0])

    @property
    def source_words(self) -> tuple[str, ...]:
        """Words of the source, without tag and end symbol."""
        return tuple(words_of_pieces(self._source_pieces)[0])

    @property
    def _source_pieces(self) -> tuple[str, ...]:
        tokens = self.source_tokens[self.tag is not None :]
        return tokens[:-1] if tokens[-1:] == ("</s>",) else tokens

    @property
    def word_scores(self) -> tuple[float, ...]:
        """The log probability of each word: the sum over its tokens. That of the end symbol is not among them."""
        words, numbers = words_of_pieces(self.tokens[:-1])
        sums = [0.0] * len(words)
        for word, score in zip(numbers, self.token_scores, strict=False):
            sums[word] += score
        return tuple(sums)

    @property
    def word_attention(self) -> Tensor | None:
        """Weights of shape (words, source words): summed over a source word's tokens, averaged over a word's tokens.

        The source's tag and end symbol have no column, so a row sums to 1 minus their weight. None without
        :attr:`attention`.
        """
        if self.attention is None:
            return None
        (words, rows), (source_words, columns) = map(words_of_pieces, (self.tokens[:-1], self._source_pieces))
        weights = self.attention.new_zeros(len(words), len(source_words))
        for row, of_token in zip(rows, self.attention[:, self.tag is not None : -1], strict=False):
            weights[row].index_add_(0, torch.tensor(columns, dtype=torch.long), of_token / rows.count(row))
        return weights

    @property
    def word_alignment(self) -> tuple[tuple[int, int], ...] | None:
        """(source, target) for each word of the target: the source word that most of its tokens are aligned to.

        Ties go to the source word that the earliest of these tokens is aligned to. None without :attr:`alignment`.
        """
        if self.alignment is None:
            return None
        (_, numbers), (_, source_numbers) = map(words_of_pieces, (self.tokens[:-1], self._source_pieces))
        links: dict[int, Counter[int]] = {}
        for source, target in self.alignment:
            links.setdefault(numbers[target], Counter())[source_numbers[source - (self.tag is not None)]] += 1
        return tuple((found.most_common(1)[0][0], word) for word, found in links.items())

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes as plain values for JSON, without those that are None; a score that is NaN is None."""
        values = {name: value for name, value in vars(self).items() if value is not None}
        values["score"] = None if math.isnan(self.score) else self.score
        return values if self.attention is None else values | {"attention": self.attention.tolist()}


# What a blank line is translated to, without the model; and what stands for a line that is skipped.
BLANK = Translation("", 0.0, (), ())
UNSCORED = Translation("", float("nan"), (), ())


def token_alignment(attention: Tensor, first: int = 0) -> tuple[tuple[int, int], ...]:
    """Return :attr:`Translation.alignment`, for (N, M) weights of tokens and end symbols, and `first`, 1 with a tag."""
    weights = attention[:-1, first:-1]
    if not weights.size(1):  # the source is an end symbol
        return ()
    return tuple((first + source, target) for target, source in enumerate(weights.argmax(dim=1).tolist()))


@dataclass(frozen=True)
class Printing:
    """What posnet-translate prints of translations: text, lists of Moses, scores, JSON."""

    nbest: int | None = None
    alignment: str | None = None  # between subwords or words
    json: bool = False
    per_token: bool = False
    only_scores: bool = False

    def lines(self, number: int, translations: Sequence[Translation]) -> list[str]:
        """Return the lines of output for line `number` of the input, from 0."""
        return [self._json(number, each) if self.json else self._text(number, each) for each in translations]

    def _text(self, number: int, translation: Translation) -> str:
        score = f"{translation.score:.6f}"
        fields = [score if self.only_scores else translation.text]
        if self.nbest is not None:
            fields = [str(number), translation.text, score]
        if self.per_token:
            fields += [" ".join(translation.tokens), " ".join(f"{each:.6f}" for each in translation.token_scores)]
        if self.alignment:
            pairs = translation.word_alignment if self.alignment == "words" else translation.alignment
            fields.append(" ".join(f"{source}-{target}" for source, target in pairs or ()))
        return " ||| ".join(fields)

    def _json(self, number: int, translation: Translation) -> str:
        names = ["text", "score", "log_probability", "words", "word_scores"]
        aligned = ["source_words", "word_alignment"]
        if self.per_token:
            names += ["tokens", "token_scores"]
            aligned += ["source_tokens", "alignment"]
        if translation.unmet is not None:
            names.append("unmet")
        values = {name: _plain(getattr(translation, name)) for name in names + aligned * bool(self.alignment)}
        return json.dumps({"line": number, **values}, ensure_ascii=False)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: numbers of 6 digits, null for what is not scored or aligned."""
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return [_plain(each) for each in value] if isinstance(value, tuple) else value
