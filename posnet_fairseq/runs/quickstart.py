"""The quickstart: a Transformer and rPosNet trained side by side on real text, and compared."""

from collections.abc import Collection
from dataclasses import dataclass

from posnet_fairseq.runs.compare import ComparisonSettings, compare
from posnet_fairseq.runs.run_settings import known_architectures
from posnet_fairseq.runs.samples import show_samples
from posnet_fairseq.runs.settings import Settings, recipe, setting
from posnet_fairseq.runs.systems import System
from posnet_fairseq.runs.values import choose, switch, whole_number
from posnet_fairseq.shared.errors import UsageError

UPDATES = 2000
# Settings of a comparison that are the quickstart's own, and taken from nowhere else.
OWN = frozenset(
    "average baselines cpus data dataset dry_run gpus interval jobs mixers node_rank nodes options runs size "
    "updates".split()
)


def _mixers(text: str) -> tuple[str, ...]:
    names = tuple(text.replace(",", " ").split())
    for name in names:
        try:
            choose(name, known_architectures())
        except ValueError as error:
            raise ValueError(name, str(error)) from error
    return names


@dataclass(frozen=True, kw_only=True)
class QuickstartSettings(Settings):
    """Settings of the quickstart."""

    updates: int = setting("updates of each training; fewer are faster and worse", UPDATES, whole_number, metavar="N")
    mixers: tuple[str, ...] = setting(
        "mixers to compare, the first with the others (default: transformer_pos rposnet)",
        ("transformer_pos", "rposnet"),
        _mixers,
    )
    dry_run: bool = setting("print the commands instead of running them", False, switch)

    @classmethod
    def variables(cls) -> Collection[str]:
        """Its own, and hyperparameters of the comparison that it makes."""
        others = ComparisonSettings.environment_names().items()
        return {*super().variables(), *(variable for variable, name in others if name not in OWN)}

    def check(self) -> None:
        """Refuse an empty list of mixers."""
        if not self.mixers:
            raise UsageError(
                f"{self.called('mixers')} is empty. Name mixers between spaces, such as transformer_pos rposnet."
            )


def quickstart(settings: QuickstartSettings) -> None:
    """Train, compare, and show a few translations.

    Raises:
        UsageError: a run failed.
    """
    # Runs of another length have names of their own.
    suffix = "" if settings.updates == UPDATES else f"_u{settings.updates}"
    own = {
        "dataset": "quickstart.en-de",
        "size": "tiny",
        "updates": str(settings.updates),
        "interval": str(-(-settings.updates // 20)),
        "average": "5" if settings.updates >= 100 else "1",
        "jobs": "2",
        "cpus": "1",
        "baselines": settings.mixers[0] + suffix,
        "dry_run": "1" if settings.dry_run else "0",
    }
    # Hyperparameters may still come from the environment of the recipe.
    outside = ComparisonSettings.environment() if recipe() else {}
    given = {name: text for name, text in outside.items() if name not in OWN} | own
    systems = [System(mixer + suffix, mixer) for mixer in settings.mixers]
    folder = compare(ComparisonSettings.parsed(given), (f"quickstart{suffix}", systems))
    if not settings.dry_run:
        show_samples(folder / "comparison.yaml")
