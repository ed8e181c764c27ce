"""posnet-prepare: download, read, clean, split and binarize a dataset."""

import argparse
import os
from pathlib import Path

from posnet_data_prep import command_line
from posnet_data_prep.display import report_result, show_datasets, show_plan
from posnet_data_prep.pipeline.dataset_pipeline import DatasetPipeline
from posnet_data_prep.pipeline.publish import is_published, publish, refuse_foreign
from posnet_data_prep.sources.download import Downloads
from posnet_fairseq.shared.common_options import parsed_by
from posnet_fairseq.shared.disk import are_on_one_disk, refuse_too_little_disk
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import check_folder, check_stdout
from posnet_fairseq.shared.progress import ProgressReporter
from posnet_fairseq.shared.stages import exclusive_lock, pending, run
from posnet_fairseq.text.card import CARD


@parsed_by(command_line.make_parser)
def main(options: argparse.Namespace) -> None:
    """Entry point of posnet-prepare."""
    command_line.check(options)
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
    refuse_foreign(out, stages)
    _refuse_inputs_within(options)
    asked = command_line.preparation(options, stages, downloads)
    pipeline = DatasetPipeline(asked.read, asked.languages, asked.recipe, options.workers, asked.like)
    if is_published(out, pipeline.goal):
        report.say(f"{out} is up to date.")
        return
    check_folder(out)
    if asked.files:
        check_folder(options.downloads, "--downloads")
    bytes_needed = pipeline.goal.needed()
    to_load = sum(map(downloads.missing_bytes, asked.files)) if asked.read in pending(pipeline.goal) else 0
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
        run(pipeline.text, report)  # its files are published, too
        run(pipeline.goal, report)
        publish(out, pipeline, asked.card)
    report_result(out, stages, asked, report)


def _refuse_inputs_within(options: argparse.Namespace) -> None:
    """Refuse to read from the folder whose files will be replaced, or to keep downloads there."""
    out = Path(os.path.realpath(options.out))
    for name in ("train", "valid", "test", "downloads", "mirror", "like"):
        given = getattr(options, name, None) or []
        for path in given if isinstance(given, list) else [given]:
            if Path(os.path.realpath(path)).is_relative_to(out):
                raise UsageError(f"{path} is in {options.out}, where files will be replaced. Choose another --out.")
