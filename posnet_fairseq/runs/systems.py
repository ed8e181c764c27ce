"""Systems to compare: their mixers, and lists of them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posnet_fairseq.runs.parsers import names, nearest, run_name
from posnet_fairseq.runs.settings import given
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import read_lines
from posnet_fairseq.shared.user_dir import import_user_dir

LISTS = Path(__file__).with_name("lists")  # of the paper's tables


@dataclass(frozen=True)
class System:
    """A system that is trained, with each seed."""

    name: str
    mixer: str
    options: str = ""


def find_mixer(arch: str, where: str, user_dir: Path | None = None) -> Any:
    """Return the class of a mixer."""
    if user_dir:
        import_user_dir(user_dir)
    import posnet_fairseq.mixers  # noqa: F401  (registers them)
    from posnet_fairseq.registry import get_mixer, mixer_names

    mixers = [get_mixer(name) for name in mixer_names()]
    known = {mixer.arch: mixer for mixer in mixers}
    if arch not in known:
        other = [f" Did you mean {mixer.arch}?" for mixer in mixers if mixer.name == arch]
        hint = other[0] if other else nearest(arch, known)
        raise UsageError(f"{where} {arch}: choose one of {' '.join(sorted(known))}.{hint}")
    return known[arch]


def read_systems(path: str | Path, user_dir: Path | None = None) -> Sequence[System]:
    """Return the systems of a file: a name, a mixer and options in each line, # before a remark."""
    systems = []
    for number, line in enumerate(read_lines(path, small=True), 1):
        words = line.partition("#")[0].strip().split(maxsplit=2)
        if len(words) == 1:
            raise UsageError(f"{path}, line {number}: {words[0]!r} stands alone. Give a name, a mixer and its options.")
        if words:
            systems.append(System(*words))
    return check(systems, str(path), user_dir)


def check(systems: Sequence[System], where: str, user_dir: Path | None = None) -> Sequence[System]:
    """Return the systems, if they can be compared."""
    if not systems:
        raise UsageError(f"{where} names no system. Name at least one, such as transformer_pos.")
    found: set[str] = set()
    for system in systems:
        try:
            run_name(system.name)
        except ValueError as error:
            raise UsageError(f"{where}: {system.name!r}: {error}") from error
        if system.name in found:
            raise UsageError(f"{where}: {system.name} is there twice. Give each system a name of its own.")
        found.add(system.name)
        find_mixer(system.mixer, where, user_dir)
    return systems


def find_list(text: str) -> Path:
    """Return the file of a list of systems: a path, or the name of a list that comes with posnet."""
    lists = {path.stem: path for path in sorted(LISTS.glob("*.txt"))}
    given, *others = text.split("\0")
    if others:
        raise ValueError(f"{1 + len(others)} files were given: give one, or none and mixers.")
    if Path(given).exists() or "/" in given:
        return Path(given).absolute()
    if given.removesuffix(".txt") not in lists:
        known = f"Lists: {', '.join(lists)}.{nearest(given, lists)}"
        raise ValueError(f"{given}: there is no such file or list of systems. {known}")
    return lists[given.removesuffix(".txt")]


def chosen(path: Path | None, mixers: str, user_dir: Path | None = None) -> tuple[str, Sequence[System]]:
    """Return the name of a comparison, and its systems: of a file, or one for each of some mixers.

    Args:
        path: file of systems, or None.
        mixers: names between spaces or commas, "" if there is a file.
    """
    if path and mixers:
        raise UsageError(f"{given('mixers', mixers)} beside {path}: give one of them.")
    if path:
        return path.stem, read_systems(path, user_dir)
    found = names(mixers)
    if not found:
        raise UsageError("nothing to compare. Give a file of recipes/systems, or --mixers transformer_pos,rposnet.")
    number = f"{len(found)}-mixers-{hashlib.sha256(mixers.encode()).hexdigest()[:6]}"
    name = "+".join(found) if len(found) <= 4 else number
    return name, check([System(mixer, mixer) for mixer in found], "--mixers", user_dir)
