"""Comparisons: several systems with one or more seeds each, trained and scored in one report. One is the quickstart."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from posnet_eval.inputs.configuration import read_plan
from posnet_fairseq.runs.devices import shares
from posnet_fairseq.runs.jobs import do_all
from posnet_fairseq.runs.parsers import DIGITS, names, seed_numbers, whole_number
from posnet_fairseq.runs.run_settings import STAGES, RunSettings, TrainingSettings
from posnet_fairseq.runs.settings import refuse, setting
from posnet_fairseq.runs.single_run import check_metrics, prepare_data, say
from posnet_fairseq.runs.systems import System, chosen, find_list
from posnet_fairseq.shared.errors import about, visible
from posnet_fairseq.shared.progress import plain_console, shown
from posnet_fairseq.text.plain import read_parallel

UPDATES = 2000  # of the quickstart
SAMPLES = 6  # translations that it shows


@dataclass(frozen=True, kw_only=True)
class SystemsSettings(TrainingSettings):
    """Settings of runs of several systems."""

    systems: Path | None = setting(
        "file of systems, or the name of a list that comes with posnet, such as tables-2-3: a name, a mixer and "
        "options of fairseq-train in each line",
        parse=find_list,
        positional="?",
        metavar="SYSTEMS",
    )
    mixers: str = setting("mixers separated by spaces or commas, instead of a file", "", metavar="MIXERS")
    jobs: int = setting("number of runs side by side, on equal shares of the machine", 1, whole_number)


@dataclass(frozen=True, kw_only=True)
class ComparisonSettings(SystemsSettings):
    """Settings of a comparison."""

    seeds: tuple[int, ...] = setting(
        "seeds; every system is trained once with each (default: 1)", (1,), seed_numbers, metavar="SEEDS"
    )
    baselines: str = setting(
        "one or two systems to compare the others with (default: the first two, or of two the first)",
        "",
        metavar="SYSTEMS",
    )


def baselines_of(systems: Sequence[System], settings: ComparisonSettings) -> list[str]:
    """Return the systems that others are compared with: the settings', else the first two, or of two the first."""
    known = [system.name for system in systems]
    found = list(names(settings.baselines)) or known[: 2 if len(known) > 2 else 1]
    if not set(found) <= set(known) or len(found) > 2 or len(set(found)) < len(found):
        refuse("baselines", settings.baselines, f"name one or two of {', '.join(known)}.")
    return found


def job(system: System, seed: int, settings: SystemsSettings, stages: Sequence[str] = STAGES[1:-1]) -> RunSettings:
    """Return the run of a system with a seed; usually the data are there, and a comparison scores all runs."""
    common = {name: getattr(settings, name) for name in TrainingSettings.fields()}
    common["options"] = f"{settings.options} {system.options}".strip()
    made = RunSettings(**common, mixer=system.mixer, name=system.name, seed=seed, stages=tuple(stages))
    with about(system.name):
        made.check()
    return made


def compare(settings: ComparisonSettings, suffix: str = "") -> Path:
    """Train, average, precompute, translate, compare; return the folder of the comparison.

    The suffix is put behind the names of the comparison and of all systems.
    """
    from posnet_fairseq.runs.comparison import ComparisonFolder

    name, systems = chosen(settings.systems, settings.mixers)
    baselines = [baseline + suffix for baseline in baselines_of(systems, settings)]
    systems = [System(system.name + suffix, system.mixer, system.options) for system in systems]
    # Seed by seed: all systems can be compared as soon as the first is done.
    jobs = [job(system, seed, settings) for seed in settings.seeds for system in systems]
    parts = shares(min(settings.jobs, len(jobs)), settings)
    check_metrics(settings)
    comparison = ComparisonFolder(
        settings.data_folder,
        settings.runs_folder / f"compare_{name}{suffix}_{settings.size}",
        {system.name: [each.run for each in jobs if each.system == system.name] for system in systems},
    )
    comparison.check()
    # Only now, when all settings are understood, what may take hours.
    prepare_data(jobs)
    do_all(jobs, parts)
    if not settings.machine and not settings.dry_run:  # the first machine does the rest
        comparison.make(baselines, settings.metrics)
        say(f"learning curves: {shown(comparison.folder)}/curves.png; rename systems in comparison.yaml beside it")
    return comparison.folder


@dataclass(frozen=True, kw_only=True)
class QuickstartSettings(ComparisonSettings):
    """Settings of a comparison, with defaults of its own."""

    @classmethod
    def completed(cls, texts: dict[str, str]) -> dict[str, str]:
        """Return the texts with the defaults of the quickstart."""
        texts = {"dataset": "quickstart.en-de", "size": "tiny", "updates": str(UPDATES), "jobs": "2"} | texts
        if "systems" not in texts:
            texts.setdefault("mixers", "transformer_pos rposnet")
            texts.setdefault("baselines", " ".join(names(texts["mixers"])[:1]))
        if "gpus" not in texts:
            texts.setdefault("cpus", "1")
        if DIGITS.fullmatch(texts["updates"]):
            updates = int(texts["updates"])
            texts.setdefault("interval", str(-(-updates // 20)))
            texts.setdefault("average", "5" if updates >= 100 else "1")
        return super().completed(texts)


def quickstart(settings: QuickstartSettings) -> None:
    """Train, compare, and show a few translations."""
    # Runs of another length have names of their own.
    suffix = "" if settings.updates == UPDATES else f"_u{settings.updates}"
    folder = compare(settings, suffix)
    if not settings.dry_run:
        show_samples(folder / "comparison.yaml")


def show_samples(path: Path) -> None:
    """Print evenly spread sentences of a length at which a small model shows what it can do."""
    plan = read_plan(path)
    test_set = plan.test_sets[0]
    outputs = {plan.systems[system]: runs[0] for system, runs in test_set.outputs.items()}
    labels = ["source", *outputs, "reference"]
    texts = read_parallel(test_set.source, *outputs.values(), *test_set.references)
    width = max(map(len, labels))
    fitting = [index for index, source in enumerate(texts[0]) if 4 <= len(source.split()) <= 10]
    console = plain_console()
    for index in fitting[:: max(1, len(fitting) // SAMPLES)][:SAMPLES]:
        console.print()
        for label, lines in zip(labels, texts, strict=True):
            console.print(f"{label:>{width}}  {visible(lines[index])}", soft_wrap=True)
