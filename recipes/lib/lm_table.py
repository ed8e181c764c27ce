"""The result of recipes/lm.sh: python recipes/lib/lm_table.py SEED RUN ..."""

import re
import sys
from pathlib import Path

from comparison import training_speed
from record import last_attempt, versions
from rich.console import Console
from rich.table import Table

from posnet_fairseq.cli._run import command
from posnet_fairseq.errors import UsageError
from posnet_fairseq.training_log import records


def perplexities(run):
    """Of the validation set at its best, and of the test set, as fairseq-eval-lm found it; per piece of a word.

    Raises:
        UsageError: fairseq-eval-lm left sentences out.
    """
    log = last_attempt(run / "eval.log")
    if "invalid sizes" in log:
        raise UsageError(f"{run / 'eval.log'}: fairseq-eval-lm left out blocks that are too long for the model.")
    (test,) = re.findall(r"Perplexity: ([\d.]+)", log)
    valid = min(values["valid_ppl"] for kind, values in records(run / "train.log") if kind == "valid")
    return valid, float(test)


def parameters(run):
    """As fairseq-train counted them."""
    (count, *_) = re.findall(r"num\. shared model params: ([\d,]+)", (run / "train.log").read_text(encoding="utf-8"))
    return int(count.replace(",", ""))


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
        figures = f"{parameters(run) / 1e6:.2f}M", f"{training_speed(run):,.0f}", f"{valid:.1f}", f"{test:.1f}"
        table.add_row(run.name.split("_s")[0], *figures)
    console = Console(highlight=False)
    console.print(table)
    console.print("Perplexity per sentencepiece piece, in blocks of 160 without context from the block before.")
    packages = versions("posnet", "ve-fairseq", "fairseq-fixed", "torch")
    console.print(f"seed {seed}, {', '.join(map(' '.join, packages))}")


if __name__ == "__main__":
    main()
