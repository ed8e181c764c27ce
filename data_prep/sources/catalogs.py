"""Translated interface texts of open-source programs, read straight from their packages.

The packages are under the Apache License 2.0. Their texts are short: half of them have at most seven words.
"""

import hashlib
import json
import zipfile
from dataclasses import dataclass

import polib

# What the programs call a language, where that is not its code: simplified Chinese.
_NAMES = {"zh": ("zh-Hans", "zh_Hans", "zh_CN")}


@dataclass(frozen=True)
class Text:
    """A text and its translation, with the document it belongs to: training and test share no document."""

    document: str
    source: str
    target: str


def read_wheel(path, language):
    """All texts of a package and their translations from English into `language`, such as ``de``."""
    languages = _NAMES.get(language, (language,))
    with zipfile.ZipFile(path) as archive:
        for name in sorted(archive.namelist()):
            if name.endswith(tuple(f"/translations/{one}.json" for one in languages)):
                yield from _read_json(archive, name)
            elif name.endswith(".po") and any(f"/locale/{one}/" in name for one in languages):
                yield from _read_gettext(archive, name)


def _read_json(archive, name):
    """A folder of JSON files, one a language, whose texts share their paths of keys. The folder is a document."""
    folder = name.rpartition("/")[0] + "/"
    english = dict(_leaves(json.loads(archive.read(f"{folder}en.json"))))
    for path, target in _leaves(json.loads(archive.read(name))):
        if path in english:
            yield Text(folder, english[path], target)


def _leaves(node, path=()):
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _leaves(value, (*path, key))
    elif isinstance(node, str):
        yield path, node


def _read_gettext(archive, name, documents=40):
    """A gettext catalog. It knows no documents, so its texts are spread over some by their hash."""
    for entry in polib.pofile(archive.read(name).decode("utf-8")):
        if entry.translated() and not entry.obsolete and not entry.msgid_plural:
            bucket = int(hashlib.sha256(entry.msgid.encode()).hexdigest(), 16) % documents
            yield Text(f"{name}/{bucket}", entry.msgid, entry.msgstr)
