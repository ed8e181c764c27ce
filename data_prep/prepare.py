"""posnet-prepare: download, read, clean, split and binarize a dataset."""

import argparse
import functools
import os
from dataclasses import replace
from pathlib import Path

from rich.table import Table

from posnet_data_prep import command_line
from posnet_data_prep.command_line import Preparation
from posnet_data_prep.dataset import Recipe
from posnet_data_prep.datasets import DATASETS
from posnet_data_prep.pipeline.dataset_pipeline import DatasetPipeline
from posnet_data_prep.pipeline.publish import losses_in_words, publish, published_before
from posnet_data_prep.pipeline.sets import LONGEST_WORD
from posnet_data_prep.sources.download import URL_STARTS, Downloads
from posnet_fairseq.shared.common_options import parsed_by
from posnet_fairseq.shared.disk import are_on_one_disk, free_bytes, refuse_too_little_disk
from posnet_fairseq.shared.errors import UsageError, counted
from posnet_fairseq.shared.files import check_folder, check_stdout
from posnet_fairseq.shared.progress import ProgressReporter, amount, plain_console, shown
from posnet_fairseq.shared.stages import exclusive_lock, pending, perform_pending
from posnet_fairseq.text.card import CARD

_bytes = functools.partial(amount, unit="bytes")
# What the reasons mean for which cleaning drops a pair.
_REASONS = {
    "empty": "one side empty",
    "length": "too short or too long (--min-length, --max-length)",
    "ratio": "lengths too different (--max-ratio)",
    "repeated": "equal to an earlier pair (--drop-repeated)",
    "copy": "equal sides (--drop-copies)",
    "script": "a side without a letter of its language's script (--drop-other-scripts)",
    "word": f"a word of more than {LONGEST_WORD:,} characters",
}


def show_datasets(downloads: Downloads) -> None:
    """Print a table of the datasets that can be downloaded."""
    table = Table()
    for column in ("dataset", "training pairs", "download", "cached", "license"):
        right = column in ("training pairs", "download")
        table.add_column(column, justify="right" if right else "left", no_wrap=column != "license")
    for name, dataset in DATASETS.items():
        here = sum(downloads.cached(file) is not None for file in dataset.files)
        licenses = "; ".join(dict.fromkeys(file.license for file in dataset.files))
        size = sum(file.size or 0 for file in dataset.files)
        cached = f"{here} of {counted(len(dataset.files), 'file')}"
        table.add_row(name, f"{dataset.pairs['train']:,}", _bytes(size) if size else "?", cached, licenses)
    console = plain_console()
    console.print(table)
    console.print(f"Downloads are kept in {shown(downloads.folder)}.", soft_wrap=True)
    console.print("corpus and text prepare files of your own: posnet-prepare corpus --help", soft_wrap=True)


def show_plan(
    out: Path, asked: Preparation, pipeline: DatasetPipeline, downloads: Downloads, needed: int, to_load: int
) -> None:
    """Print all stages of a dataset, those to do, and the bytes that they write and that must be downloaded."""
    todo = pending(pipeline.goal)
    console = plain_console()
    table = Table(title=f"{asked.card.dataset} in {shown(out)}")
    for column in ("stage", "writes about", ""):
        table.add_column(column, justify="right" if column == "writes about" else "left")
    for file in asked.files:
        state = "cached" if downloads.cached(file) else "to do" if asked.loads_in(todo) else "done"
        table.add_row(f"download {Path(file.name).name}", "?" if file.size is None else _bytes(file.size), state)
    for stage in pipeline.stages:
        table.add_row(stage.name, _bytes(stage.size), "to do" if stage in todo else "done")
    console.print(table)
    if asked.note:
        console.print(asked.note)
    console.print(f"{shown(out)}: {_bytes(needed)} needed, {_bytes(free_bytes(out))} free")
    if to_load:
        folder = downloads.folder
        console.print(f"{shown(folder)}: {_bytes(to_load)} to download, {_bytes(free_bytes(folder))} free")


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
    lowercase = any(words.is_lowercase for words in card.words.values())
    normal_form = "".join(words.normal_form for words in card.words.values())
    for sentence in losses_in_words(card.restored or {}, card.sentences or {}, lowercase, normal_form):
        report.say(f"{sentence}.")
    for note in card.notes or []:
        report.say(f"note: {note}.")
    report.say(f"{stages} has intermediate files: delete it unless you will prepare this dataset with other options.")


@parsed_by(command_line.make_parser)
def main(options: argparse.Namespace) -> None:
    """Entry point of posnet-prepare."""
    command_line.check_options(options)
    if options.list or options.dry_run:
        check_stdout()
    report = ProgressReporter()
    downloads = Downloads(options.downloads, getattr(options, "mirror", None), report)
    if options.list:
        show_datasets(downloads)
        return
    out: Path = options.out
    stages = out / "stages"
    if not (out / CARD).exists():  # else it may be finished, and is only read
        check_folder(out)
    before = published_before(out, stages)
    _refuse_inputs_within(options)
    asked = command_line.preparation(options, stages, downloads)

    def pipeline_by(recipe: Recipe) -> DatasetPipeline:
        return DatasetPipeline(asked.read, asked.languages, recipe, options.workers, asked.like, asked.growth)

    pipeline = pipeline_by(asked.recipe)
    if before == pipeline.goal.key:
        report.say(f"{out} is up to date.")
        return
    if before == pipeline_by(replace(asked.recipe, normal_form="")).goal.key and options.normalize is None:
        # Made by an earlier version, as models may have been trained on it.
        report.say(f"{out} is up to date, without --normalize {asked.recipe.normal_form}, which is the default now.")
        return
    check_folder(out)
    if asked.files:
        check_folder(options.downloads, "--downloads")
    bytes_needed = pipeline.goal.needed()
    to_load = sum(map(downloads.missing_bytes, asked.files)) if asked.loads_in(pending(pipeline.goal)) else 0
    if options.dry_run:
        show_plan(out, asked, pipeline, downloads, bytes_needed, to_load)
        return
    if to_load:
        shared = bytes_needed if are_on_one_disk(out, downloads.folder) else 0
        refuse_too_little_disk(downloads.folder, to_load + shared)
    refuse_too_little_disk(out, bytes_needed)
    if asked.note:
        report.say(asked.note)
    with exclusive_lock(stages):
        perform_pending(pipeline.applied, report)  # the card tells of it
        perform_pending(pipeline.text, report)  # its files are published, too
        perform_pending(pipeline.goal, report)
        publish(out, pipeline, asked.card)
    report_result(out, stages, asked, report)


def _refuse_inputs_within(options: argparse.Namespace) -> None:
    """Refuse to read from the folder whose files will be replaced, or to keep downloads there."""
    out = Path(os.path.realpath(options.out))
    for name in ("train", "valid", "test", "downloads", "mirror", "like"):
        given = getattr(options, name, None) or []
        for path in given if isinstance(given, list) else [given]:
            if not str(path).startswith(URL_STARTS) and Path(os.path.realpath(path)).is_relative_to(out):
                raise UsageError(f"{path} is in {options.out}, where files will be replaced. Choose another --out.")
