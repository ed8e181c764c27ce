"""The plan of a comparison, as a command line, a configuration file or a Python call gives it."""

import argparse
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from posnet_eval.metrics import METRICS, get_metric
from posnet_eval.metrics.base import MetricOptions
from posnet_fairseq.shared.errors import UsageError, flag, option
from posnet_fairseq.shared.progress import shown
from posnet_fairseq.shared.schema import check_choice, check_range

RESAMPLES, TRIALS, SEED = 1000, 10_000, 12345  # sacreBLEU's
FEWEST = 40  # resamples from which on there is a 95% interval
MOST = 10**6  # resamples and trials
# Tests over sentences only, of which "bs" and "ar" have sacreBLEU's p.
TESTS = {"shift": "two-sided paired bootstrap", "bs": "paired bootstrap", "ar": "approximate randomization"}
SEEDS = "seeds"  # the test of sentences and seeds
SYMBOLS = ("†", "‡")  # mark a difference from the first baseline, from the second
# Settings of a plan that both a command line and a configuration file may have.
MODELS = ("bleurt_model", "comet_model", "comet_kiwi_model", "comet_encoder")
SETTINGS = ("metrics", "test", "resamples", "trials", "seed", "lowercase", "tokenize", "multi_reference", *MODELS)
MULTI_REFERENCE = ("mean", "max")  # of the scores that a segment has by each of its references
RUNNING = ("skip_missing", "cached_only", "cache", "device", "workers")  # settings of a command line alone
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
    """Texts that are parallel line by line."""

    __test__ = False  # pytest takes it for tests

    name: str  # in tables
    languages: tuple[str, str]  # source and target language, "" if not known
    source: Text | None
    references: tuple[Text, ...]
    sacrebleu_name: str  # of one of sacreBLEU's test sets, instead of source and references; or ""
    outputs: Mapping[str, tuple[Text, ...]]  # {system: one text for each run}
    groups: Text | None = None  # the group of each line, such as its domain

    def __post_init__(self) -> None:
        about = f"test set {self.name}"
        if bool(self.references or self.source is not None) == bool(self.sacrebleu_name):
            own = f"{option('reference')}, {option('source')} (alone for comet-kiwi) or both"
            raise UsageError(f"{about}: give either {own}, or {option('test_set')}, which brings both.")
        for texts, what in ((self.references, "reference"), *((runs, "run") for runs in self.outputs.values())):
            # A NUL is refused when the file is read.
            files = [text if "\0" in str(text) else os.path.realpath(text) for text in texts if isinstance(text, Path)]
            if len(set(files)) < len(files):
                of = " of a system" * (what == "run")
                raise UsageError(f"{about}: a file is given twice as a {what}{of}. Give each {what} once.")


@dataclass(frozen=True)
class Plan:
    """A comparison of systems to be made, and how; a UsageError if it is impossible."""

    systems: Mapping[str, str]  # {name: label}, in the order of tables
    test_sets: tuple[TestSet, ...]
    metrics: tuple[str, ...] = ("bleu", "chrf")
    baselines: tuple[str, ...] = ()  # no, one or two systems
    test: str | None = None  # a key of TESTS; None: of sentences and seeds if a system has several runs, else "shift"
    resamples: int = RESAMPLES  # of the bootstrap
    trials: int = TRIALS  # of approximate randomization
    seed: int = SEED  # of both
    # See MetricOptions; None: its default.
    lowercase: bool = False
    tokenize: str | None = None
    bleurt_model: str | None = None
    comet_model: str | None = None
    comet_kiwi_model: str | None = None
    comet_encoder: str | None = None
    multi_reference: str = MULTI_REFERENCE[0]  # of COMET and BLEURT
    columns: Mapping[str, Mapping[str, Fact]] = field(default_factory=dict)  # {title: {system: fact}}
    notes: tuple[str, ...] = ()  # sentences below the tables
    pictures: Mapping[str, str] = field(default_factory=dict)  # {title: picture as a data URI}, shown on the page
    skip_missing: bool = False  # leave out systems whose files are missing
    cached_only: bool = False  # compute no statistics
    cache: Path | None = None  # file of statistics; None: the default one, or none where that cannot be used
    device: str | None = None  # of COMET and BLEURT, as cuda:1; None: all GPUs, or the CPU if there are none
    workers: int = 1  # processes that count n-grams and edits

    def __post_init__(self) -> None:
        check_range(option("workers"), self.workers, 1, 1000, whole=True)
        labels = list(self.systems.values())
        if not labels or len(set(labels)) < len(labels):
            raise UsageError(f"systems {', '.join(labels) or 'none'}: give one or more, each with a label of its own.")
        _check_choice("metrics", self.metrics, METRICS, 1, len(METRICS))
        _check_choice("baselines", self.baselines, self.systems, 0, len(SYMBOLS))
        if self.test is not None:
            check_choice("test", self.test, TESTS)
        check_choice(option("multi_reference"), self.multi_reference, MULTI_REFERENCE)
        check_range("resamples", self.resamples, FEWEST, MOST, whole=True)
        check_range("trials", self.trials, 1, MOST, whole=True)
        check_range("seed", self.seed, 0, 10**30, whole=True)
        # What stands in tables is a line of visible text, and has titles that are not taken.
        names = [*self.systems, *self.systems.values(), *(test_set.name for test_set in self.test_sets)]
        facts = [str(fact) for facts in self.columns.values() for fact in facts.values()]
        for text in (*names, *self.columns, *self.pictures, *facts, *self.notes):
            if not text.strip() or not text.isprintable():
                raise UsageError(f"name, title, fact or note {text!r}: give visible characters, in one line.")
        if self.columns:  # without them no metric is imported
            taken = {get_metric(name, MetricOptions()).label for name in self.metrics} | set(ROW_COLUMNS)
            if titles := taken & self.columns.keys():
                raise UsageError(f"column {titles.pop()!r}: the report has one of this name. Choose another title.")


def _check_choice(what: str, chosen: tuple[str, ...], known: Collection[str], least: int, most: int) -> None:
    """Check that names are known and different, and how many there are."""
    if not set(chosen) <= set(known) or len(set(chosen)) < len(chosen) or not least <= len(chosen) <= most:
        names = ", ".join(chosen) or "none"
        raise UsageError(f"{what} {names}: choose from {', '.join(known)}; {least} to {most}, each once.")


def plan_of_one_test_set(
    outputs: Mapping[str, tuple[Text, ...]],
    references: tuple[Text, ...],
    source: Text | None,
    test_set: str | None,
    languages: str | None,
    groups: Text | None,
    **settings: Any,
) -> Plan:
    """Return a plan of systems {name: one text for each run} on one test set; settings are other attributes of it."""
    first = references[0] if references else source
    name = test_set or (" ".join(shown(first.stem).split()) if isinstance(first, Path) else "") or "test"
    found = TestSet(name, language_pair(languages), source, references, test_set or "", outputs, groups)
    systems = {system: system for system in outputs}
    return Plan(systems=systems, test_sets=(found,), **{"baselines": default_baselines(outputs), **settings})


def add_model_options(parser: argparse.ArgumentParser, names: Iterable[str]) -> None:
    """Add options of :data:`MODELS`, which are None unless they are given."""
    for name in names:
        metavar, text = "MODEL", f"name on the Hugging Face hub, or folder (default: {getattr(MetricOptions, name)})"
        if name == "comet_encoder":
            metavar = "FOLDER"
            text = "folder with tokenizer and configuration of COMET's and COMETKiwi's encoder (default: from the hub)"
        parser.add_argument(flag(name), metavar=metavar, help=text)


def metric_names(text: str) -> tuple[str, ...]:
    """Return the names of metrics that are between commas or spaces."""
    return tuple(text.lower().replace(",", " ").split())


def default_baselines(systems: Iterable[str]) -> tuple[str, ...]:
    """Return the first of several systems; none of a single one."""
    names = tuple(systems)
    return names[:1] if len(names) > 1 else ()


def language_pair(text: str | None) -> tuple[str, str]:
    """Return source and target language of a pair such as "en-de" or "pt-BR-en", ("", "") if none is given."""
    # A part that begins with a capital or a figure, as in pt-BR, is of the tag in front of it.
    parts = re.fullmatch(r"(.+?(?:-[A-Z0-9][^-]*)*)-(.+)", text or "")
    source, target = parts.groups() if parts else ("", "")
    if text and not (parts and text.isprintable()):
        raise UsageError(f"language pair {text!r}: give source and target as in en-de.")
    return source, target
