"""The plan of a comparison, as a command line, a configuration file or a Python call gives it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from posnet_eval.metrics import METRICS, check_metric, get_metric
from posnet_eval.metrics.base import MetricOptions
from posnet_fairseq.shared.errors import UsageError

RESAMPLES, TRIALS, SEED = 1000, 10_000, 12345  # sacreBLEU's
FEWEST = 40  # resamples from which on there is a 95% interval
MOST = 10**6  # resamples and trials
TESTS = {"bs": "paired bootstrap", "ar": "approximate randomisation"}  # of sentences only
SEEDS = "seeds"  # the test of sentences and seeds
SYMBOLS = ("†", "‡")  # mark a difference from the first baseline, from the second
# Columns of the results as rows; facts about systems follow and need titles of their own.
ROW_COLUMNS = (
    "test_set", "system", "label", "metric", "score", "low", "high", "half_width", "deviation", "runs",
    "baseline", "difference", "difference_low", "difference_high", "p", "p_shift", "win_rate", "mark", "signature",
)  # fmt: skip

Lines = tuple[str, ...]
Text = Path | Lines  # a file, or its lines
Fact = str | int | float  # about a system, beside its scores


@dataclass(frozen=True)
class TestSet:
    """Texts that are parallel line by line.

    Attributes:
        name: name in tables.
        languages: source and target language, "" if not known.
        source: source text, or None.
        references: reference translations.
        sacrebleu_name: name of one of sacreBLEU's test sets, instead of `source` and `references`; or "".
        outputs: {system: one text for each run}.
    """

    __test__ = False  # pytest takes it for tests

    name: str
    languages: tuple[str, str] = ("", "")
    source: Text | None = None
    references: tuple[Text, ...] = ()
    sacrebleu_name: str = ""
    outputs: Mapping[str, tuple[Text, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """A comparison of systems to be made.

    Attributes:
        systems: {name: label}, in the order of tables.
        test_sets: one or more.
        metrics: names of metrics.
        baselines: names of no, one or two systems.
        test: "bs" (paired bootstrap) or "ar" (approximate randomisation), over sentences only; None: over sentences and
            seeds if a system has several runs, else "bs".
        resamples: number of resamples of the bootstrap.
        trials: number of trials of approximate randomisation.
        seed: seed of both.
        lowercase, tokenize, bleurt_model, comet_model, comet_encoder: see
            :class:`posnet_eval.metrics.base.MetricOptions`; None: its default.
        columns: {title: {system: text or number}}, facts that tables show before the scores.
        notes: sentences that stand below the tables.
        pictures: {title: picture as a data URI}, which the page shows.

    Raises:
        UsageError: a value is not allowed, or values contradict each other.
    """

    systems: Mapping[str, str]
    test_sets: tuple[TestSet, ...]
    metrics: tuple[str, ...] = ("bleu", "chrf")
    baselines: tuple[str, ...] = ()
    test: str | None = None
    resamples: int = RESAMPLES
    trials: int = TRIALS
    seed: int = SEED
    lowercase: bool = False
    tokenize: str | None = None
    bleurt_model: str | None = None
    comet_model: str | None = None
    comet_encoder: str | None = None
    columns: Mapping[str, Mapping[str, Fact]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    pictures: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._check_metrics()
        self._check_baselines()
        self._check_test()
        self._check_names()
        if self.seed < 0:
            raise UsageError(f"seed {self.seed}: give 0 or more.")
        self._check_columns()
        for title in self.pictures:
            if not title.strip() or not title.isprintable():
                raise UsageError(f"picture {title!r}: give its title visible characters, in one line.")
        for note in self.notes:
            if not note.strip() or not note.isprintable():
                raise UsageError(f"note {note!r}: give visible characters, in one line.")

    def _check_metrics(self) -> None:
        for metric in self.metrics:
            check_metric(metric)
        if not self.metrics:
            raise UsageError(f"no metric is named. Choose from {', '.join(METRICS)}.")
        if len(set(self.metrics)) < len(self.metrics):
            raise UsageError(f"metrics {', '.join(self.metrics)}: name each one once.")

    def _check_baselines(self) -> None:
        for baseline in self.baselines:
            if baseline not in self.systems:
                raise UsageError(
                    f"baseline {baseline!r} is not among the systems. Choose from {', '.join(self.systems)}."
                )
        if len(self.baselines) > len(SYMBOLS):
            raise UsageError(f"baselines {', '.join(self.baselines)}: give two at most, there are two marks.")
        if len(set(self.baselines)) < len(self.baselines):
            raise UsageError(f"both baselines are {self.baselines[0]!r}. Name two systems, or one baseline.")

    def _check_test(self) -> None:
        if self.test not in (None, *TESTS):
            raise UsageError(f"test {self.test!r}: there is none of this name. Choose bs or ar, or leave it out.")
        for name, number, least in (("resamples", self.resamples, FEWEST), ("trials", self.trials, 1)):
            if not least <= number <= MOST:
                raise UsageError(f"{name} {number}: give {least} to {MOST:,}.")

    def _check_names(self) -> None:
        labels = list(self.systems.values())
        if len(set(labels)) < len(labels):
            raise UsageError(f"the labels of the systems are {', '.join(labels)}. Give each its own.")
        for test_set in self.test_sets:
            for system, runs in test_set.outputs.items():
                files = [run for run in runs if isinstance(run, Path)]
                if len(set(files)) < len(files):
                    raise UsageError(f"system {system}: a file is given twice as a run. Give each run once.")
        names = [*self.systems, *self.systems.values(), *(test_set.name for test_set in self.test_sets)]
        for name in names:
            if not name.strip() or not name.isprintable():
                raise UsageError(f"{name!r} as a name or label: give one of visible characters, in one line.")

    def _check_columns(self) -> None:
        if not self.columns:
            return  # without them no metric is imported
        taken = {get_metric(name, MetricOptions()).label for name in self.metrics} | set(ROW_COLUMNS)
        for title, facts in self.columns.items():
            if title in taken:
                raise UsageError(f"column {title!r}: the report has one of this name. Choose another title.")
            for text in (title, *map(str, facts.values())):
                if not text.strip() or not text.isprintable():
                    raise UsageError(f"{text!r} in column {title!r}: give visible characters, in one line.")


def plan_of_one_test_set(
    outputs: Mapping[str, tuple[Text, ...]],
    references: tuple[Text, ...] = (),
    source: Text | None = None,
    test_set: str = "",
    languages: str = "",
    **settings: Any,
) -> Plan:
    """Return a plan of systems on one test set.

    Args:
        outputs: {system: one text for each run}.
        references: reference translations.
        source: source text, or None.
        test_set: name of one of sacreBLEU's test sets, instead of `references` and `source`; or "".
        languages: pair of languages, as "en-de"; or "".
        settings: other attributes of the plan.

    Raises:
        UsageError: arguments contradict each other or have values that are not allowed.
    """
    if bool(references) == bool(test_set):
        raise UsageError("give either --reference or --test-set.")
    if source is not None and test_set:
        raise UsageError("--source beside --test-set: a test set brings its own. Leave one out.")
    name = test_set or (isinstance(references[0], Path) and references[0].stem) or "test"
    pair = language_pair(languages) if languages else ("", "")
    return Plan(
        systems={system: system for system in outputs},
        test_sets=(TestSet(name, pair, source, references, test_set, outputs),),
        **{"baselines": default_baselines(outputs), **settings},
    )


def default_baselines(systems: Iterable[str]) -> tuple[str, ...]:
    """Return the first of several systems; none of a single one."""
    names = tuple(systems)
    return names[:1] if len(names) > 1 else ()


def language_pair(text: str) -> tuple[str, str]:
    """Return source and target language of a pair such as "en-de".

    Raises:
        UsageError: `text` is not a pair of languages.
    """
    source, dash, target = text.partition("-")
    if not (source and dash and target and text.isprintable()):
        raise UsageError(f"language pair {text!r}: give source and target as in en-de.")
    return source, target
