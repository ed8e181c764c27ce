"""The finished dataset: its files in one place, and a card that says how they were made."""

import contextlib
import json
import os
import shutil
from pathlib import Path

from posnet_fairseq import __version__
from posnet_fairseq.fairseq_plugin import length_ratio
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import write_lines
from posnet_fairseq.shared.records import are_intact, read_record
from posnet_fairseq.shared.stages import is_ours
from posnet_fairseq.text.card import CARD

NAMES = "published"  # in the folder of stages: names of all files that were put into the dataset's


def is_published(out, goal):
    """Whether a folder holds what a last stage makes, unchanged."""
    card = read_record(out / CARD)
    return card is not None and card["key"] == goal.key and are_intact(out, card["files"])


def refuse_foreign(out, stages):
    """Refuse a folder with files that posnet-prepare has not made there.

    Args:
        out: the folder.
        stages: of its stages.
    """
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file. Choose another --out.")
    ours = is_ours(stages) or read_record(out / CARD) is not None
    if out.exists() and any(out.iterdir()) and not ours:
        raise UsageError(f"{out} exists already, and this posnet-prepare did not make it. Choose another --out.")


def publish(out, workshop, making, about):
    """Put the files of the last stages into a folder, without copying them, and write its card.

    Args:
        out: the folder.
        workshop: :class:`posnet_fairseq.shared.stages.StageRunner`.
        making: :class:`posnet_data_prep.pipeline.making.Making`, whose last stages are done.
        about: what else the card says, a dict.

    Returns:
        the card.
    """
    files = {
        name: (workshop.of(stage) / name, look)
        for stage in (making.text, making.goal)
        for name, look in workshop.record(stage)["files"].items()
    }
    _clear(out, workshop.folder / NAMES, files)
    for name, (path, _) in files.items():
        _link(path, out / name)
    card = about | making.card()
    text = workshop.record(making.text)["counts"]
    card["sentences"] = {name: counts["lines"] for name, counts in text.items()}
    dictionaries = {path.name.removeprefix("dict.").rpartition(".")[0]: path for path in out.glob("dict*.txt")}
    card["vocabulary"] = {language or "all": _words(path) for language, path in sorted(dictionaries.items())}
    if "source_lang" in card:
        source, target = length_ratio.measure(out, card["source_lang"], card["target_lang"])
        card["length_ratio"] = source / target
    card["notes"] = making.notes()
    records = {stage: workshop.record(stage) for stage in making.stages}
    card["stages"] = {
        stage.name: {name: record[name] for name in ("counts", "options", "versions", "seconds")}
        for stage, record in records.items()
        if record and record["key"] == stage.key
    }
    card["posnet"] = __version__
    card["key"], card["files"] = making.goal.key, {name: look for name, (_, look) in files.items()}
    write_lines(out / CARD, [json.dumps(card, indent=2, ensure_ascii=False)])
    return card


def _clear(out, note, files):
    """Take away what was published before, even if that was interrupted.

    Args:
        out: the folder.
        note: file with the names of all that may be there.
        files: what is about to be published.
    """
    card = read_record(out / CARD)
    before = set(card["files"]) if card else set()
    with contextlib.suppress(OSError, ValueError):  # of a damaged note
        before |= {name for name in note.read_text(encoding="utf-8").split("\n") if name and Path(name).name == name}
    foreign = [out / name for name in sorted(files) if name not in before and os.path.lexists(out / name)]
    if foreign:
        raise UsageError(
            f"{foreign[0]} is there, and this posnet-prepare did not make it. Move it away, and run again."
        )
    write_lines(note, sorted(before | files.keys()))
    (out / CARD).unlink(missing_ok=True)  # from here on the dataset is not whole
    for name in before:
        (out / name).unlink(missing_ok=True)


def _link(file, name):
    name.unlink(missing_ok=True)
    try:
        os.link(file, name)
    except OSError:  # some file systems know no second name
        shutil.copy2(file, name)


def _words(path):
    """Entries of a dictionary, without those that fairseq fills it up with to a multiple of eight."""
    with open(path, "rb") as file:
        return sum(not line.startswith(b"madeupword") for line in file)
