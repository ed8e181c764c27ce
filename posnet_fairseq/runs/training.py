"""The training of a run: checked before, watched meanwhile, its old checkpoints removed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posnet_fairseq.runs.command_stage import CommandStage, Work, do, settings_of
from posnet_fairseq.runs.training_log import records, remove_old
from posnet_fairseq.shared.processes import elsewhere
from posnet_fairseq.shared.progress import Bar, ProgressReporter
from posnet_fairseq.shared.records import Record

LINES = 10  # about progress, where there is no terminal
LENGTH = "--max-update"


@dataclass(frozen=True)
class Training:
    """A training: the command in front of the arguments of fairseq-train, and its processes on all machines."""

    launch: Sequence[str]
    arguments: Sequence[str]
    world: int = 1

    @property
    def command(self) -> list[str]:
        """The whole command."""
        return [*self.launch, *self.arguments]


def option(arguments: Sequence[str], name: str) -> str:
    """Return the value of an option among arguments of fairseq-train."""
    return arguments[arguments.index(name) + 1]


def progress(log: Path) -> tuple[int, dict[str, Any] | None]:
    """Return the number of updates done, and the values of the last validation or None."""
    updates, valid = 0, None
    for kind, values in records(log):
        updates = int(values["num_updates" if kind == "train_inner" else "valid_num_updates"])
        if kind == "valid":
            valid = values
    return updates, valid


def _watcher(
    stage: CommandStage, folder: Path, average: int, updates: int
) -> Callable[[ProgressReporter, Bar], Callable[[], None]]:
    """Return what makes a function that shows progress and removes old checkpoints whenever the log has grown."""

    def tenth(valid: Mapping[str, Any] | None) -> int:
        """Return how many of :data:`LINES` parts of the training a validation has behind it."""
        return int(valid["valid_num_updates"]) * LINES // updates if valid else 0

    def begin(report: ProgressReporter, bar: Bar) -> Callable[[], None]:
        done, valid = progress(stage.log)
        bar.go_on_from(done, stage.record.seconds)
        size, said = 0, tenth(valid)

        def look() -> None:
            nonlocal size, said
            if stage.log.stat().st_size == size:
                return
            size = stage.log.stat().st_size
            done, valid = progress(stage.log)
            bar.move_to(done)
            if valid and tenth(valid) > said:
                said = tenth(valid)
                left = f", {bar.time_left}" if bar.time_left else ""
                report.say(
                    f"{stage.run.name}: {int(valid['valid_num_updates']):,} of {updates:,} updates, validation "
                    f"perplexity {valid['valid_ppl']:.1f}{left}"
                )
            remove_old(folder, stage.log, average)

        return look

    return begin


def train(
    run: Path,
    training: Training,
    average: int,
    work: Work,
    places: Mapping[str, object],
    remedy: str,
    more: Mapping[str, str] | None = None,
) -> None:
    """Do the stage of a training, unless it is done. One that was done with fewer updates goes on.

    ``places`` and ``more`` are those of :func:`settings_of`; the remedy says what to do if settings have changed.
    """
    arguments = training.arguments
    folder, updates = Path(option(arguments, "--save-dir")), int(option(arguments, LENGTH))
    settings = settings_of(["fairseq-train", *arguments], more, places)
    stage = CommandStage(run, "train", training.command, settings=settings, remedy=remedy, growing=LENGTH)

    def prepare() -> None:
        from posnet_fairseq.runs import before_training  # imports torch

        others = [other / "checkpoints" for other in work.others]
        planned = before_training.Planned(arguments, average, training.world, others)
        added, remarks = elsewhere(before_training.check, planned)
        stage.command += added
        for remark in remarks:
            work.report.say(remark)

    stage.prepare = prepare
    if Record(run / "train.json").is_exceeded(LENGTH, updates):
        work.report.say(f"{run.name}: training continues from update {progress(stage.log)[0]:,} to {updates:,}")
    was_done = stage.record.finished
    do(stage, work, "updates", updates, _watcher(stage, folder, average, updates))
    remove_old(folder, stage.log, average)
    ended = progress(stage.log)[0]
    if ended < updates and not was_done:
        work.report.say(
            f"{run.name}: training stopped after {ended:,} updates: no better perplexity in the last "
            f"{option(arguments, '--patience')} validations (--patience)"
        )
