"""The metrics, a file each. They are imported when asked for: BLEURT and COMET take seconds."""

import importlib

from posnet_fairseq.shared.errors import UsageError

METRICS = {
    "bleu": "bleu.Bleu",
    "chrf": "chrf.Chrf",
    "ter": "ter.Ter",
    "bleurt": "bleurt.Bleurt",
    "comet": "comet.Comet",
}


def get_metric(name, options):
    """A metric by its name.

    Args:
        name: a key of `METRICS`.
        options: :class:`posnet_eval.metrics.base.MetricOptions`.

    Raises:
        UsageError: there is no such metric.
    """
    if name not in METRICS:
        raise UsageError(f"metric {name!r}: there is none of this name. Choose from {', '.join(METRICS)}.")
    module, attribute = METRICS[name].split(".")
    return getattr(importlib.import_module(f"posnet_eval.metrics.{module}"), attribute)(options)
