"""Learning rate, dropout and clip distance of several systems, chosen on the validation set from the same values."""

import dataclasses
import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import to_builtins

from posnet_fairseq.runs.command_stage import Diverged
from posnet_fairseq.runs.compare import SystemsSettings, job
from posnet_fairseq.runs.devices import shares
from posnet_fairseq.runs.jobs import do_all
from posnet_fairseq.runs.parsers import fraction, rate, several, whole_number
from posnet_fairseq.runs.run_settings import RunSettings, by_name
from posnet_fairseq.runs.settings import refuse, setting
from posnet_fairseq.runs.single_run import prepare_data, say
from posnet_fairseq.runs.systems import System, chosen, find_mixer
from posnet_fairseq.runs.training import best_validation
from posnet_fairseq.shared.errors import UsageError, flag
from posnet_fairseq.shared.files import write_lines
from posnet_fairseq.shared.progress import plain_console, plain_table, print_table, shown
from posnet_fairseq.shared.schema import read_json

# Options of fairseq-train by the settings that have their values, in the order in which they are chosen.
OPTIONS = {"lrs": "--lr", "dropouts": "--dropout", "clip_distances": "--clip-distance"}


@dataclass(frozen=True, kw_only=True)
class TuneSettings(SystemsSettings):
    """Settings of a search for hyperparameters."""

    lrs: tuple[str, ...] = setting("peak learning rates", ("2e-3", "4e-3"), several(rate), metavar="RATES")
    dropouts: tuple[str, ...] = setting("dropout probabilities", ("0.1", "0.2"), several(fraction), metavar="P")
    clip_distances: tuple[str, ...] = setting(
        "clip distances, for mixers that have one", ("8", "16"), several(whole_number), metavar="K"
    )
    seed: int = setting("random seed (default: 1)", 1, whole_number)

    @classmethod
    def completed(cls, texts: dict[str, str]) -> dict[str, str]:
        """Return the texts with the hyperparameters of the size; nothing is averaged, so few checkpoints are kept."""
        if "lr" in texts:
            refuse("lr", texts["lr"], "a search tries several rates. Give them with --lrs.")
        if "stop_on" in texts:
            refuse("stop_on", texts["stop_on"], "a search compares perplexities. Leave it out.")
        return super().completed({"average": "1"} | texts)


@dataclass(frozen=True)
class Trial:
    """A training with values of options; without perplexity and updates if it diverged, or in a dry run."""

    values: dict[str, str]
    perplexity: float | None = None  # of the validation set, the least
    updates: int | None = None  # until then


Trials = dict[str, dict[str, Trial]]  # by system and run


@dataclass
class _Found:
    """What trials.json has of a system."""

    chosen: Mapping[str, str] = dataclasses.field(default_factory=dict)
    trials: dict[str, Trial] = dataclasses.field(default_factory=dict)


def has_clip_distance(system: System) -> bool:
    """Return whether the mixer of a system has a clip distance."""
    return any(field.name == "clip_distance" for field in dataclasses.fields(find_mixer(system.mixer, "").Config))


def tune(settings: TuneSettings) -> Path:
    """Choose values for each system, one option after the other; return the folder of trials.json and tuned.txt.

    The search begins with the first value of each option. All values of the first option are tried, and the one with
    the least perplexity on the validation set is kept; then those of the next option.
    """
    name, systems = chosen(settings.systems, settings.mixers)
    folder = settings.runs_folder / f"tune_{name}_{settings.size}_s{settings.seed}"
    jobs = [job(system, settings.seed, settings) for system in systems]
    _refuse_chosen(jobs)
    path = folder / "trials.json"
    earlier = defaultdict(_Found, read_json(path, dict[str, _Found]) if path.exists() else {})
    shares(settings.jobs, settings)  # refuses what does not fit the machine
    first = {option: getattr(settings, field)[0] for field, option in OPTIONS.items()}
    without = {option: value for option, value in first.items() if option != "--clip-distance"}
    best = {system.name: first if has_clip_distance(system) else without for system in systems}
    prepare_data(jobs)
    trials: Trials = {system.name: {} for system in systems}
    for field, option in OPTIONS.items():
        tried = {
            _job(system, best[system.name] | {option: value}, settings): (system.name, value)
            for system in systems
            if option in best[system.name]
            for value in getattr(settings, field)
        }
        todo = [each for each, (name, _) in tried.items() if each.run.name not in trials[name]]
        diverged = do_all(todo, shares(min(settings.jobs, len(todo)), settings), Diverged) if todo else ()
        for each in todo:
            name, value = tried[each]
            found = () if settings.dry_run or each in diverged else best_validation(each.run / "train.log")
            found = () if math.inf in found else found  # it diverged before the first validation
            trials[name][each.run.name] = Trial(best[name] | {option: value}, *found)
        for name, its in trials.items():
            best[name] = min(its.values(), key=lambda trial: trial.perplexity or math.inf).values
    if not settings.dry_run:
        lost = [name for name, its in trials.items() if all(trial.perplexity is None for trial in its.values())]
        best |= {name: earlier[name].chosen for name in lost}
        _write(folder, [system for system in systems if best[system.name]], best, trials, earlier)
        _print(best, trials)
        say(f"{shown(folder)} has trials.json, and tuned.txt for posnet-run compare")
        if lost:
            raise UsageError(
                f"{', '.join(lost)}: all trainings diverged, so tuned.txt has only what earlier searches have found. "
                "Give lower rates (--lrs), or a longer --warmup."
            )
    return folder


def _refuse_chosen(jobs: Sequence[RunSettings]) -> None:
    """Refuse options that are chosen already: values to try would replace them."""
    for each in jobs:
        for field, option in OPTIONS.items():
            if option in by_name(each.options):
                instead = f"Leave it out there, and give the values to try with {flag(field)}"
                raise UsageError(f"{each.system}: its options have {option}, which the search chooses. {instead}.")


def _job(system: System, values: Mapping[str, str], settings: TuneSettings) -> RunSettings:
    name = "_".join([system.name, *(f"{option.strip('-')}{value}" for option, value in values.items())])
    options = " ".join([system.options, *(f"{option} {value}" for option, value in values.items())]).strip()
    return job(System(name, system.mixer, options), settings.seed, settings, ("train",))


def _write(
    folder: Path,
    systems: Sequence[System],
    best: Mapping[str, Mapping[str, str]],
    trials: Trials,
    earlier: Mapping[str, _Found],
) -> None:
    """Write what was found, with earlier searches, also of other systems; tuned.txt has the lines of `systems`."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {**earlier} | {name: _Found(best[name], earlier[name].trials | its) for name, its in trials.items()}
    write_lines(folder / "trials.json", [json.dumps(to_builtins(content), indent=1)])
    lines = [
        f"{system.name} {system.mixer} {system.options} {' '.join(f'{o} {v}' for o, v in best[system.name].items())}"
        for system in systems
    ]
    write_lines(folder / "tuned.txt", [" ".join(line.split()) for line in lines])


def _print(best: Mapping[str, Mapping[str, str]], trials: Trials) -> None:
    table = plain_table()
    for column in ("system", *(option.strip("-") for option in OPTIONS.values()), "perplexity", "at update", ""):
        table.add_column(column, justify="left" if column in ("system", "") else "right", no_wrap=True)
    for name, its in trials.items():
        for trial in its.values():
            values = (trial.values.get(option, "") for option in OPTIONS.values())
            mark = "chosen" if trial.values == best[name] else ""
            found = ("diverged", "") if trial.perplexity is None else (f"{trial.perplexity:.2f}", f"{trial.updates:,}")
            table.add_row(name, *values, *found, mark)
    print_table(table, plain_console())
