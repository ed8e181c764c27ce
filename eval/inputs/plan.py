"""What is to be scored, as a command line or a configuration file says it."""

from dataclasses import dataclass, field
from pathlib import Path

from posnet_eval.metrics import METRICS, get_metric
from posnet_eval.metrics.base import MetricOptions
from posnet_eval.report.data import CSV_HEADER
from posnet_eval.statistics.results import SYMBOLS
from posnet_fairseq.shared.errors import UsageError

RESAMPLES, TRIALS, SEED = 1000, 10_000, 12345  # sacreBLEU's
FEWEST = 40  # resamples from which on there is a 95% interval
MOST = 10**6  # resamples and trials
TESTS = {"bs": "paired bootstrap", "ar": "approximate randomisation"}


@dataclass(frozen=True)
class TestSet:
    """Texts that belong together line by line.

    Attributes:
        name: as shown.
        languages: of source and target, "" if not known.
        source: file, or None.
        references: files, one for each reference translation.
        known: name of one of sacreBLEU's test sets, instead of files.
        outputs: {system: files, one for each run}.
    """

    __test__ = False  # pytest takes it for tests

    name: str
    languages: tuple[str, str] = ("", "")
    source: Path | None = None
    references: tuple[Path, ...] = ()
    known: str = ""
    outputs: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """A comparison to make.

    Attributes:
        systems: {name: label}, in the order of tables.
        test_sets: one or more.
        metrics: names.
        baselines: none, one or two names of systems.
        test: "bs" (paired bootstrap) or "ar" (approximate randomisation).
        resamples, trials, seed: of the tests.
        lowercase, tokenize, bleurt_model, comet_model, comet_encoder: see
            :class:`posnet_eval.metrics.base.MetricOptions`; None: its default.
        columns: {title: {system: text or number}}, facts that tables show before the scores; none by default.

    Raises:
        UsageError: something does not fit together.
    """

    systems: dict
    test_sets: tuple[TestSet, ...]
    metrics: tuple[str, ...] = ("bleu", "chrf")
    baselines: tuple[str, ...] = ()
    test: str = "bs"
    resamples: int = RESAMPLES
    trials: int = TRIALS
    seed: int = SEED
    lowercase: bool = False
    tokenize: str | None = None
    bleurt_model: str | None = None
    comet_model: str | None = None
    comet_encoder: str | None = None
    columns: dict = field(default_factory=dict)

    def __post_init__(self):
        for metric in self.metrics:
            if metric not in METRICS:
                raise UsageError(f"metric {metric!r}: there is none of this name. Choose from {', '.join(METRICS)}.")
        if not self.metrics:
            raise UsageError(f"no metric is named. Choose from {', '.join(METRICS)}.")
        if len(set(self.metrics)) < len(self.metrics):
            raise UsageError(f"metrics {', '.join(self.metrics)}: name each one once.")
        for baseline in self.baselines:
            if baseline not in self.systems:
                raise UsageError(
                    f"baseline {baseline!r} is not among the systems. Choose from {', '.join(self.systems)}."
                )
        if len(self.baselines) > len(SYMBOLS):
            raise UsageError(f"baselines {', '.join(self.baselines)}: give two at most, there are two marks.")
        if len(set(self.baselines)) < len(self.baselines):
            raise UsageError(f"both baselines are {self.baselines[0]!r}. Name two systems, or one baseline.")
        if self.test not in TESTS:
            raise UsageError(f"test {self.test!r}: there is none of this name. Choose bs or ar.")
        for name in ("resamples", "trials"):
            least = FEWEST if name == "resamples" else 1
            if not least <= getattr(self, name) <= MOST:
                raise UsageError(f"{name} {getattr(self, name)}: give {least} to {MOST:,}.")
        labels = list(self.systems.values())
        if len(set(labels)) < len(labels):
            raise UsageError(f"the labels of the systems are {', '.join(labels)}. Give each its own.")
        for test_set in self.test_sets:
            for system, paths in test_set.outputs.items():
                if len(set(paths)) < len(paths):
                    raise UsageError(f"system {system}: a file is given twice as a run. Give each run once.")
        names = [*self.systems, *self.systems.values(), *(test_set.name for test_set in self.test_sets)]
        for name in names:
            if not name.strip() or not name.isprintable():
                raise UsageError(f"{name!r} as a name or label: give one of visible characters, in one line.")
        if self.seed < 0:
            raise UsageError(f"seed {self.seed}: give 0 or more.")
        self._check_columns()

    def _check_columns(self):
        if not self.columns:
            return  # nothing is imported for their sake
        taken = {get_metric(name, MetricOptions()).label for name in self.metrics} | set(CSV_HEADER)
        for title, facts in self.columns.items():
            if title in taken:
                raise UsageError(f"column {title!r}: the report has one of this name. Choose another title.")
            for text in (title, *map(str, facts.values())):
                if not text.strip() or not text.isprintable():
                    raise UsageError(f"{text!r} in column {title!r}: give visible characters, in one line.")
