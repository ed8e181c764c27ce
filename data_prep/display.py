"""What posnet-prepare shows: the list of datasets, the plan of a dry run, and the result."""

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from posnet_data_prep.command_line import Preparation
from posnet_data_prep.datasets import DATASETS
from posnet_data_prep.pipeline.clean import LONGEST_WORD
from posnet_data_prep.pipeline.dataset_pipeline import DatasetPipeline
from posnet_data_prep.pipeline.restoring import sentences
from posnet_data_prep.sources.download import Downloads
from posnet_fairseq.shared.disk import free_bytes
from posnet_fairseq.shared.progress import ProgressReporter, amount, shown
from posnet_fairseq.shared.stages import pending

# What the reasons mean for which cleaning drops a pair.
_REASONS = {
    "empty": "one side empty",
    "length": "too short or too long (--min-length, --max-length)",
    "ratio": "lengths too different (--max-ratio)",
    "copy": "equal sides (--drop-copies)",
    "script": "a side without a letter of its language's script (--drop-other-scripts)",
    "word": f"a word of more than {LONGEST_WORD:,} characters",
}


def show_datasets(downloads: Downloads) -> None:
    """Print a table of the datasets that can be downloaded."""
    table = Table()
    for column in ("dataset", "training pairs", "download", "cached", "license"):
        table.add_column(
            column, justify="right" if column in ("training pairs", "download") else "left", no_wrap=column != "license"
        )
    for name, dataset in DATASETS.items():
        here = sum(downloads.cached(file) is not None for file in dataset.files)
        licenses = "; ".join(dict.fromkeys(file.license for file in dataset.files))
        size = sum(file.size or 0 for file in dataset.files)
        cached = f"{here} of {len(dataset.files)} files"
        table.add_row(name, f"{dataset.pairs['train']:,}", _bytes(size) if size else "?", cached, licenses)
    console = Console(highlight=False)
    console.print(table)
    console.print(f"Downloads are kept in {escape(shown(downloads.folder))}.", soft_wrap=True)
    console.print("corpus and text prepare files of your own: posnet-prepare corpus --help", soft_wrap=True)


def show_plan(
    out: Path, asked: Preparation, pipeline: DatasetPipeline, downloads: Downloads, needed: int, to_load: int
) -> None:
    """Print all stages of a dataset, those to do, and the bytes that they write and that must be downloaded."""
    todo = pending(pipeline.goal)
    console = Console(highlight=False)
    table = Table(title=escape(f"{asked.card.dataset} in {shown(out)}"))
    table.add_column("stage")
    table.add_column("writes about", justify="right")
    table.add_column("")
    for file in asked.files:
        state = "cached" if downloads.cached(file) else "to do"
        table.add_row(f"download {file.name}", "?" if file.size is None else _bytes(file.size), state)
    for stage in pipeline.stages:
        table.add_row(stage.name, _bytes(stage.size), "to do" if stage in todo else "done")
    console.print(table)
    if asked.note:
        console.print(asked.note, markup=False)
    console.print(f"{escape(shown(out))}: {_bytes(needed)} needed, {_bytes(free_bytes(out))} free")
    if to_load:
        folder = downloads.folder
        console.print(f"{escape(shown(folder))}: {_bytes(to_load)} to download, {_bytes(free_bytes(folder))} free")


def report_result(out: Path, stages: Path, asked: Preparation, report: ProgressReporter) -> None:
    """Print the sizes of a finished dataset, and the notes on it."""
    card = asked.card
    sizes = ", ".join(f"{count:,} {name}" for name, count in (card.sentences or {}).items())
    if asked.pairs:
        expected = ", ".join(f"{count:,} {name}" for name, count in asked.pairs.items())
        sizes += f" (expected: {expected})"
    ratio = "" if card.length_ratio is None else f"; length ratio γ = {card.length_ratio:.4f}"
    vocabulary = ", ".join(f"{count:,} {name}" for name, count in (card.vocabulary or {}).items())
    report.say(f"{out}: lines: {sizes}; vocabulary: {vocabulary}{ratio}")
    if card.dropped:
        report.say("training pairs that cleaning removed:")
        width = max(len(f"{count:,}") for count in card.dropped.values())
        for reason, count in card.dropped.items():
            report.say(f"  {count:>{width},}  {_REASONS[reason]}")
    for sentence in sentences(card.restored or {}, card.sentences or {}):
        report.say(f"{sentence}.")
    for note in card.notes or []:
        report.say(f"note: {note}.")
    report.say(f"{stages} has intermediate files: delete it unless you will prepare this dataset with other options.")


def _bytes(size: int) -> str:
    return amount(size, "bytes")
