"""Protocols of studies: what is trained, with which settings and seeds, and how its translation is searched."""

from pathlib import Path
from typing import Literal

from msgspec import Struct, structs

from posnet_fairseq.runs.parsers import nearest
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.schema import read_yaml

PROTOCOLS = Path(__file__).parent


class Claim(Struct, frozen=True):
    """A claim of a paper that a study tests.

    Attributes:
        says: what it says, in a sentence without a full stop.
        expected: what it is in comparison with the other.
    """

    says: str
    source: str
    system: str
    expected: Literal["better", "worse", "equal"]
    other: str


class StudySystem(Struct, frozen=True):
    """Mixer, options of fairseq-train and seeds of a system."""

    mixer: str
    options: str
    seeds: tuple[int, ...]


class Study(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A protocol, as its YAML file has it.

    Attributes:
        name: of the study, which is that of the file.
        settings: of all runs, by name, as text; see :class:`posnet_fairseq.runs.run_settings.RunSettings`.
        beams: sizes of the beam, of which each run takes the one with the highest BLEU on the validation set.
        baselines: two systems that all others are compared with.
        systems: by name, in the order in which they are trained.
        literature: settings of the :class:`~posnet_fairseq.text.tokenizers.Tokenizer` by which translations and
            references get the form in which the literature scores them; None: they are scored as they are only.
        claims: that are tested, on the first test set.
        margin: differences in BLEU below it mean that systems are equally good.
    """

    name: str = ""
    settings: dict[str, str]
    beams: tuple[int, ...]
    baselines: tuple[str, str]
    systems: dict[str, StudySystem]
    test_sets: dict[str, str]
    literature: dict[str, bool] | None = None
    claims: tuple[Claim, ...]
    margin: float


def known_studies() -> tuple[str, ...]:
    """Return the names of all studies."""
    return tuple(path.stem for path in sorted(PROTOCOLS.glob("*.yaml")))


def read_study(name: str) -> Study:
    """Return the protocol of a study."""
    known = known_studies()
    if name not in known:
        raise UsageError(f"{name}: there is no such study. Choose one of {', '.join(known)}.{nearest(name, known)}")
    return structs.replace(read_yaml(PROTOCOLS / f"{name}.yaml", Study), name=name)
