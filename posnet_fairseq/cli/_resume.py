"""Finished translations beside the output of posnet-translate, from which an interrupted command goes on."""

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from posnet_fairseq import __version__
from posnet_fairseq.cli._text import files_of_data, files_of_models
from posnet_fairseq.inference.translator import Translation
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import check_place, path_text
from posnet_fairseq.shared.journal import Journal
from posnet_fairseq.shared.output_paths import resolved
from posnet_fairseq.shared.records import digest

_ENDING = ".partial"
_LONGEST = 255  # bytes of a name on Linux
# Options that change no translation, or that are looked at otherwise: the text, the files of the data, the device.
_WITHOUT_EFFECT = {"input", "prefix", "output", "processes", "resume", "stream", "data", "cpu"}
_BINARISED = {".idx", ".bin"}


class FinishedBatches:
    """Translations of the batches that are done, in the file OUTPUT.partial.

    Args:
        path: of the file.
        work: plain values that the translations depend on: see :func:`work_of`.
        resume: refuse the translations of other work, instead of beginning anew.

    Attributes:
        done: translations of the batches that an earlier attempt has finished, in order.

    Raises:
        UsageError: the file cannot be gone on from.
    """

    def __init__(self, path: Path, work: dict[str, Any], resume: bool) -> None:
        self._journal, self._can_add = Journal(path, work, resume), True
        try:
            self.done = [[_translations(found) for found in batch] for batch in self._journal.records]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{path} is damaged. Remove it to begin anew.") from error

    def add(self, batch: Sequence[Sequence[Translation]]) -> None:
        """Keep the translations of the next batch. If that fails, work goes on without keeping any."""
        if not self._can_add:
            return
        try:
            self._journal.append([[_entries(each) for each in found] for found in batch])
        except OSError as error:
            print(
                f"posnet-translate: {self._journal.path} cannot be written ({error.strerror}): what is translated from "
                "here on is lost if the command is interrupted.",
                file=sys.stderr,
            )
            self._can_add = False

    def close(self) -> None:
        """Leave the file to a later attempt, because this one ends without an output."""
        self._journal.close()

    def remove(self) -> None:
        """Remove the file, because the output is written."""
        self._journal.remove()


def place_beside(output: str, inputs: Sequence[str | Path]) -> Path | None:
    """Where finished translations are kept; None for a stream, or a name that is too long to be made longer.

    Args:
        output: path of the output.
        inputs: paths of files that are read, none of which may be overwritten.

    Raises:
        UsageError: it is one of the inputs, or nothing can be written there.
    """
    if output == "-":
        return None
    place, is_stream = resolved(output, f"--output {output}")
    if is_stream or len(os.fsencode(place.name + _ENDING)) > _LONGEST:
        return None
    place = place.with_name(place.name + _ENDING)
    check_place(place, "", inputs)
    return place


def work_of(
    options: argparse.Namespace,
    parser: argparse.ArgumentParser,
    data: Path,
    device: str,
    packed: bool | None,
    *texts: Sequence[str] | None,
) -> dict[str, Any]:
    """All that translations depend on: texts, contents of files, options, device and versions.

    Args:
        options: of the command line.
        parser: which read them.
        data: directory that the dictionaries were read from.
        device: type of the devices.
        packed: whether weights are packed, where a measurement decides that.
        texts: lines to translate, and what the translations begin with.
    """
    paths = {action.dest for action in parser._actions if action.type is path_text}
    work: dict[str, Any] = {
        "posnet": __version__,
        "torch": torch.__version__,
        "input": hashlib.sha256(json.dumps(texts).encode()).hexdigest(),
        "device": device,
        "packed_weights": packed,
        "data": [digest(path, "sha256") for path in _files(data)],
    }
    for name, value in vars(options).items():
        if name not in _WITHOUT_EFFECT:
            given = value if isinstance(value, list) else [value]
            work[name] = [_contents(path) for path in given if path] if name in paths else value
    return work


def _contents(path: str) -> list[str]:
    """Hashes of a file, or of the files of a model's folder that it is read from."""
    return [digest(file, "sha256") for file in sorted(files_of_models([path])) if file.is_file()]


def _files(folder: Path) -> list[Path]:
    """Files of a dataset that tell how text is split into tokens."""
    return sorted(path for path in files_of_data(folder) if path.is_file() and path.suffix not in _BINARISED)


def _entries(translation: Translation) -> dict[str, Any]:
    """All of a translation that is printed, as values that json writes without a loss."""
    return {name: value for name, value in vars(translation).items() if name != "attention"}


def _translations(found: list[dict[str, Any]]) -> list[Translation]:
    """The translations of a line."""
    translations = []
    for each in found:
        pairs = each["alignment"]
        alignment = None if pairs is None else tuple((source, target) for source, target in pairs)
        tokens = {name: tuple(each[name]) for name in ("tokens", "source_tokens")}
        translations.append(Translation(**each | tokens | {"alignment": alignment}))
    return translations
