"""Translated interface texts of open-source programs, read straight from their packages.

The packages are under the Apache License 2.0. Their texts are short: half of them have at most seven words.
"""

import hashlib
import json
import zipfile
from dataclasses import dataclass

import polib

from posnet_data_prep.download import Wheel

WHEELS = (
    Wheel("homeassistant", "2025.12.5", "de46711e0a67d5c6bd8cc6c211fd69d285deb1c75cd1c841b45b77fab9360364"),
    Wheel("openstack-heat", "27.0.1", "6eb3e0e15da4e86a3f3c21543efcf65c5848412eb1864423ce4cff56c435897f"),
    Wheel("horizon", "27.0.0", "8a981dae4fb6626e71553aa185f6e429b0b1efb86b04b0a72c3b18ee04f1f990"),
)


@dataclass(frozen=True)
class Text:
    """A text and its translation, with the document it belongs to: training and test share no document."""

    document: str
    source: str
    target: str


def read_wheel(path, language):
    """All texts of a package and their translations from English into `language`, such as ``de``."""
    with zipfile.ZipFile(path) as archive:
        for name in sorted(archive.namelist()):
            if name.endswith(f"/translations/{language}.json"):
                yield from _read_json(archive, name, language)
            elif name.endswith(".po") and f"/locale/{language}/" in name:
                yield from _read_gettext(archive, name)


def _read_json(archive, name, language):
    """A folder of JSON files, one a language, whose texts share their paths of keys. The folder is a document."""
    folder = name.removesuffix(f"{language}.json")
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
