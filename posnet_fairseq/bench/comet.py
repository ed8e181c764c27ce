"""COMET for several systems: every text encoded once, against the library's own way, a system after the other."""

import warnings
from collections.abc import Sequence
from typing import NamedTuple

from posnet_eval.metrics.base import MetricOptions, Segment
from posnet_eval.metrics.comet import Comet
from posnet_fairseq.bench.timing import interleaved
from posnet_fairseq.shared.errors import UsageError

_ALIKE = 10  # every tenth line has one translation by all systems


class CometTimes(NamedTuple):
    """Times and agreement of both ways to score.

    Attributes:
        ours, theirs: CPU seconds of posnet and of COMET's own API, without loading the model.
        difference: the largest difference between two scores of a segment, which range from 0 to 100.
    """

    ours: float
    theirs: float
    difference: float


def against_library(
    sources: Sequence[str],
    references: Sequence[str],
    model: str,
    encoder: str | None = None,
    systems: int = 10,
    segments: int = 100,
) -> CometTimes:
    """Time the scoring of made-up systems on the CPU.

    Args:
        sources, references: lines of text.
        model, encoder: see :class:`posnet_eval.metrics.base.MetricOptions`.
        systems: number of systems; their translations are the references, each with another wrong word.
        segments: number of lines, the first ones.

    Raises:
        UsageError: there are fewer lines.
    """
    if min(len(sources), len(references)) < segments:
        raise UsageError(f"there are {min(len(sources), len(references))} lines of text, {segments} are needed.")
    sources, references = sources[:segments], references[:segments]
    outputs = [_translations(references, system) for system in range(systems)]
    metric = Comet(MetricOptions(comet_model=str(model), comet_encoder=encoder and str(encoder), cpu=True))
    network, scores = metric.networks[0], dict[str, list[float]]()

    def ours() -> None:
        corpus = [
            Segment(source, line, (reference,))
            for output in outputs
            for source, line, reference in zip(sources, output, references, strict=True)
        ]
        different = list(dict.fromkeys(corpus))
        known: dict[Segment, float] = {}
        for positions, rows in metric.statistics(different):
            known |= {different[position]: row[0] for position, row in zip(positions, rows, strict=True)}
        scores["ours"] = [known[segment] for segment in corpus]

    def theirs() -> None:
        scores["theirs"] = []
        for output in outputs:
            samples = [
                {"src": source, "mt": line, "ref": reference}
                for source, line, reference in zip(sources, output, references, strict=True)
            ]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = network.predict(samples, gpus=0, progress_bar=False).scores
            scores["theirs"] += [100 * score for score in found]

    seconds = interleaved({"ours": ours, "theirs": theirs}, rounds=1, warm_up=0)
    difference = max(abs(a - b) for a, b in zip(scores["ours"], scores["theirs"], strict=True))
    return CometTimes(seconds["ours"][0], seconds["theirs"][0], difference)


def _translations(references: Sequence[str], system: int) -> list[str]:
    """The references with a wrong word in most lines, another for every system."""
    lines = []
    for number, line in enumerate(references):
        words = line.split()
        if words and number % _ALIKE:
            words[system % len(words)] = f"x{system}"
        lines.append(" ".join(words))
    return lines
