"""The stages that read the user's own files."""

import itertools
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from posnet_data_prep.dataset import SETS
from posnet_data_prep.sources.oddities import Oddities
from posnet_data_prep.sources.parts import Part, add_oddities, file_names, tokenized_lines, write_set
from posnet_data_prep.sources.readers import read_table
from posnet_fairseq.shared.compressed import has_compressed_name, plain_suffix
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import check_file, is_blank, write_lines
from posnet_fairseq.shared.progress import ProgressReporter
from posnet_fairseq.shared.records import digest
from posnet_fairseq.shared.stages import FolderStage
from posnet_fairseq.text.plain import PlainText, iterate_text

COMPRESSION = 3.5  # bytes of text for each byte of a compressed file, about
PARTS = 20  # of a text without validation and test set, each becomes one part


def is_table(path: Path) -> bool:
    """Return whether the name of a file, compressed or not, says that it has two columns."""
    return plain_suffix(path) == ".tsv"


def own_part(paths: Sequence[Path], weight: int) -> Part:
    """Return the user's own files of source and target, or one table."""
    return Part(read_table if is_table(paths[0]) else iterate_text, paths, weight=weight)


def own_pairs(stages: Path, sets: Mapping[str, Sequence[Part]], languages: Sequence[str]) -> tuple[FolderStage, float]:
    """Return the stage that reads sentence pairs, the parts of each set, and by what weights multiply its size."""

    def read(folder: Path, report: ProgressReporter) -> dict[str, Any]:
        return {name: write_set(folder, name, languages, parts, names, report) for name, parts in sets.items()}

    paths = {name: [path for part in parts for path in part.paths] for name, parts in sets.items()}
    names = file_names(itertools.chain(*paths.values()))
    sizes = [(_plain_size(part.paths), part.weight) for parts in sets.values() for part in parts]
    size = sum(plain for plain, _ in sizes)
    growth = sum(plain * weight for plain, weight in sizes) / max(1, size)
    settings: dict[str, Any] = {name: [[is_table(path), digest(path)] for path in of] for name, of in paths.items()}
    marks = {name: [[part.tag, part.weight] for part in parts] for name, parts in sets.items()}
    if any(part.is_marked for parts in sets.values() for part in parts):  # others need not be made again
        settings["marks"] = marks
    return FolderStage(stages / "read", read, {**settings, "languages": list(languages)}, size=size), growth


def own_text(stages: Path, files: Sequence[Path], ending: str, seed: int | None) -> FolderStage:
    """Return the stage that reads text of one language, a sentence or paragraph a line, without blank lines.

    Of one text, the last two twentieths become validation and test set. With a seed, lines are put in random order.
    """
    if len(files) == 2:
        raise UsageError("--valid and --test belong together. Give both, or none to take them off the end of --train.")

    names = file_names(files)

    def read(folder: Path, report: ProgressReporter) -> dict[str, Any]:
        texts, said = [], list[dict[str, Any]]()
        for path in files:
            oddities, odd, lines = Oddities(), dict[str, dict[str, Any]](), []
            for line in iterate_text(path):
                oddities.add(line)
                if not is_blank(line):
                    lines.append(line)
            texts.append(lines)
            add_oddities(odd, oddities, path, names)
            said.append({"tokenized": tokenized_lines(PlainText(lines), path, names), "odd": odd})
        if len(texts) == 1:
            lines, part = texts[0], len(texts[0]) // PARTS or 1
            texts = [lines[: -2 * part], lines[-2 * part : -part], lines[-part:]]
        said += [{}] * (len(SETS) - len(said))  # of one text, all is said of the training set
        found = {}
        for name, lines, of_file in zip(SETS, texts, said, strict=False):
            found[name] = {"lines": len(lines), **of_file}
            if seed is not None:
                random.Random(seed).shuffle(lines)
            write_lines(folder / f"{name}.{ending}", lines)
        return found

    size = _plain_size(files)
    return FolderStage(stages / "read", read, {"files": list(map(digest, files)), "shuffle": seed}, size=size)


def _plain_size(paths: Iterable[Path]) -> int:
    """Return the bytes of files after decompression, about."""
    size = 0.0
    for path in paths:
        check_file(path)
        size += path.stat().st_size * (COMPRESSION if has_compressed_name(path) else 1)
    return int(size)
