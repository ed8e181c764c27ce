"""The result of recipes/lm.sh: python recipes/lib/lm_table.py SEED RUN ..."""

import re
import sys
from pathlib import Path

from comparison import training_speed
from record import last_attempt, versions
from rich.console import Console
from rich.table import Table

from posnet_fairseq.runs.training_log import records
from posnet_fairseq.shared.command import command
from posnet_fairseq.shared.errors import UsageError


def perplexities(run):
    """Of the validation set at its best, and of the test set, as fairseq-eval-lm found it; per piece of a word.

    Raises:
        UsageError: fairseq-eval-lm left sentences out; or a log lacks them.
    """
    log = last_attempt(run / "eval.log")
    if "invalid sizes" in log:
        raise UsageError(f"{run / 'eval.log'}: fairseq-eval-lm left out blocks that are too long for the model.")
    test = re.search(r"Perplexity: ([\d.]+)", log) or _lacks(run / "eval.log", "the perplexity of the test set")
    valid = [values["valid_ppl"] for kind, values in records(run / "train.log") if kind == "valid"]
    return min(valid or _lacks(run / "train.log", "validation perplexities")), float(test[1])


def parameters(run):
    """As fairseq-train counted them.

    Raises:
        UsageError: the log lacks them.
    """
    log = (run / "train.log").read_text(encoding="utf-8", errors="replace")
    found = re.search(r"num\. shared model params: ([\d,]+)", log) or _lacks(run / "train.log", "the parameters")
    return int(found[1].replace(",", ""))


def _lacks(log, what):
    raise UsageError(f"{log} lacks {what}: it may have been cut. Remove the folder of the run and run again.")


@command
def main(arguments=None):
    """Print the table."""
    seed, *runs = arguments or sys.argv[1:]
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold underline")
    table.add_column("", no_wrap=True)
    for column in ("params", "train\ntokens/s", "perplexity\nvalidation", "perplexity\ntest"):
        table.add_column(column, justify="right", no_wrap=True)
    for run in map(Path, runs):
        valid, test = perplexities(run)
        speed = training_speed(run) or _lacks(run / "train.log", "the speed")
        figures = f"{parameters(run) / 1e6:.2f}M", f"{speed:,.0f}", f"{valid:.1f}", f"{test:.1f}"
        table.add_row(run.name.split("_s")[0], *figures)
    console = Console(highlight=False)
    console.print(table)
    console.print("Perplexity per sentencepiece piece, in blocks of 160 without context from the block before.")
    packages = versions("posnet", "ve-fairseq", "fairseq-fixed", "torch")
    console.print(f"seed {seed}, {', '.join(map(' '.join, packages))}")


if __name__ == "__main__":
    main()
