"""The stages that read the user's own files: sentence pairs, or text of one language."""

import itertools
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from posnet_data_prep.datasets import SETS
from posnet_data_prep.sources.parallel import Part, tokenized_lines, write_set
from posnet_data_prep.sources.readers import Reader
from posnet_fairseq.shared.compressed import has_compressed_name, plain_suffix
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import is_blank, write_lines
from posnet_fairseq.shared.progress import ProgressReporter, shown
from posnet_fairseq.shared.records import digest
from posnet_fairseq.shared.stages import Stage
from posnet_fairseq.text.plain import PlainText

COMPRESSION = 3.5  # bytes of text for each byte of a compressed file, about
# Share of a text without validation and test sets that becomes each of them: one part of 20.
PARTS = 20


def own_pairs(sets: Mapping[str, Sequence[Path]], languages: Sequence[str]) -> Stage:
    """The stage that reads sentence pairs.

    Args:
        sets: files of each set: source, target, source, target ..., and tables, which end in .tsv.
        languages: source and target.

    Raises:
        UsageError: a file is missing, or is no regular file.
    """
    _check_files([path for paths in sets.values() for path in paths])

    def read(folder: Path, report: ProgressReporter) -> dict[str, Any]:
        reader, counts = Reader(strict=True), {}
        for name, paths in sets.items():
            counts[name] = write_set(folder, name, languages, reader, _parts(paths), report)
            if not counts[name]["lines"]:
                raise UsageError(f"{' and '.join(map(str, paths))}: there is no text in it. Give other files.")
        return counts

    options: dict[str, Any] = {
        name: [[is_table(path), digest(path, "sha256")] for path in paths] for name, paths in sets.items()
    }
    options["languages"] = list(languages)
    return Stage("read", read, options, size=sum(_plain_size(path) for paths in sets.values() for path in paths))


def _parts(paths: Sequence[Path]) -> list[Part]:
    rest, parts = iter(paths), []
    for path in rest:
        if is_table(path):
            parts.append(Part(shown(path.name), "table", [path]))
        else:
            parts.append(Part(shown(path.name), "own", [path, next(rest)]))
    return parts


def own_text(train: Path, valid: Path | None, test: Path | None, ending: str, seed: int | None) -> Stage:
    """The stage that reads text of one language, a sentence or paragraph a line. Blank lines are left out.

    Args:
        train: text of the training set.
        valid, test: texts of the other sets. If both are None, these are the last two twentieths of `train`.
        ending: suffix of the files that are written.
        seed: seed of the random order in which the lines of each set are put; None: they stay in order.

    Raises:
        UsageError: only one of `valid` and `test` is given, a file is missing, or is no regular file.
    """
    if (valid is None) != (test is None):
        raise UsageError("--valid and --test belong together. Give both, or none to take them off the end of --train.")
    files = [path for path in (train, valid, test) if path]
    _check_files(files)

    def read(folder: Path, report: ProgressReporter) -> dict[str, Any]:
        sets = _given_sets(files) if len(files) == len(SETS) else _sets_of_one_text(train)
        found = {}
        for (name, lines), path in zip(sets.items(), itertools.cycle(files), strict=False):
            found[name] = {"lines": len(lines), "tokenized": tokenized_lines(PlainText(lines), path)}
            if seed is not None:
                random.Random(seed).shuffle(lines)
            write_lines(folder / f"{name}.{ending}", lines)
        return found

    options = {"files": [digest(path, "sha256") for path in files], "shuffle": seed}
    return Stage("read", read, options, size=sum(map(_plain_size, files)))


def _given_sets(files: Sequence[Path]) -> dict[str, list[str]]:
    sets = {name: _lines_with_text(path) for name, path in zip(SETS, files, strict=True)}
    for path, lines in zip(files, sets.values(), strict=True):
        if not lines:
            raise UsageError(f"{path} has no text. Give another file.")
    return sets


def _sets_of_one_text(path: Path) -> dict[str, list[str]]:
    lines = _lines_with_text(path)
    part = len(lines) // PARTS
    if not part:
        raise UsageError(
            f"{path} has {len(lines)} lines with text, too few to take a validation and a test set off its end. "
            f"Give {PARTS} lines or more, or files for --valid and --test."
        )
    return {"train": lines[: -2 * part], "valid": lines[-2 * part : -part], "test": lines[-part:]}


def _lines_with_text(path: Path) -> list[str]:
    return [line for line in Reader(strict=True).own(path) if not is_blank(line)]


def _check_files(paths: Sequence[Path]) -> None:
    """Refuse files that cannot be read more than once.

    Raises:
        UsageError: a file is missing, or is no regular file.
    """
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path}: there is no such file. Check the path.")
        if not path.is_file():
            raise UsageError(f"{path} is a folder or a pipe. Give a file, which can be read again.")


def _plain_size(path: Path) -> int:
    """Bytes of a file after decompression, about."""
    return int(path.stat().st_size * (COMPRESSION if has_compressed_name(path) else 1))


def is_table(path: Path) -> bool:
    """Whether the name of a file, compressed or not, says that it has two columns."""
    return plain_suffix(path) == ".tsv"
