"""What runs of versions up to 0.3 have left: records of options of commands, and results that are only in logs."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from posnet_fairseq.shared.criterions import PREFIX

# Settings of posnet-run by the names of what recorded them: mostly options of fairseq-train.
_RENAMED = {
    "--warmup-updates": "--warmup",
    "--max-update": "--updates",
    "--save-interval-updates": "--interval",
    "--max-source-positions": "--max-positions",
    "tokens an update": "--tokens",
    "--num": "--average",
}
# Options that all trainings were given, which were recorded beside those of --options.
_GIVEN = {
    *("argument 1", "--user-dir", "--save-dir", "--log-format", "--log-interval", "--max-target-positions"),
    *("--share-all-embeddings", "--share-decoder-input-output-embed", "--skip-invalid-size-inputs-valid-test"),
    *("--best-checkpoint-metric", "--required-batch-size-multiple", "--no-epoch-checkpoints"),
}
_METHOD = {
    "--criterion": ("label_smoothed_cross_entropy", f"{PREFIX}label_smoothed_cross_entropy"),
    "--optimizer": ("adam", "fused_adam"),
    "--lr-scheduler": ("inverse_sqrt",),
}


def updated(before: Mapping[str, str], now: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings in a record in the form of those of today's stage, with which they are compared."""
    if not {"argument 1", "--source", "-m"} & before.keys():
        return before
    texts = {}
    for text, value in before.items():
        name, _, behind = text.partition("=")  # --gate=none was recorded so
        value = behind or value
        if name == "--arch":
            texts["--mixer"], _, texts["--size"] = value.rpartition("_")
        elif name in now:
            texts[name] = value.replace(" ", ",") if name == "--metrics" else value
            if {value, now[name]} <= {*_METHOD.get(name, ())}:  # which were recorded as the same
                texts[name] = now[name]
        elif name in _RENAMED:
            texts[_RENAMED[name]] = value
        elif name not in _GIVEN and value not in _METHOD.get(name, ()):
            texts[name] = value
    if "tokens an update" not in before:  # of a training, all options count
        texts = {name: text for name, text in texts.items() if name in now}
    for name, own in _RENAMED.items():
        if name in now and own in now:  # --options had replaced it
            texts[own] = str(now[own])
    return {name: int(value) if isinstance(now.get(name), int) else value for name, value in texts.items()}


def decoding_speed(log: str) -> float | None:
    """Return sentences a second by the log of posnet-translate; None if there were none to translate."""
    rates = re.findall(r"sentences? in .* s, ([\d.]+) sentences", log)
    return float(rates[-1]) if rates else None


def table_of_scores(log: str, test_set: str) -> str:
    """Return the table in a log of posnet-score, which had more in front of it, and the report's place behind it."""
    table = log[max(0, log.find(f"{test_set}, ")) :]
    return re.sub(r"^report: .*\n", "", table, flags=re.M)


def perplexity(log: Path) -> float:
    """Return the perplexity of the test set by the log of fairseq-eval-lm, NaN if it has none."""
    found = re.findall(r"Perplexity: ([\d.]+)", log.read_text(encoding="utf-8", errors="replace"))
    return float(found[-1]) if found else float("nan")
