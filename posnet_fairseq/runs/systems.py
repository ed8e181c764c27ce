"""Systems to compare: their mixers, and lists of them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posnet_fairseq.runs.parsers import check_known, names, run_name
from posnet_fairseq.shared.errors import UsageError, nearest
from posnet_fairseq.shared.files import read_lines

LISTS = Path(__file__).with_name("lists")  # of the paper's tables


@dataclass(frozen=True)
class System:
    """A system: the name of its runs, its mixer as in the name of an architecture, and options of fairseq-train."""

    name: str
    mixer: str
    options: str = ""


def find_mixer(arch: str, where: str) -> Any:
    """Return the class of a mixer by its name in architectures; ``where`` it was given is for the sentence."""
    import posnet_fairseq.mixers  # noqa: F401  (registers them)
    from posnet_fairseq.registry import get_mixer, mixer_names

    mixers = [get_mixer(name) for name in mixer_names()]
    known = {mixer.arch: mixer for mixer in sorted(mixers, key=lambda mixer: mixer.arch)}
    other = [f" Did you mean {mixer.arch}?" for mixer in mixers if mixer.name == arch]
    check_known(f"{where} {arch or '(none)'}", arch, known, *other)
    return known[arch]


def read_systems(path: str | Path) -> Sequence[System]:
    """Return the systems of a file: a name, a mixer and options in each line, # before a remark."""
    lines = (line.partition("#")[0].strip().split(maxsplit=2) for line in read_lines(path, small=True))
    return _checked([System(*words, *[""] * (2 - len(words))) for words in lines if words], str(path))


def _checked(systems: Sequence[System], where: str) -> Sequence[System]:
    """Return the systems, if they can be compared; ``where`` they come from is for the sentence."""
    found: set[str] = set()
    for system in systems:
        try:
            if run_name(system.name) in found:
                raise ValueError("this name is there twice. Give each system a name of its own.")
        except ValueError as error:
            raise UsageError(f"{where}: {system.name!r}: {error}") from error
        found.add(system.name)
        find_mixer(system.mixer, f"{where}, system {system.name}: mixer")
    return systems


def find_list(text: str) -> Path:
    """Return the file of a list of systems: a path, or the name of a list that comes with posnet."""
    lists = {path.stem: path for path in sorted(LISTS.glob("*.txt"))}
    if Path(text).is_file() or "/" in text:
        return Path(text).absolute()
    if text.removesuffix(".txt") not in lists:
        raise ValueError(f"there is no such file or list of systems. Lists: {', '.join(lists)}.{nearest(text, lists)}")
    return lists[text.removesuffix(".txt")]


def chosen(path: Path | None, mixers: str) -> tuple[str, Sequence[System]]:
    """Return the name of a comparison, and its systems: of a file, or one for each of some mixers."""
    words = names(mixers)
    systems = read_systems(path) if path else _checked([System(each, each) for each in words], "--mixers")
    if not systems or (path and words):
        raise UsageError(
            f"{path or '--mixers'}: give one file of systems with a line at least, such as tables-2-3, or --mixers "
            "transformer_pos,rposnet."
        )
    if path:
        return path.stem, systems
    digest = hashlib.sha256(" ".join(words).encode()).hexdigest()
    return "+".join(words) if len(words) <= 4 else f"{len(words)}-mixers-{digest[:6]}", systems
