"""Publication of a dataset: its files in one folder, and a card that says how they were made."""

import contextlib
import os
import shutil
from collections.abc import Collection
from pathlib import Path

from posnet_data_prep.pipeline.binarise import length_ratio
from posnet_data_prep.pipeline.dataset_pipeline import DatasetPipeline
from posnet_fairseq import __version__
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import write_lines
from posnet_fairseq.shared.records import are_intact, read_record
from posnet_fairseq.shared.stages import Stage, StageRunner, is_ours
from posnet_fairseq.text.card import CARD, DatasetCard

NAMES = "published"  # in the folder of stages: names of all files that were put into the dataset's folder


def is_published(out: Path, goal: Stage) -> bool:
    """Whether a folder holds the dataset of a last stage, unchanged."""
    card = read_record(out / CARD)
    return card is not None and card["key"] == goal.key and are_intact(out, card["files"])


def refuse_foreign(out: Path, stages: Path) -> None:
    """Refuse a folder with files that posnet-prepare has not made there.

    Args:
        out: folder of the dataset.
        stages: folder of its stages.

    Raises:
        UsageError: `out` is a file, or has files of others.
    """
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file. Choose another --out.")
    ours = is_ours(stages) or read_record(out / CARD) is not None
    if out.exists() and any(out.iterdir()) and not ours:
        raise UsageError(f"{out} exists already, and this posnet-prepare did not make it. Choose another --out.")


def publish(out: Path, runner: StageRunner, pipeline: DatasetPipeline, card: DatasetCard) -> DatasetCard:
    """Link the files of the last stages into a folder, and write the dataset's card.

    Args:
        out: folder of the dataset.
        runner: has done the stages.
        pipeline: the stages.
        card: what is known of the dataset's origin; the other entries are filled in.

    Returns:
        The card.

    Raises:
        UsageError: a file of others has the name of a file of the dataset.
    """
    records = {stage: runner.record(stage) for stage in pipeline.stages}
    paths: dict[str, Path] = {}
    card.files = {}
    for stage in (pipeline.text, pipeline.goal):
        made = (records[stage] or {}).get("files", {})
        paths |= {name: runner.of(stage) / name for name in made}
        card.files |= made
    _clear(out, runner.folder / NAMES, paths.keys())
    for name, path in paths.items():
        _link(path, out / name)
    pipeline.describe(card)
    dictionaries = {path.name.removeprefix("dict.").rpartition(".")[0]: path for path in out.glob("dict*.txt")}
    card.vocabulary = {language or "all": _entries(path) for language, path in sorted(dictionaries.items())}
    if card.source_lang and card.target_lang:
        card.length_ratio = length_ratio(out, (card.source_lang, card.target_lang))
    card.stages = {
        stage.name: {name: record[name] for name in ("counts", "options", "versions", "seconds")}
        for stage, record in records.items()
        if record and record["key"] == stage.key
    }
    card.posnet, card.key = __version__, pipeline.goal.key
    card.save(out)
    return card


def _clear(out: Path, note: Path, names: Collection[str]) -> None:
    """Remove the files that were published before, even if that was interrupted.

    Args:
        out: folder of the dataset.
        note: file with the names of all files that may be there.
        names: names of the files that are about to be published.

    Raises:
        UsageError: a file of others has one of these names.
    """
    card = read_record(out / CARD)
    before = set(card["files"]) if card else set()
    with contextlib.suppress(OSError, ValueError):  # of a damaged note
        before |= {name for name in note.read_text(encoding="utf-8").split("\n") if name and Path(name).name == name}
    foreign = [out / name for name in sorted(names) if name not in before and os.path.lexists(out / name)]
    if foreign:
        raise UsageError(
            f"{foreign[0]} is there, and this posnet-prepare did not make it. Move it away, and run again."
        )
    write_lines(note, sorted(before | set(names)))
    (out / CARD).unlink(missing_ok=True)  # from here on the dataset is incomplete
    for name in before:
        (out / name).unlink(missing_ok=True)


def _link(file: Path, name: Path) -> None:
    """Give a file a second name, or copy it where the file system has no hard links."""
    name.unlink(missing_ok=True)
    try:
        os.link(file, name)
    except OSError:
        shutil.copy2(file, name)


def _entries(path: Path) -> int:
    """Number of entries of a dictionary, without the fillers that fairseq adds to reach a multiple of eight."""
    with open(path, "rb") as file:
        return sum(not line.startswith(b"madeupword") for line in file)
