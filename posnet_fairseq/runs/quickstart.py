"""The quickstart: a Transformer and rPosNet trained side by side on real text, and compared."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from posnet_eval.inputs.configuration import read_plan
from posnet_fairseq.runs.compare import ComparisonSettings, compare
from posnet_fairseq.runs.settings import names
from posnet_fairseq.shared.errors import visible
from posnet_fairseq.text.plain import read_parallel

UPDATES = 2000
SAMPLES = 6


@dataclass(frozen=True, kw_only=True)
class QuickstartSettings(ComparisonSettings):
    """Settings of a comparison, with defaults of its own."""

    @classmethod
    def completed(cls, texts: dict[str, str]) -> dict[str, str]:
        """Return the texts with the defaults of the quickstart."""
        texts = {"dataset": "quickstart.en-de", "size": "tiny", "updates": str(UPDATES), "jobs": "2"} | texts
        if "systems" not in texts:
            texts.setdefault("mixers", "transformer_pos rposnet")
            texts.setdefault("baselines", " ".join(names(texts["mixers"])[:1]))
        if "gpus" not in texts:
            texts.setdefault("cpus", "1")
        if texts["updates"].isdecimal():
            updates = int(texts["updates"])
            texts.setdefault("interval", str(-(-updates // 20)))
            texts.setdefault("average", "5" if updates >= 100 else "1")
        return super().completed(texts)


def quickstart(settings: QuickstartSettings) -> None:
    """Train, compare, and show a few translations."""
    # Runs of another length have names of their own.
    suffix = "" if settings.updates == UPDATES else f"_u{settings.updates}"
    folder = compare(settings, f"quickstart{suffix}", suffix)
    if not settings.dry_run:
        show_samples(folder / "comparison.yaml")


def sample_indices(sources: Sequence[str]) -> list[int]:
    """Return evenly spread sentences of a length at which a small model shows what it can do."""
    fitting = [i for i, source in enumerate(sources) if 4 <= len(source.split()) <= 10]
    return fitting[:: max(1, len(fitting) // SAMPLES)][:SAMPLES]


def show_samples(path: Path) -> None:
    """Print those of the first test set."""
    plan = read_plan(path)
    test_set = plan.test_sets[0]
    outputs = {plan.systems[system]: runs[0] for system, runs in test_set.outputs.items()}
    labels = ["source", *outputs, "reference"]
    texts = read_parallel(test_set.source, *outputs.values(), *test_set.references)
    width = max(map(len, labels))
    console = Console(highlight=False)
    for index in sample_indices(texts[0]):
        console.print()
        for label, lines in zip(labels, texts, strict=True):
            console.print(escape(f"{label:>{width}}  {visible(lines[index])}"), soft_wrap=True)
