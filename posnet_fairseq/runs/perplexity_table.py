"""The table of language models: parameters, speed and perplexities of runs."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.table import Table

from posnet_fairseq.runs.record import last_attempt
from posnet_fairseq.runs.training_log import best_validation, training_speed
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.records import installed_versions


def perplexities(run: Path) -> tuple[float, float]:
    """The perplexity of the validation set at its best, and of the test set by fairseq-eval-lm; per sentencepiece.

    Raises:
        UsageError: fairseq-eval-lm left sentences out; or a log lacks them.
    """
    log = last_attempt(run / "eval.log")
    if "invalid sizes" in log:
        raise UsageError(f"{run / 'eval.log'}: fairseq-eval-lm left out blocks that are too long for the model.")
    test = re.search(r"Perplexity: ([\d.]+)", log) or _lacks(run / "eval.log", "the perplexity of the test set")
    return best_validation(run / "train.log")[0], float(test[1])


def parameters(run: Path) -> int:
    """The number of parameters, as fairseq-train counted them.

    Raises:
        UsageError: the log lacks them.
    """
    log = (run / "train.log").read_text(encoding="utf-8", errors="replace")
    found = re.search(r"num\. shared model params: ([\d,]+)", log) or _lacks(run / "train.log", "the parameters")
    return int(found[1].replace(",", ""))


def _lacks(log: Path, what: str) -> NoReturn:
    raise UsageError(f"{log} lacks {what}: it may have been cut. Remove the folder of the run and run again.")


def print_table(seed: int, runs: Sequence[Path]) -> None:
    """Print the table.

    Args:
        seed: of the runs.
        runs: their folders.

    Raises:
        UsageError: a log lacks a figure.
    """
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold underline")
    table.add_column("", no_wrap=True)
    for column in ("params", "train\ntokens/s", "perplexity\nvalidation", "perplexity\ntest"):
        table.add_column(column, justify="right", no_wrap=True)
    for run in runs:
        valid, test = perplexities(run)
        speed = training_speed(run / "train.log") or _lacks(run / "train.log", "the speed")
        figures = f"{parameters(run) / 1e6:.2f}M", f"{speed:,.0f}", f"{valid:.1f}", f"{test:.1f}"
        table.add_row(run.name.split("_s")[0], *figures)
    console = Console(highlight=False)
    console.print(table)
    console.print("Perplexity per sentencepiece piece, in blocks of 160 without context from the block before.")
    packages = installed_versions("posnet", "ve-fairseq", "fairseq-fixed", "torch")
    console.print(f"seed {seed}, {', '.join(map(' '.join, packages.items()))}")
