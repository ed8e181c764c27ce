"""Results that a command leaves for the process that runs it as a stage, as a JSON file."""

import json
import os
from typing import Any

PLACE = "POSNET_RESULT"  # variable with the path of the file


def leave_result(**values: Any) -> None:
    """Leave values, which the record of the stage has as ``result``; nothing if no stage runs this process."""
    if path := os.environ.get(PLACE):
        with open(f"{path}.partial", "w", encoding="utf-8") as file:
            json.dump(values, file)
        os.replace(f"{path}.partial", path)
