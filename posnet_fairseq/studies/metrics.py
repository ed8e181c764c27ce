"""The metrics of a study."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from posnet_eval.metrics import get_metric
from posnet_eval.metrics.base import FloatArray, Metric, MetricOptions, Segment
from posnet_eval.metrics.bleu import Bleu
from posnet_fairseq.text.tokenizers import Tokenizer


class LiteratureBleu(Bleu):
    """BLEU of the words that a tokenizer makes of plain text, without a tokenizer of sacreBLEU's.

    Args:
        tokenizer: what the literature has split, and perhaps lowercased, its texts with.
    """

    name, label = "bleu_literature", "BLEU (lc, tok)"

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(MetricOptions(language=tokenizer.language, tokenize="none"))
        self._tokenizer = tokenizer

    def details(self) -> dict[str, str]:
        """Return sacreBLEU's signature with the form of the text."""
        changed = {"case": "lc"} if self._tokenizer.is_lowercase else {}
        return super().details() | changed | {"tok": f"{self._tokenizer.tokenizer} (sacremoses)"}

    def statistics(self, segments: Sequence[Segment]) -> Iterator[tuple[Sequence[int], FloatArray]]:
        """Compute the statistics of BLEU of the words."""
        split = self._tokenizer.split
        return super().statistics([Segment("", split(line), tuple(map(split, of))) for _, line, of in segments])


def metrics_of(language: str, literature: Mapping[str, Any] | None, lowercase: bool = False) -> dict[str, Metric]:
    """Return the metrics of a study by name: BLEU and chrF of sacreBLEU, and BLEU as in the literature.

    Args:
        literature: settings of the tokenizer of the literature; None: there is none.
        lowercase: ignore case, for data that are in lower case.
    """
    options = MetricOptions(language=language, lowercase=lowercase)
    found = {name: get_metric(name, options) for name in ("bleu", "chrf")}
    if literature is not None:
        found[LiteratureBleu.name] = LiteratureBleu(Tokenizer(language, **literature))
    return found
