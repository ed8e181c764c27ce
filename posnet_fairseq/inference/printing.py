"""The lines that posnet-translate prints of translations: text, lists of Moses, scores, JSON."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from posnet_fairseq.inference.translation import Translation


@dataclass(frozen=True)
class Printing:
    """What is printed of each translation, as the options of the command say."""

    nbest: int | None = None
    alignment: str | None = None  # between subwords or words
    json: bool = False
    per_token: bool = False
    only_scores: bool = False

    def lines(self, number: int, translations: Sequence[Translation]) -> list[str]:
        """Return the lines of output for line `number` of the input, from 0."""
        shown = translations if self.nbest else translations[:1]
        return [self._json(number, each) if self.json else self._text(number, each) for each in shown]

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
        values = {name: _plain(getattr(translation, name)) for name in names + aligned * bool(self.alignment)}
        return json.dumps({"line": number, **values}, ensure_ascii=False)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: numbers of 6 digits, null for what is not scored or aligned."""
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return [_plain(each) for each in value] if isinstance(value, tuple) else value
