"""BLEU and chrF of several systems, and which differences from a baseline are more than chance."""

from dataclasses import dataclass

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from posnet_fairseq.errors import UsageError

SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Score:
    """A corpus score of one system.

    Attributes:
        value: the metric's own scale, 0 to 100.
        interval: half the width of the bootstrap's 95% interval.
        p: sacreBLEU's p-value of the difference from the baseline; None for the baseline itself and for a
            system with the same outputs, of which the formula would say p = .001.
        mark: "↑" where the system is better than the baseline with p ≤ 0.05, "↓" where it is worse, "=" where
            all outputs are the same, else "".
    """

    value: float
    interval: float
    p: float | None = None
    mark: str = ""


def compare(systems, reference, resamples=1000):
    """Score systems against the first of them with sacreBLEU's paired bootstrap.

    Args:
        systems: dict from name to hypotheses; the first is the baseline.
        reference: as many reference translations.
        resamples: of the bootstrap.

    Returns:
        dict from system to a dict from metric to :class:`Score`; dict from metric to sacreBLEU's signature.

    Raises:
        UsageError: there is nothing to compare, or a system has another number of lines than the reference.
    """
    for name, hypotheses in systems.items():
        if len(hypotheses) != len(reference):
            raise UsageError(
                f"system {name} has {len(hypotheses)} lines, the reference {len(reference)}. Nothing was scored; "
                "translate the whole test set."
            )
    if not reference or len(systems) < 2:
        raise UsageError("a comparison needs a baseline, another system and at least one sentence.")
    metrics = {"BLEU": BLEU(references=[reference]), "chrF": CHRF(references=[reference])}
    test = PairedTest(list(systems.items()), metrics, references=None, test_type="bs", n_samples=resamples)
    signatures, results = test()
    baseline, *others = systems
    scores = {name: {} for name in systems}
    for metric in signatures:
        first, *rest = results[metric]
        scores[baseline][_plain(metric)] = Score(first.score, first.ci)
        for name, result in zip(others, rest, strict=True):
            same = systems[name] == systems[baseline]
            scores[name][_plain(metric)] = _compared(result, first, same)
    return scores, {_plain(metric): str(signature) for metric, signature in signatures.items()}


def _plain(metric):
    # sacreBLEU calls chrF "chrF2" after its beta
    return metric.removesuffix("2")


def _compared(result, baseline, same):
    if same:
        return Score(result.score, result.ci, None, "=")
    better = "↑" if result.score > baseline.score else "↓"
    return Score(result.score, result.ci, result.p_value, better if result.p_value <= SIGNIFICANT else "")
