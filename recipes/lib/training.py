"""The training of a run: python recipes/lib/training.py RUN train --average N [--setting NAME=VALUE] -- COMMAND ...

Like stage.py; besides, options and disk are checked before, checkpoints that are no longer needed are removed, and
progress is shown.
"""

import signal
import subprocess
import sys
from pathlib import Path

from checkpoints_kept import remove_old
from stage import Stage, parser

from posnet_fairseq.cli._run import command
from posnet_fairseq.errors import UsageError
from posnet_fairseq.progress import Report
from posnet_fairseq.training_log import records

LINES = 10  # about progress, where there is no terminal


class Watch:
    """What is done whenever the log has grown.

    Args:
        stage: the training.
        folder: its --save-dir.
        average: how many checkpoints will be averaged.
        updates: until its end.
        report: a :class:`posnet_fairseq.progress.Report`.
        bar: of the stage.
    """

    def __init__(self, stage, folder, average, updates, report, bar):
        self._stage, self._folder, self._average = stage, folder, average
        self._updates, self._report, self._bar = updates, report, bar
        self._size = self._said = 0
        self._perplexity = None
        bar.go_on_from(progress(stage.log)[0])

    def __call__(self):
        """Look."""
        size = self._stage.log.stat().st_size
        if size == self._size:
            return
        self._size = size
        updates, perplexity = progress(self._stage.log)
        self._bar.move_to(updates)
        part = updates * LINES // self._updates
        if perplexity != self._perplexity and part > self._said:
            self._said, self._perplexity = part, perplexity
            self._report.say(
                f"{self._stage.run.name}: {updates:,} of {self._updates:,} updates, validation perplexity "
                f"{perplexity:.1f}"
            )
        remove_old(self._folder, self._stage.log, self._average)


def progress(log):
    """Updates done, and the last validation perplexity, or None."""
    updates, perplexity = 0, None
    for kind, values in records(log):
        updates = int(values["num_updates" if kind == "train_inner" else "valid_num_updates"])
        if kind == "valid":
            perplexity = values["valid_ppl"]
    return updates, perplexity


def option(training, name):
    """The value of an option among arguments of fairseq-train."""
    return training[training.index(name) + 1]


def fairseq_arguments(training):
    """Those of fairseq-train, without what launches it."""
    (start,) = [i for i, argument in enumerate(training) if argument.endswith(("fairseq-train", "rank.py"))]
    return training[start + 1 :]


@command
def main(arguments=None):
    """Train."""
    line = parser(__doc__)
    line.add_argument("--average", type=int, required=True, help="how many checkpoints will be averaged")
    options = line.parse_args(arguments)
    training = fairseq_arguments(options.command)
    folder, updates = Path(option(training, "--save-dir")), int(option(training, "--max-update"))
    stage = Stage(options.run, options.name, options.command, options.made, options.setting)
    report = Report()
    if stage.done:
        report.say(f"{stage.run.name}: train is done")
        return

    def prepare():
        check = [sys.executable, "-W", "ignore", Path(__file__).with_name("before_training.py")]
        done = subprocess.run([*check, folder, str(options.average), *training], capture_output=True, text=True)
        if done.returncode:
            raise UsageError(done.stderr.strip().split("\n")[-1].partition("error: ")[2])
        if done.stdout:
            report.say(done.stdout)

    with report.stage(f"{stage.run.name}: train", "updates", updates) as bar:
        stage.do(Watch(stage, folder, options.average, updates, report, bar), prepare)
    remove_old(folder, stage.log, options.average)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # stop the training, too
    main()
