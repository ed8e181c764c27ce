"""The training of a run: python recipes/lib/training.py RUN train --average N [--setting NAME=VALUE] -- COMMAND ...

Like stage.py; besides, options and disk are checked before, checkpoints that are no longer needed are removed, and
progress is shown.
"""

import subprocess
import sys
from pathlib import Path

from checkpoints_kept import remove_old
from record import settings_of
from stage import Stage, do, end_with_recipe, parser

from posnet_fairseq.runs.training_log import records
from posnet_fairseq.shared.command import command
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.progress import ProgressReporter

LINES = 10  # about progress, where there is no terminal


class Watch:
    """What is done whenever the log has grown.

    Args:
        stage: the training.
        folder: its --save-dir.
        average: how many checkpoints will be averaged.
        updates: until its end.
        report: a :class:`posnet_fairseq.shared.progress.ProgressReporter`.
        bar: of the stage.
    """

    def __init__(self, stage, folder, average, updates, report, bar):
        self._stage, self._folder, self._average = stage, folder, average
        self._updates, self._report, self._bar = updates, report, bar
        self._size = self._said = 0
        bar.go_on_from(progress(stage.log)[0])

    def __call__(self):
        """Look."""
        size = self._stage.log.stat().st_size
        if size == self._size:
            return
        self._size = size
        done, valid = progress(self._stage.log)
        self._bar.move_to(done)
        updates = int(valid["valid_num_updates"]) if valid else 0
        if updates * LINES // self._updates > self._said:
            self._said = updates * LINES // self._updates
            self._report.say(
                f"{self._stage.run.name}: {updates:,} of {self._updates:,} updates, validation perplexity "
                f"{valid['valid_ppl']:.1f}"
            )
        remove_old(self._folder, self._stage.log, self._average)


def progress(log):
    """Updates done, and the values of the last validation, or None."""
    updates, valid = 0, None
    for kind, values in records(log):
        updates = int(values["num_updates" if kind == "train_inner" else "valid_num_updates"])
        if kind == "valid":
            valid = values
    return updates, valid


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
    line.add_argument("--world", type=int, default=1, help="processes, of all machines")
    options = line.parse_args(arguments)
    training = fairseq_arguments(options.command)
    places = {"RUN": options.run, "DATA": options.data}
    folder, updates = Path(option(training, "--save-dir")), int(option(training, "--max-update"))
    stage = Stage(
        options.run,
        options.name,
        options.command,
        settings=settings_of(["fairseq-train", *training], options.setting, places),
        remedy="Give this run a name of its own (NAME=...), or remove that folder.",
    )

    def prepare():
        check = [sys.executable, "-W", "ignore", Path(__file__).with_name("before_training.py")]
        numbers = [str(options.average), str(options.world)]
        done = subprocess.run([*check, folder, *numbers, *training], capture_output=True, text=True)
        if done.returncode:
            *_, last = done.stderr.strip().split("\n")
            raise UsageError(last.partition("error: ")[2] or last or "before_training.py was killed.")
        more, _, remarks = done.stdout.partition("\n")
        stage.command += more.split()
        if remarks.strip():
            ProgressReporter().say(remarks.strip())

    do(stage, "updates", updates, lambda *shown: Watch(stage, folder, options.average, updates, *shown), prepare)
    remove_old(folder, stage.log, options.average)


if __name__ == "__main__":
    end_with_recipe()
    main()
