"""posnet-run: from data to scores, in stages, and comparisons of systems."""

import argparse
import importlib
import os
import signal
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from posnet_data_prep.datasets import DATASETS
from posnet_fairseq.runs.settings import Settings
from posnet_fairseq.shared.common_options import parsed_by
from posnet_fairseq.shared.errors import UsageError, nearest

USAGE = """posnet-run TARGET [OPTION ...]

TARGET:
  a dataset    prepare, train, average, precompute, translate, score:
{datasets}
  corpus       the same stages on any dataset: --data FOLDER, or --dataset NAME
  compare      trains several systems, with one or more seeds each, and compares them
  tune         searches for learning rate, dropout and clip distance of several systems
  study        the runs of a protocol, whose results are kept: convergence, multi30k
  quickstart   a Transformer and rPosNet on real text, on a CPU, in 12 to 25 minutes
  lm           trains language models on one text, and prints their perplexities

posnet-run TARGET --help lists its options, which may also come from a YAML file (--config FILE).
Data are written to ./data and runs to ./runs. Interrupt it at any time: the same command resumes it.

  posnet-run wmt14.en-de --mixer rposnet --size base --seed 1
  posnet-run wmt14.en-de --mixer rposnet train average
  posnet-run corpus --data data-bin/my-corpus --size iwslt
  posnet-run compare tables-2-3 --dataset wmt14.en-de --seeds 1,2,3
"""


@dataclass(frozen=True)
class Target:
    """What the first word of the command line names: a module, the class of its settings, and what takes them."""

    module: str
    settings: str
    function: str
    about: str  # for its --help
    defaults: dict[str, str] = field(default_factory=dict)  # texts of settings

    def read(self, name: str, words: list[str]) -> Settings:
        """Return the settings that words of the command line give."""
        return self.imported(self.settings).read(name, words, self.about, self.defaults)

    def imported(self, name: str) -> Any:
        """Return what has a name in its module."""
        return getattr(importlib.import_module(f"posnet_fairseq.{self.module}"), name)


TARGETS = {
    "corpus": Target(
        *("runs.single_run", "RunSettings", "run_stages"),
        "Train one system with one seed on a dataset and score its translation of the test set, in stages. The size "
        "sets the defaults of training and search.",
    ),
    "compare": Target(
        *("runs.compare", "ComparisonSettings", "compare"),
        "Train several systems with one or more seeds each, and compare them in one report.",
    ),
    "tune": Target(
        *("runs.tune", "TuneSettings", "tune"),
        "Choose learning rate, dropout and clip distance of several systems on the validation set, one after the "
        "other. The search starts with the first value of each.",
    ),
    "study": Target(
        *("studies.running", "StudySettings", "run_study"),
        "Make the runs of a study that have no result yet. Each run leaves a JSON file; posnet-plot study makes tables "
        "and pictures of these files.",
    ),
    "quickstart": Target(
        *("runs.compare", "QuickstartSettings", "quickstart"),
        "Train mixers side by side on interface texts, English to German, and compare them. Needs no GPU.",
    ),
    "lm": Target(
        *("runs.language_models", "LanguageModelSettings", "train_language_models"),
        "Train language models on one text, one after the other, and print their perplexities.",
    ),
}


def find_target(name: str) -> Target:
    """Return a target by its name."""
    if name in DATASETS:
        return replace(TARGETS["corpus"], defaults={"dataset": name, "size": DATASETS[name].size})
    if name not in TARGETS:
        known = (*TARGETS, *DATASETS)
        raise UsageError(f"{name}: there is no such target. Choose one of {', '.join(known)}.{nearest(name, known)}")
    return TARGETS[name]


def _set_up_processes() -> None:
    """Set what the commands of a run need: their programs, and threads and memory that suit training on CPUs."""
    # This environment's programs come first, whatever PATH says.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    # Threads that wait without spinning: two processes on two cores would otherwise slow each other down. And freed
    # memory is kept: giving it back to the system after every batch costs a CPU about 5% of training.
    os.environ |= {
        "OMP_WAIT_POLICY": "PASSIVE",
        "GOMP_SPINCOUNT": "0",
        "MALLOC_TRIM_THRESHOLD_": "1073741824",
        "MALLOC_MMAP_THRESHOLD_": "33554432",
    }


def end_by_signals() -> None:
    """Let signals end this process by an exception, which ends its commands, unless nohup ignores them."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, _: sys.exit(128 + number))


class _Parser(argparse.ArgumentParser):
    """Takes the target; what stands behind it is read by the target's own parser."""

    def format_help(self) -> str:
        """Return the targets, and examples."""
        return self.format_usage()

    def parse_args(  # type: ignore[override]  # argparse's overloads
        self, arguments: Sequence[str] | None = None, namespace: Any = None
    ) -> argparse.Namespace:
        """Take options that all commands have behind the target as well."""
        words = sys.argv[1:] if arguments is None else list(arguments)
        common = [word for word in words if word in ("--quiet", "--version")]
        return super().parse_args([*common, *(word for word in words if word not in common)], namespace)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and not all of the help, which is the usage."""
        raise UsageError(f"{message}. posnet-run --help lists the targets.")


def _parser() -> argparse.ArgumentParser:
    names = textwrap.TextWrapper(100, " " * 15, " " * 15, break_on_hyphens=False).fill(", ".join(DATASETS))
    about = "Train, translate and score, from data to scores in stages that resume."
    parser = _Parser(prog="posnet-run", usage=USAGE.format(datasets=names), description=about)
    target = parser.add_argument("target", nargs="?")
    vars(target)["completions"] = (*TARGETS, *DATASETS)  # no choices: an unknown one has an error of its own
    parser.add_argument("words", nargs=argparse.REMAINDER)
    return parser


@parsed_by(_parser)
def main(options: argparse.Namespace) -> None:
    """Entry point of posnet-run."""
    if options.target is None:
        print(_parser().format_help(), end="")
        return
    target = find_target(options.target)
    settings = target.read(options.target, options.words)
    if options.target in DATASETS and (named := getattr(settings, "dataset", None)) != options.target:
        raise UsageError(f"--dataset {named}: {options.target} is a dataset itself. Give only one of them.")
    _set_up_processes()
    end_by_signals()
    target.imported(target.function)(settings)


if __name__ == "__main__":
    main()
