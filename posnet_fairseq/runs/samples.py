"""A few translations of a comparison side by side."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from posnet_eval.inputs.configuration import read_plan
from posnet_fairseq.shared.errors import visible
from posnet_fairseq.text.plain import read_parallel

SAMPLES = 6


def sample_indices(sources: Sequence[str]) -> list[int]:
    """Evenly spread sentences of a length at which a small model shows what it can do."""
    fitting = [i for i, source in enumerate(sources) if 4 <= len(source.split()) <= 10]
    return fitting[:: max(1, len(fitting) // SAMPLES)][:SAMPLES]


def show_samples(path: Path) -> None:
    """Print those of the first test set.

    Args:
        path: comparison.yaml.
    """
    test_set = read_plan(path).test_sets[0]
    outputs = {system: runs[0] for system, runs in test_set.outputs.items()}
    names = ["source", *outputs, "reference"]
    texts = read_parallel(test_set.source, *outputs.values(), *test_set.references)
    width = max(map(len, names))
    console = Console(highlight=False)
    for index in sample_indices(texts[0]):
        console.print()
        for name, lines in zip(names, texts, strict=True):
            console.print(escape(f"{name:>{width}}  {visible(lines[index])}"), soft_wrap=True)
