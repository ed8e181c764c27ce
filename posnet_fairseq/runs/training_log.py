"""What fairseq-train writes with ``--log-format json``."""

import json
import re
from pathlib import Path

_RECORD = re.compile(r"\| INFO \| (train_inner|valid) \| (\{.*\})\s*$")


def records(path):
    """(kind, values) of every record in a log, kind ``train_inner`` or ``valid``, numbers as floats.

    A line that is not written to its end yet, or is damaged, is left out.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        match = _RECORD.search(line)
        if match:
            try:
                values = json.loads(match.group(2))
            except ValueError:
                continue
            yield match.group(1), {name: _number(value) for name, value in values.items()}


def _number(value):
    try:
        return float(value)
    except (TypeError, ValueError):
        return value
