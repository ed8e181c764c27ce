"""Records of what was made: JSON files with sizes, hashes and versions."""

import contextlib
import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from posnet_fairseq.shared.files import read_small


def installed_versions(*packages: str) -> dict[str, str]:
    """Versions of the packages that are installed, by name."""
    versions = {}
    for package in packages:
        with contextlib.suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def read_record(path: Path) -> dict[str, Any] | None:
    """The content of a record or card of a dataset, or None if there is none that posnet-prepare wrote."""
    record = read_json(path)
    if not isinstance(record, dict) or not {"key", "files"} <= record.keys() or not isinstance(record["files"], dict):
        return None
    # A name with a folder in it would be one of another place's files.
    described = all(
        Path(name).name == name and isinstance(about, dict) and {"bytes", "changed", "sha256"} <= about.keys()
        for name, about in record["files"].items()
    )
    return record if described else None


def read_json(path: Path) -> object:
    """The content of a JSON file, None if it is not there or damaged, whatever the damage."""
    try:
        return json.loads(read_small(path))
    except (RecursionError, ValueError):
        return None


def sealed(entries: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a JSON object with their hash as the entry ``sha256``, which tells whether one was changed."""
    others = {name: entry for name, entry in entries.items() if name != "sha256"}
    return others | {"sha256": hashlib.sha256(json.dumps(others, sort_keys=True).encode()).hexdigest()}


def describe(folder: Path) -> dict[str, dict[str, Any]]:
    """Size, time of change and SHA-256 of every file of a folder, by name."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return {path.name: {**_look(path), "sha256": digest(path, "sha256")} for path in files}


def are_intact(folder: Path, files: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether all files of :func:`describe` are there and unchanged. Only files with another date are read."""
    for name, about in files.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != about["bytes"]:
            return False
        if _look(path)["changed"] != about["changed"] and digest(path, "sha256") != about["sha256"]:
            return False
    return True


def _look(path: Path) -> dict[str, int]:
    status = path.stat()
    return {"bytes": status.st_size, "changed": status.st_mtime_ns}


def digest(path: Path | str, algorithm: str) -> str:
    """The hash of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()
