"""python recipes/lib/lacks.py ROOT VENV [EXTRA ...]: prints what recipes need and the environment of this Python lacks.

It needs no packages.
"""

import os
import re
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path


def lacks(root: Path, venv: Path, extras: Sequence[str]) -> str:
    """The end of a sentence about what an environment lacks, "" if it lacks nothing.

    Args:
        root: of this checkout.
        venv: the environment of the Python that runs this.
        extras: of setup.py, such as dev.
    """
    found = find_spec("posnet_fairseq")
    if found is None:
        return "has no posnet"
    if not os.path.samefile(Path(found.origin).parent, root / "posnet_fairseq"):
        return f"has the posnet of another folder, {Path(found.origin).parent.parent}"
    missing = missing_packages(extras)
    if missing:
        return f"lacks packages ({', '.join(missing)})"
    # A command begins with its interpreter. It is another one where an environment was moved or copied.
    for command in ("posnet-run", "fairseq-train", "torchrun"):
        path = venv / "bin" / command
        if not path.is_file():
            return f"lacks the command {command}"
        place = re.search(r"(/.*)/bin/python", path.read_text(encoding="utf-8"))
        if not (place and os.path.exists(place[1]) and os.path.samefile(place[1], venv)):
            return "was made at another place, where its commands still look"
    return ""


def missing_packages(extras: Sequence[str]) -> list[str]:
    """Requirements of posnet and its extras that are not installed, or not in a version that fits."""
    try:
        from packaging.requirements import Requirement
    except ModuleNotFoundError:
        return ["packaging"]
    missing = []
    for requirement in map(Requirement, requires("posnet")):
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            continue
        try:
            fits = requirement.specifier.contains(version(requirement.name), prereleases=True)
        except PackageNotFoundError:
            fits = False
        if not fits:
            missing.append(str(requirement).partition(";")[0].strip())
    return missing


if __name__ == "__main__":
    print(lacks(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
