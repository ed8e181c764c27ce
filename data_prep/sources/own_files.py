"""The stages that read the user's own files: sentence pairs, or text of one language."""

import itertools
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from posnet_data_prep.dataset import SETS
from posnet_data_prep.sources.readers import Part, Reader, tokenized_lines, write_set
from posnet_fairseq.shared.compressed import has_compressed_name, plain_suffix
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import check_file, is_blank, write_lines
from posnet_fairseq.shared.progress import ProgressReporter, shown
from posnet_fairseq.shared.records import digest
from posnet_fairseq.shared.stages import FolderStage
from posnet_fairseq.text.plain import PlainText

COMPRESSION = 3.5  # bytes of text for each byte of a compressed file, about
PARTS = 20  # of a text without validation and test set, each becomes one part


def is_table(path: Path) -> bool:
    """Return whether the name of a file, compressed or not, says that it has two columns."""
    return plain_suffix(path) == ".tsv"


def own_pairs(stages: Path, sets: Mapping[str, Sequence[Path]], languages: Sequence[str]) -> FolderStage:
    """Return the stage that reads sentence pairs: of each set, files source, target, source, target ..., and tables."""

    def read(folder: Path, report: ProgressReporter) -> dict[str, Any]:
        reader, counts = Reader(strict=True), {}
        for name, paths in sets.items():
            rest = iter(paths)
            forms = (("table", [path]) if is_table(path) else ("own", [path, next(rest)]) for path in rest)
            parts = [Part(shown(files[0].name), form, files) for form, files in forms]
            counts[name] = write_set(folder, name, languages, reader, parts, report)
        return counts

    size = _plain_size(path for paths in sets.values() for path in paths)
    settings = {name: [[is_table(path), digest(path)] for path in paths] for name, paths in sets.items()}
    return FolderStage(stages / "read", read, {**settings, "languages": list(languages)}, size=size)


def own_text(stages: Path, files: Sequence[Path], ending: str, seed: int | None) -> FolderStage:
    """Return the stage that reads text of one language, a sentence or paragraph a line, without blank lines.

    Of one text, the last two twentieths become validation and test set. With a seed, lines are put in random order.
    """
    if len(files) == 2:
        raise UsageError("--valid and --test belong together. Give both, or none to take them off the end of --train.")

    def read(folder: Path, report: ProgressReporter) -> dict[str, Any]:
        texts = [[line for line in Reader(strict=True).own(path) if not is_blank(line)] for path in files]
        if len(texts) == 1:
            lines, part = texts[0], len(texts[0]) // PARTS or 1
            texts = [lines[: -2 * part], lines[-2 * part : -part], lines[-part:]]
        found = {}
        for name, lines, path in zip(SETS, texts, itertools.cycle(files), strict=False):
            found[name] = {"lines": len(lines), "tokenized": tokenized_lines(PlainText(lines), path)}
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
