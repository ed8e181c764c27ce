"""posnet-prepare: download, read, clean, split and binarise a dataset."""

import argparse
import contextlib
import functools
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from posnet_data_prep import command_line
from posnet_data_prep.display import report_result, show_datasets, show_plan
from posnet_data_prep.pipeline.dataset_pipeline import DatasetPipeline
from posnet_data_prep.pipeline.publish import is_published, publish, refuse_foreign
from posnet_data_prep.preparation import Preparation
from posnet_data_prep.sources.download import Downloads
from posnet_fairseq.shared.command import command
from posnet_fairseq.shared.common_options import parsed_by
from posnet_fairseq.shared.disk import are_on_one_disk, refuse_too_little_disk
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import check_folder, check_stdout
from posnet_fairseq.shared.processes import die_with_parent
from posnet_fairseq.shared.progress import ProgressReporter
from posnet_fairseq.shared.stages import StageRunner, exclusive_lock
from posnet_fairseq.text.card import CARD


@command
@parsed_by(command_line.make_parser)
def main(options: argparse.Namespace) -> None:
    """Entry point of posnet-prepare."""
    command_line.check(options)
    if options.list or options.dry_run:
        check_stdout()
    report = ProgressReporter()
    if options.list:
        show_datasets(Downloads(options.downloads, None, report))
    else:
        _prepare(options, report)


def _prepare(options: argparse.Namespace, report: ProgressReporter) -> None:
    """Prepare a dataset, or show what is to be done for it."""
    out: Path = options.out
    runner = StageRunner(out / "stages", report)
    refuse_foreign(out, runner.folder)
    if not (out / CARD).exists():  # else it may be finished, and is only read
        check_folder(out)
    _refuse_inputs_within(options)
    preparation = Preparation(options, runner, report)
    pipeline = DatasetPipeline(
        runner, preparation.languages, preparation.recipe, preparation.read, options.workers, preparation.like
    )
    if is_published(out, pipeline.goal):
        report.say(f"{out} is up to date.")
        return
    check_folder(out)
    if preparation.archives:
        check_folder(options.downloads, "--downloads")
    pending, needed = {stage.name for stage in runner.pending(pipeline.goal)}, runner.needed(pipeline.goal)
    reads = pending & {"extract", "read"}
    to_load = sum(map(preparation.downloads.missing_bytes, preparation.archives)) if reads else 0
    if options.dry_run:
        show_plan(out, preparation, pipeline.stages, pending, needed, to_load)
        return
    _check_disk(out, options.downloads, needed, to_load)
    for note in preparation.notes:
        report.say(note)
    runner.folder.mkdir(parents=True, exist_ok=True)
    _end_children_with_this_process()
    with exclusive_lock(runner.folder), _ended_by_interrupts():
        runner.run(pipeline.text)  # its files are published, too
        runner.run(pipeline.goal)
        card = publish(out, runner, pipeline, preparation.card)
    report_result(out, runner.folder, card, preparation.published, report)


def _refuse_inputs_within(options: argparse.Namespace) -> None:
    """Refuse to read from the folder whose files will be replaced, or to keep downloads there.

    Raises:
        UsageError: a path is in the folder of the dataset.
    """
    out = Path(os.path.realpath(options.out))
    for name in ("train", "valid", "test", "downloads", "mirror", "like"):
        given = getattr(options, name, None) or []
        for path in given if isinstance(given, list) else [given]:
            if Path(os.path.realpath(path)).is_relative_to(out):
                raise UsageError(f"{path} is in {options.out}, where files will be replaced. Choose another --out.")


def _check_disk(out: Path, downloads: Path, needed: int, to_load: int) -> None:
    """Refuse work that would fill a disk.

    Args:
        out: folder of the dataset.
        downloads: folder of downloads.
        needed: bytes that the stages write.
        to_load: bytes that must be downloaded.

    Raises:
        UsageError: fewer are free.
    """
    if to_load:
        refuse_too_little_disk(downloads, to_load + (needed if are_on_one_disk(out, downloads) else 0))
    refuse_too_little_disk(out, needed)


@functools.cache  # a hook cannot be taken back, and one is enough
def _end_children_with_this_process() -> None:
    """Let forked processes end when this one is killed: a run that continues must be alone in its folder."""

    def in_child() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # this process ends them
        die_with_parent(os.getppid())

    os.register_at_fork(after_in_child=in_child)


@contextlib.contextmanager
def _ended_by_interrupts() -> Iterator[None]:
    """Let an interrupt end this process at once, as kill -9 does, and thereby all processes that it has forked.

    Python's own handling, an exception, is lost if it comes at the moment of a fork, and would wait for fairseq's
    processes.
    """

    def end(*_: Any) -> None:
        if sys.stderr.isatty():
            os.write(2, b"\x1b[?25h\n")  # show the cursor, which the bars hide
        os._exit(130)

    before = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
