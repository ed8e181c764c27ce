"""Results that a command leaves for the process that runs it as a stage, as a JSON file."""

import contextlib
import json
import os
from typing import Any

PLACE = "POSNET_RESULT"  # variable with the path of the file


def leave_result(**values: Any) -> None:
    """Leave values, which the record of the stage has as ``result``; nothing if no stage runs this process.

    Several processes of a command may do so at once. On a full disk there is no result, and the work goes on.
    """
    if path := os.environ.get(PLACE):
        partial = f"{path}.{os.getpid()}.partial"
        with contextlib.suppress(OSError):
            with open(partial, "w", encoding="utf-8") as file:
                json.dump(values, file)
            os.replace(partial, path)
