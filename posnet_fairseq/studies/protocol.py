"""Protocols of studies: what is trained, with which settings and seeds, and how its translation is searched."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from posnet_fairseq.runs.systems import System, check
from posnet_fairseq.runs.values import nearest, seed_numbers
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.schema import read_yaml

PROTOCOLS = Path(__file__).parent


@dataclass(frozen=True)
class Claim:
    """A claim of a paper that a study tests.

    Attributes:
        says: what it says, in a sentence without a full stop.
        source: where it is said.
        system: that it is about.
        expected: "better" or "worse" than the other, or "equal".
        other: system.
    """

    says: str
    source: str
    system: str
    expected: str
    other: str


@dataclass(frozen=True)
class Study:
    """A protocol.

    Attributes:
        name: of the study.
        settings: of all runs, by name, as text; see :class:`posnet_fairseq.runs.run_settings.RunSettings`.
        beams: sizes of the beam, of which each run takes the one with the highest BLEU on the validation set.
        baselines: two systems that all others are compared with.
        systems: in the order in which they are trained.
        seeds: of each system, by its name.
        test_sets: what they have, by name.
        literature: settings of the :class:`~posnet_fairseq.text.tokenizers.Tokenizer` by which translations and
            references get the form in which the literature scores them; None: they are scored as they are only.
        claims: that are tested, on the first test set.
        margin: differences in BLEU below it mean that systems are equally good.
    """

    name: str
    settings: Mapping[str, str]
    beams: tuple[int, ...]
    baselines: tuple[str, str]
    systems: Sequence[System]
    seeds: Mapping[str, tuple[int, ...]]
    test_sets: Mapping[str, str]
    literature: Mapping[str, bool] | None
    claims: Sequence[Claim]
    margin: float

    @property
    def metrics(self) -> list[str]:
        """The names of :func:`posnet_fairseq.studies.metrics.metrics_of` the study."""
        return ["bleu", "chrf", *([] if self.literature is None else ["bleu_literature"])]

    def system(self, name: str) -> System:
        """The system of a name."""
        return next(system for system in self.systems if system.name == name)


def known_studies() -> tuple[str, ...]:
    """The names of all studies."""
    return tuple(path.stem for path in sorted(PROTOCOLS.glob("*.yaml")))


def read_study(name: str) -> Study:
    """The protocol of a study.

    Raises:
        UsageError: there is no such study.
    """
    if name not in known_studies():
        raise UsageError(
            f"{name}: there is no such study. Choose one of {', '.join(known_studies())}."
            f"{nearest(name, known_studies())}"
        )
    content = read_yaml(PROTOCOLS / f"{name}.yaml")
    systems = [System(each, about["mixer"], about["options"]) for each, about in content["systems"].items()]
    check(systems, f"{name}.yaml")
    first, second = content["baselines"].split()
    return Study(
        name,
        content["settings"],
        tuple(map(int, content["beams"].split())),
        (first, second),
        systems,
        {each: seed_numbers(about["seeds"]) for each, about in content["systems"].items()},
        content["test_sets"],
        {name: text == "true" for name, text in content["literature"].items()} if "literature" in content else None,
        [Claim(**claim) for claim in content["claims"]],
        float(content["margin"]),
    )
