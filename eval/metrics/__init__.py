"""The metrics. They are imported when they are used: BLEURT and COMET take seconds."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from posnet_eval.metrics.base import Metric, MetricOptions

METRICS = {
    "bleu": "sacrebleu_metrics.Bleu",
    "chrf": "sacrebleu_metrics.Chrf",
    "chrf++": "sacrebleu_metrics.ChrfPlusPlus",
    "ter": "sacrebleu_metrics.Ter",
    "bleurt": "bleurt.Bleurt",
    "comet": "comet.Comet",
    "comet-kiwi": "comet.CometKiwi",
}


def get_metric(name: str, options: "MetricOptions") -> "Metric":
    """Return a metric by its name, a key of :data:`METRICS`."""
    module, attribute = METRICS[name].split(".")
    return getattr(importlib.import_module(f"posnet_eval.metrics.{module}"), attribute)(options)
