"""posnet-prepare: from nothing to a binarised dataset."""

import contextlib
import ctypes
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from posnet_data_prep import command_line
from posnet_data_prep.datasets import DATASETS, QUICKSTART, SMALL_TEXT, WHEELS, Recipe
from posnet_data_prep.pipeline.binarise import SETS
from posnet_data_prep.pipeline.making import Making
from posnet_data_prep.pipeline.publish import is_published, publish, refuse_foreign
from posnet_data_prep.quickstart.reading import catalogs
from posnet_data_prep.sources import reading
from posnet_data_prep.sources.download import Downloads
from posnet_data_prep.sources.own_text import own_text
from posnet_fairseq.shared.command import command
from posnet_fairseq.shared.disk import are_on_one_disk, free_bytes, refuse_too_little_disk
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import check_folder, check_stdout
from posnet_fairseq.shared.progress import Report, amount, shown
from posnet_fairseq.shared.stages import StageRunner, exclusive_lock
from posnet_fairseq.text.card import CARD


class Job:
    """What is to be made, from the command line.

    Attributes:
        archives: what must be downloaded.
        read: the stage that reads the text.
        languages: of source and target.
        recipe: :class:`posnet_data_prep.datasets.Recipe`.
        card: what the card says of its origin.
        notes: sentences for the person who waits.
        published: the pairs of each set that others report, if they can be expected.
    """

    def __init__(self, options, workshop, report):
        self.archives, self.notes, self.published = [], [], {}
        self.downloads = Downloads(options.downloads, getattr(options, "mirror", None), report)
        self.card = {"dataset": options.dataset}
        if options.dataset in QUICKSTART:
            self.languages, self.recipe, self.archives = QUICKSTART[options.dataset][:2], SMALL_TEXT, list(WHEELS)
            self.read = catalogs(self.languages, self.downloads)
        elif options.dataset in DATASETS:
            self._published(options, workshop)
        elif options.dataset == "corpus":
            with report.stage("look at files"):
                self._corpus(options)
        else:
            self.languages, self.recipe = ("txt",), replace(SMALL_TEXT, pieces=options.pieces)
            self.read = own_text(options.train, options.valid, options.test, "txt", options.shuffle)
        if self.archives:
            self.card["archives"] = {
                archive.name: {"digest": archive.digest, "licence": archive.licence} for archive in self.archives
            }

    def _published(self, options, workshop):
        dataset = DATASETS[options.dataset]
        self.languages, self.archives = (dataset.source_lang, dataset.target_lang), dataset.archives
        self.recipe = command_line.recipe(options, dataset.recipe, self.languages)
        self.read = reading.published(workshop, dataset, self.downloads)
        if dataset.local and not reading.local_pairs(dataset, self.downloads):
            self.notes.append(
                f"{self.downloads.folder / dataset.local} is not there, so {dataset.local.upper()}, which one must "
                "register for, is left out. The training set is smaller than the paper's."
            )
        elif self.recipe == dataset.recipe:
            self.published = dataset.published

    def _corpus(self, options):
        sets = {name: getattr(options, name) for name in SETS if getattr(options, name)}
        self.languages = command_line.languages(options, sets)
        self.recipe = command_line.recipe(options, Recipe(), self.languages)
        if ("valid" in sets) == (self.recipe.valid_every is not None):
            raise UsageError(
                "a validation set comes from one place: give --valid FILES, or --valid-every 23 to take every 23rd "
                "pair of the training text."
            )
        self.read = reading.own_files(sets, self.languages)
        self.card["files_read"] = {name: list(map(shown, paths)) for name, paths in sets.items()}


@command
def main(arguments=None):
    """Entry point of posnet-prepare."""
    options = command_line.parse(arguments)
    if options.list or options.dry_run:
        check_stdout()
    if options.list:
        return _show_datasets(Downloads(options.downloads, None, Report()))
    _die_with_parent()
    report = Report()
    stages = options.out / "stages"
    workshop = StageRunner(stages, report)
    refuse_foreign(options.out, stages)
    if not (options.out / CARD).exists():  # else it may be finished, and is only looked at
        check_folder(options.out)
    _refuse_what_lies_within(options)
    job = Job(options, workshop, report)
    making = Making(workshop, job.languages, job.recipe, job.read, options.workers)
    if is_published(options.out, making.goal):
        return report.say(f"{options.out} is up to date.")
    check_folder(options.out)
    pending = workshop.pending(making.goal)
    if job.archives:
        check_folder(options.downloads, "--downloads")
    if options.dry_run:
        return _show_plan(options.out, job, making, pending, workshop.needed(making.goal))
    _check_disk(options.out, job, pending, workshop.needed(making.goal))
    for note in job.notes:
        report.say(note)
    stages.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(stages), _ended_by_interrupts():
        workshop.run(making.text)  # its files are published too
        workshop.run(making.goal)
        card = publish(options.out, workshop, making, job.card)
    _say_what_came_out(options.out, card, job.published, report)


def _refuse_what_lies_within(options):
    """Refuse to read from the folder whose files will be replaced, or to keep downloads there."""
    names = ("train", "valid", "test", "downloads", "mirror")
    given = [getattr(options, name, None) or [] for name in names]
    out = Path(os.path.realpath(options.out))
    for path in (path for paths in given for path in (paths if isinstance(paths, list) else [paths])):
        if Path(os.path.realpath(path)).is_relative_to(out):
            raise UsageError(f"{path} is in {options.out}, where files will be replaced. Choose another --out.")


def _say_what_came_out(out, card, published, report):
    sentences = ", ".join(f"{count:,} {name}" for name, count in card["sentences"].items())
    if published:
        sentences += f" ({', '.join(f'{count:,}' for count in published.values())} elsewhere)"
    ratio = f"; γ = {card['length_ratio']:.4f}" if "length_ratio" in card else ""
    vocabulary = ", ".join(f"{count:,} {name}" for name, count in card["vocabulary"].items())
    report.say(f"{out}: lines: {sentences}; vocabulary: {vocabulary}{ratio}")
    for note in card["notes"]:
        report.say(f"note: {note}.")
    report.say(f"{out / 'stages'} is of use only to make it again in another way. It may be removed.")


def _check_disk(out, job, pending, needed):
    to_load = _to_load(job, pending)
    same_disk = are_on_one_disk(out, job.downloads.folder)
    if to_load:
        refuse_too_little_disk(job.downloads.folder, to_load + (needed if same_disk else 0))
    refuse_too_little_disk(out, needed)


def _to_load(job, pending):
    """Bytes of archives that must be downloaded."""
    if not {"extract", "read"} & {stage.name for stage in pending}:
        return 0
    return sum(map(job.downloads.missing_bytes, job.archives))


def _show_plan(out, job, making, pending, needed):
    console = Console(highlight=False)
    table = Table(title=escape(f"{job.card['dataset']} in {shown(out)}"))
    table.add_column("stage")
    table.add_column("writes about", justify="right")
    table.add_column("")
    for archive in job.archives:
        state = "cached" if job.downloads.cached(archive) else "to do"
        table.add_row(f"download {archive.name}", "?" if archive.size is None else _bytes(archive.size), state)
    waiting = {stage.name for stage in pending}
    for stage in making.stages:
        table.add_row(stage.name, _bytes(stage.size), "to do" if stage.name in waiting else "done")
    console.print(table)
    for note in job.notes:
        console.print(note, markup=False)
    to_load = _to_load(job, pending)
    console.print(f"{escape(shown(out))}: {_bytes(needed)} needed, {_bytes(free_bytes(out))} free")
    if to_load:
        folder = job.downloads.folder
        console.print(f"{escape(shown(folder))}: {_bytes(to_load)} to download, {_bytes(free_bytes(folder))} free")


def _show_datasets(downloads):
    table = Table()
    for column in ("dataset", "training pairs", "download", "cached", "licence"):
        table.add_column(
            column, justify="right" if column in ("training pairs", "download") else "left", no_wrap=column != "licence"
        )
    rows = {name: (dataset.archives, dataset.published["train"]) for name, dataset in DATASETS.items()}
    rows |= {name: (WHEELS, pairs) for name, (*_, pairs) in QUICKSTART.items()}
    for name, (archives, pairs) in rows.items():
        here = sum(downloads.cached(archive) is not None for archive in archives)
        licences = "; ".join(dict.fromkeys(archive.licence for archive in archives))
        size = sum(archive.size or 0 for archive in archives)
        table.add_row(name, f"{pairs:,}", _bytes(size), f"{here} of {len(archives)} files", licences)
    console = Console(highlight=False)
    console.print(table)
    console.print(f"Downloads are kept in {escape(shown(downloads.folder))}.", soft_wrap=True)
    console.print("corpus and text prepare files of your own: posnet-prepare corpus --help", soft_wrap=True)


def _bytes(size):
    return amount(size, "bytes")


def _die_with_parent():
    """Let no process that is forked outlive this one, even if it is killed: a run that goes on must be alone."""
    if getattr(_die_with_parent, "done", False):
        return
    libc, pr_set_pdeathsig = ctypes.CDLL(None), 1

    def in_child():
        libc.prctl(pr_set_pdeathsig, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    os.register_at_fork(after_in_child=in_child)
    _die_with_parent.done = True


@contextlib.contextmanager
def _ended_by_interrupts():
    """Let an interrupt end this process at once, like kill -9, and so all that it has forked.

    Python's way, an exception, is lost if it comes at the moment of a fork, and fairseq's processes would have to be
    waited for.
    """

    def end(*_):
        if sys.stderr.isatty():
            os.write(2, b"\x1b[?25h\n")  # show the cursor, which the bars hide
        os._exit(130)

    before = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
