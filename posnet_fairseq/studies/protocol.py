"""Protocols of studies: what is trained, with which settings and seeds, and how its translation is searched."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs

from posnet_eval.metrics import get_metric
from posnet_eval.metrics.base import FloatArray, Metric, MetricOptions, Segment
from posnet_eval.metrics.sacrebleu_metrics import Bleu
from posnet_fairseq.runs.parsers import check_known
from posnet_fairseq.shared.schema import read_yaml
from posnet_fairseq.text.tokenizers import Tokenizer

PROTOCOLS = Path(__file__).parent


class LiteratureBleu(Bleu):
    """BLEU of words as the literature's tokenizer splits them, and perhaps lowercases them, without sacreBLEU's."""

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


class Claim(Struct, frozen=True):
    """A claim of a paper, without a full stop, and what it expects of a system in comparison with another."""

    says: str
    source: str
    system: str
    expected: Literal["better", "worse", "equal"]
    other: str


class StudySystem(Struct, frozen=True):
    """Mixer, options of fairseq-train and seeds of a system."""

    mixer: str
    options: str
    seeds: tuple[int, ...]


class PublishedSystem(Struct, frozen=True):
    """A system that was trained elsewhere, or otherwise: BLEU as in the literature, by test set, and what is known."""

    says: str
    bleu: dict[str, float]
    updates: int | None = None
    perplexity: float | None = None


class Study(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A protocol, as its YAML file has it.

    Attributes:
        settings: texts of :class:`posnet_fairseq.runs.run_settings.RunSettings`, for all runs.
        prepare: arguments of posnet-prepare that make the folder of `settings`, where posnet-run cannot.
        beams: sizes, of which each run takes the one with the highest BLEU on the validation set.
        test_sets: what they have, by name.
        joined: numbers of neighboring sentences of the first test set that are joined to long inputs.
        literature: settings of the tokenizer that the literature scores with; None: there is none.
        published: systems that those of the study are shown beside.
        claims: that are tested, on the first test set.
        margin: differences in BLEU below it mean that systems are equally good.
    """

    name: str = ""
    settings: dict[str, str]
    prepare: str = ""
    beams: tuple[int, ...]
    baselines: tuple[str, str]
    systems: dict[str, StudySystem]
    test_sets: dict[str, str]
    joined: tuple[int, ...] = ()
    literature: dict[str, bool] | None = None
    published: tuple[PublishedSystem, ...] = ()
    claims: tuple[Claim, ...] = ()
    margin: float

    def metrics(self, language: str, lowercase: bool = False) -> dict[str, Metric]:
        """Return metrics of translations into a language: sacreBLEU's BLEU and chrF, and the literature's BLEU."""
        options = MetricOptions(language=language, lowercase=lowercase)
        metrics = {name: get_metric(name, options) for name in ("bleu", "chrf")}
        if self.literature is not None:
            splitting: dict[str, Any] = dict(self.literature)
            metrics[LiteratureBleu.name] = LiteratureBleu(Tokenizer(language, **splitting))
        return metrics


def known_studies() -> tuple[str, ...]:
    """Return the names of all studies."""
    return tuple(path.stem for path in sorted(PROTOCOLS.glob("*.yaml")))


def read_study(name: str) -> Study:
    """Return the protocol of a study."""
    check_known(name or "no study is named", name, known_studies())
    return structs.replace(read_yaml(PROTOCOLS / f"{name}.yaml", Study), name=name)
