"""Lists of systems to compare, from a file or from names of mixers."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from posnet_fairseq.runs.settings import recipe
from posnet_fairseq.runs.values import nearest
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import read_lines

LISTS = Path(__file__).with_name("lists")  # of the paper's tables
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


@dataclass(frozen=True)
class System:
    """A system that is trained, with each seed.

    Attributes:
        name: of its runs, and in tables.
        mixer: as in the name of an architecture.
        options: of fairseq-train.
    """

    name: str
    mixer: str
    options: str = ""


def read_systems(path: str | Path) -> Sequence[System]:
    """The systems of a file: a name, a mixer and options in each line, # before a remark.

    Raises:
        UsageError: there are none, or a line does not fit.
    """
    systems = []
    for number, line in enumerate(read_lines(path, small=True), 1):
        words = line.partition("#")[0].strip().split(maxsplit=2)
        if len(words) == 1:
            raise UsageError(f"{path}, line {number}: {words[0]!r} stands alone. Give a name, a mixer and its options.")
        if words:
            systems.append(System(*words))
    return check(systems, str(path))


def check(systems: Sequence[System], where: str) -> Sequence[System]:
    """The systems, if they can be compared.

    Args:
        systems: at least one.
        where: they come from, for the error's text.

    Raises:
        UsageError: they cannot.
    """
    from posnet_fairseq.registry import get_mixer, mixer_names
    from posnet_fairseq.transformer import model_options  # noqa: F401  (registers the mixers)

    names = [system.name for system in systems]
    if not systems:
        raise UsageError(f"{where} names no system. Name at least one, such as transformer_pos.")
    for name in names:
        if not _NAME.fullmatch(name):
            raise UsageError(f"{where}: {name!r} is no name: give letters, digits, dots, dashes and underscores.")
        if names.count(name) > 1:
            raise UsageError(f"{where}: {name} is there twice. Give each system a name of its own.")
    archs = {get_mixer(name).arch for name in mixer_names()}
    for system in systems:
        if system.mixer not in archs:
            get_mixer(system.mixer, where)  # names the nearest if there is none
            raise UsageError(f"{where}: {system.mixer} is called {get_mixer(system.mixer).arch} in architectures.")
    return systems


def find_list(given: str) -> Path:
    """The file of a list of systems.

    Args:
        given: path, or name of a list that comes with posnet.

    Raises:
        UsageError: it is neither.
    """
    names = {path.stem: path for path in sorted(LISTS.glob("*.txt"))}
    if Path(given).exists() or "/" in given:
        return Path(given)
    if given.removesuffix(".txt") in names:
        return names[given.removesuffix(".txt")]
    raise UsageError(
        f"{given}: there is no such file or list of systems. Lists: {', '.join(names)}.{nearest(given, names)}"
    )


def chosen(path: Path | None, mixers: str) -> tuple[str, Sequence[System]]:
    """The name of a comparison, and its systems: of a file, or one for each of some mixers.

    Args:
        path: file of systems, or None.
        mixers: names between spaces or commas, "" if there is a file.

    Raises:
        UsageError: there are no systems, or a file and mixers.
    """
    called = "MIXERS" if recipe() else "--mixers"
    if path and mixers:
        raise UsageError(f"{called}{'=' if recipe() else ' '}{mixers} beside {path}: give one of them.")
    if path:
        return path.stem, read_systems(path)
    names = mixers.replace(",", " ").split()
    if not names:
        given = 'MIXERS="transformer_pos rposnet"' if recipe() else "--mixers transformer_pos,rposnet"
        raise UsageError(f"nothing to compare. Give a file of recipes/systems, or {given}.")
    name = (
        "+".join(names) if len(names) <= 4 else f"{len(names)}-mixers-{hashlib.sha256(mixers.encode()).hexdigest()[:6]}"
    )
    return name, check([System(mixer, mixer) for mixer in names], called)
