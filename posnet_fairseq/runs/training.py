"""The training of a run: checked before, watched meanwhile, its old checkpoints removed."""

import itertools
import math
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posnet_fairseq.runs.command_stage import CommandStage, Work, do
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.processes import elsewhere
from posnet_fairseq.shared.progress import Bar, ProgressReporter
from posnet_fairseq.shared.schema import loads
from posnet_fairseq.shared.selection import best_and_following

LINES = 10  # about progress, where there is no terminal
GROWING = ("--updates", "--interval")  # the distance of a size's checkpoints depends on the length


@dataclass(frozen=True)
class Measure:
    """What a validation measures: its name in logs, in sentences, and whether more is better."""

    key: str
    name: str
    maximize: bool = False

    def best(self, values: Iterable[float]) -> float:
        """Return the best of values."""
        return (max if self.maximize else min)(values)


PERPLEXITY, BLEU = Measure("ppl", "perplexity"), Measure("bleu", "BLEU", maximize=True)
_RECORD = re.compile(r"\| INFO \| (train_inner|valid) \| (\{.*\})\s*$")
_NUMBERED = re.compile(r"checkpoint_\d+_(\d+)\.pt")
# checkpoint_last.pt, checkpoint_best.pt, and one that is being written; after the training, two thirds of the latter's
# room are taken by averaged.pt and precomputed.pt.
COPIES = 3


def records(path: Path | str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the kind, ``train_inner`` or ``valid``, and the values of every record in a log, numbers as floats.

    A line that is not written to its end yet, or is damaged, is left out. fairseq's cross_entropy logs no ``nll_loss``,
    because its ``loss`` is the same number: here it has both names.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        match = _RECORD.search(line)
        if match:
            try:
                values = loads(match.group(2))
            except ValueError:
                continue
            kind, prefix = match.group(1), "valid_" if match.group(1) == "valid" else ""
            if f"{prefix}loss" in values and f"{prefix}ppl" in values:  # other criteria than these log no perplexity
                values.setdefault(f"{prefix}nll_loss", values[f"{prefix}loss"])
            yield kind, {name: _number(value) for name, value in values.items()}


def training_speed(path: Path | str) -> float | None:
    """Return the median of target tokens a second in a log, of all processes together; None if it has none."""
    rates = [values["wps"] for kind, values in records(path) if kind == "train_inner"]
    return statistics.median(rates) if rates else None


def gpu_memory(log: str) -> float | None:
    """Return the bytes of a GPU that a training has taken at most, by its output; None if it had no GPU."""
    taken = []
    for attempt in re.split(r"^\$ ", log, flags=re.MULTILINE):  # each on a GPU of its own, perhaps
        free, total = (
            re.findall(pattern, attempt) for pattern in (r'"gb_free": "?([\d.]+)', r"total memory = ([\d.]+) GB")
        )
        if free and total:
            taken.append(float(total[0]) - min(map(float, free)))
    return max(taken) * 2**30 if taken else None


def cpu_seconds_per_update(path: Path | str) -> float | None:
    """Return CPU seconds of an update in a log, validations and checkpoints included; None if it does not have them.

    The start of the program does not count, nor does work that was lost with an interruption.
    """
    found = [
        (values["num_updates"], values["cpu"])
        for kind, values in records(path)
        if kind == "train_inner" and "cpu" in values
    ]
    steps = [(late[0] - early[0], late[1] - early[1]) for early, late in itertools.pairwise(found)]
    # A training that goes on counts CPU seconds from 0 again.
    steps = [step for step in steps if min(step) > 0]
    return sum(seconds for _, seconds in steps) / sum(updates for updates, _ in steps) if steps else None


def validations(path: Path | str, measure: Measure = PERPLEXITY) -> dict[int, float]:
    """Return the perplexity of the validation set by the number of updates, the later of updates that were repeated.

    That of a training that has diverged, which may be NaN, is infinite. ``measure`` may be another one.
    """
    key = f"valid_{measure.key}"
    found = {updates_of(kind, values): values[key] for kind, values in records(path) if kind == "valid"}
    return {updates: value if math.isfinite(value) else math.inf for updates, value in found.items()}


def best_validation(path: Path | str) -> tuple[float, int]:
    """Return the least perplexity of the validation set in a log, and the number of updates until then."""
    found = validations(path)
    if not found:
        raise UsageError(f"{path} lacks validation perplexities: it may have been cut. Remove its run and run again.")
    return min((perplexity, updates) for updates, perplexity in found.items())


def _number(value: Any) -> Any:
    try:
        return float(value)
    except (TypeError, ValueError):
        return value


def most_kept(average: int, numbered: int) -> int:
    """Return the largest number of checkpoints, copies included, that a training keeps at a time."""
    return min(2 * average + 1, numbered) + COPIES


def remove_old(folder: Path, log: Path, average: int, measure: Measure = PERPLEXITY) -> None:
    """Remove numbered checkpoints that posnet-average can no longer choose.

    It takes the best one on the validation set and the average - 1 that follow it, or the last ones where fewer follow:
    all of these are kept, and checkpoints that the log says nothing about: it may have been lost.
    """
    found = {path: _NUMBERED.fullmatch(path.name) for path in folder.glob("checkpoint_*.pt")}
    paths = {int(match[1]): path for path, match in found.items() if match}
    if len(paths) <= average:
        return
    valid, updates = validations(log, measure), sorted(paths)
    chosen = best_and_following([valid.get(number) for number in updates], average, measure.maximize)
    kept = {*(updates[index] for index in chosen), *updates[-average:]}
    for number in updates:
        if number in valid and number not in kept:
            paths[number].unlink()


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

    def value(self, name: str) -> str:
        """Return the value of an option, "" if it is not given."""
        return value_of(self.arguments, name)


def value_of(arguments: Sequence[str], name: str) -> str:
    """Return the value of an option among arguments, "" if it is not there."""
    return arguments[arguments.index(name) + 1] if name in arguments else ""


def progress(log: Path, measure: Measure = PERPLEXITY) -> tuple[int, int, float]:
    """Return the number of updates done, and that of the last validation, 0 if there was none, with its perplexity."""
    updates, validated, value = 0, 0, math.nan
    for kind, values in records(log):
        updates = updates_of(kind, values)
        if kind == "valid":
            validated, value = updates, values[f"valid_{measure.key}"]
    return updates, validated, value


def updates_of(kind: str, values: Mapping[str, Any]) -> int:
    """Return the number of updates that were done when a record of a log was written."""
    return int(values["num_updates" if kind == "train_inner" else "valid_num_updates"])


def since_the_beginning(found: Mapping[int, float], measure: Measure = PERPLEXITY) -> str:
    """Return what became of the perplexity of a fine-tuning, by updates; "" if the beginning was not validated."""
    later = {value: updates for updates, value in reversed([*found.items()]) if updates}
    if 0 not in found or not later:
        return ""
    beginning, best = found[0], measure.best(later)
    if measure.best((best, beginning)) != beginning:
        return (
            f"the validation {measure.name} was {beginning:.2f} at the beginning, and {best:.2f} at best, after "
            f"{later[best]:,} updates"
        )
    if best == beginning:
        return f"the validation {measure.name} was {beginning:.2f} at the beginning, and has not become better since"
    return (
        f"the training made the model worse: its validation {measure.name} was {beginning:.2f} at the beginning, and "
        f"since then {best:.2f} at best. The best checkpoint is checkpoint_1_0.pt, the beginning. Try a lower --lr, or "
        "keep the model that --init-from names"
    )


def _watcher(
    stage: CommandStage, folder: Path, average: int, updates: int, report: ProgressReporter, measure: Measure
) -> Callable[[Bar], None]:
    """Return a function that shows progress and removes old checkpoints whenever the log has grown."""
    size = said = 0
    is_beginning_said = False

    def look(bar: Bar) -> None:
        nonlocal size, said, is_beginning_said
        before, size = size, stage.log.stat().st_size
        if size == before:
            return
        done, validated, value = progress(stage.log, measure)
        if validated == 0 and not math.isnan(value) and not is_beginning_said:
            report.say(f"{stage.run.name}: validation {measure.name} {value:.2f} at the beginning")
            is_beginning_said = True
        # How many of LINES parts of the training the last validation has behind it.
        part = validated * LINES // updates
        if before:
            bar.move_to(done)
        else:
            bar.go_on_from(done, stage.record.seconds)
        if before and part > said:
            left = f", {bar.time_left}" if bar.time_left else ""
            report.say(
                f"{stage.run.name}: {validated:,} of {updates:,} updates, validation {measure.name} {value:.1f}{left}"
            )
        said = part
        remove_old(folder, stage.log, average, measure)

    return look


def train(stage: CommandStage, training: Training, average: int, work: Work) -> bool:
    """Do the stage of a training, unless it is done; return whether it was. One with fewer updates goes on.

    It keeps the checkpoints that an average of `average` checkpoints may need.
    """
    folder, updates = Path(training.value("--save-dir")), int(training.value("--max-update"))
    stage.command = training.command
    name = stage.run.name
    measure = BLEU if training.value("--best-checkpoint-metric") == BLEU.key else PERPLEXITY

    def prepare() -> None:
        from posnet_fairseq.runs import before_training  # imports torch

        others = [other / "checkpoints" for other in work.others]
        checked = work.checked or elsewhere(before_training.check_trainings, {name: training.arguments})[name]
        added, remarks = before_training.make_ready(training, checked, average, others)
        stage.command = [*training.command, *added]
        for remark in remarks:
            work.report.say(remark)

    def measured() -> dict[str, float]:
        found, what = validations(stage.log, measure), measure.name.lower()
        if 0 not in found and not (found and measure is BLEU):
            return {}
        beginning = {f"{what}_at_the_beginning": found[0]} if 0 in found else {}
        return beginning | {f"best_{what}": measure.best(found.values())}

    stage.prepare, stage.measure = prepare, measured
    if stage.grows:
        work.report.say(f"{name}: training continues from update {progress(stage.log)[0]:,} to {updates:,}")
    was_done = do(stage, work, "updates", updates, _watcher(stage, folder, average, updates, work.report, measure))
    if not was_done:  # one that is done may have been averaged over more, and its checkpoints cannot be made again
        remove_old(folder, stage.log, average, measure)
    found = validations(stage.log, measure)
    if not was_done and (sentence := since_the_beginning(found, measure)):
        work.report.say(f"{name}: {sentence}")
    elif not was_done and found and measure is BLEU:
        best = max(found, key=lambda number: found[number])
        work.report.say(f"{name}: best checkpoint: validation BLEU {found[best]:.2f} after {best:,} updates")
    ended = progress(stage.log)[0]
    if ended < updates and not was_done:
        work.report.say(
            f"{name}: training stopped after {ended:,} updates: no better {measure.name} in the last "
            f"{training.value('--patience')} validations (--patience)"
        )
    return was_done
