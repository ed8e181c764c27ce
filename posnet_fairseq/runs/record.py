"""Records in a run's folder: for each stage a JSON file with its command, and every attempt at it."""

import contextlib
import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from posnet_fairseq.shared.criterions import PREFIX
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import read_small, replacing
from posnet_fairseq.shared.records import installed_versions
from posnet_fairseq.shared.stages import changed

PACKAGES = ("posnet", "ve-fairseq", "fairseq-fixed", "torch", "numpy", "sentencepiece", "subword-nmt", "sacrebleu")
# Options that say where and how fast a command computes, not what: a run may go on with others.
FREE = (
    *("--cpu", "--bf16", "--fp16", "--ddp-backend", "--distributed-backend", "--distributed-world-size"),
    *("--load-checkpoint-on-all-dp-ranks", "--max-tokens", "--update-freq", "--tensorboard-logdir", "--num-workers"),
    *("--processes", "--reset-dataloader", "--compile", "--wandb-project"),
    "--finetune-from-model",  # a path: what the file has is recorded
)
# Values that mean the same: earlier versions trained with fairseq's own, which compute the same.
SAME = {
    ("--optimizer", "fused_adam"): "adam",
    ("--criterion", f"{PREFIX}label_smoothed_cross_entropy"): "label_smoothed_cross_entropy",
    ("--criterion", f"{PREFIX}cross_entropy"): "cross_entropy",
}


class Record:
    """The record of one stage.

    Args:
        path: of the JSON file.

    Attributes:
        content: ``{"settings": {option: value}, "attempts": [...], "finished": bool}``, and, when an attempt has ended,
            ``seconds`` of all attempts.
    """

    def __init__(self, path: Path | str):
        self.path = Path(path)
        self.content: dict[str, Any] = {"settings": {}, "attempts": [], "finished": False}
        if self.path.exists():
            try:
                self.content = json.loads(read_small(self.path))
                kinds = [type(self.content[name]) for name in ("settings", "attempts", "finished")]
                if kinds != [dict, list, bool] or not all(isinstance(each, dict) for each in self.content["attempts"]):
                    raise TypeError
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise UsageError(
                    f"{path} is no record of a stage (it may be cut short). Move it away and run again: a training "
                    "goes on from its checkpoints, another stage is done again."
                ) from error

    @property
    def finished(self) -> bool:
        """Whether the stage was done to its end."""
        return self.content["finished"]

    def differences(self, settings: Mapping[str, str]) -> list[str]:
        """Sentences about the settings that differ from those of earlier attempts; none if there were no attempts."""
        if not self.content["attempts"]:
            return []
        before = self.content["settings"]
        return [
            f"{name}: {_value(before, name)} then, {_value(settings, name)} now" for name in changed(before, settings)
        ]

    def is_exceeded(self, name: str, value: int) -> bool:
        """Whether a setting, a number, was less in earlier attempts than a value is."""
        before = self.content["settings"].get(name, "")
        return before.isdecimal() and int(before) < value

    def begin(self, command: Sequence[str], settings: Mapping[str, str]) -> None:
        """Note an attempt before it is made, so that one that is killed leaves its trace."""
        self._measure_killed()
        self.content |= {"settings": dict(settings), "finished": False}
        self.content["attempts"].append({"command": list(command), **surroundings(), "outcome": "interrupted"})
        self.write()

    def end(self, outcome: str, **measured: float) -> None:
        """Note how the attempt ended: ``finished``, or how it failed."""
        self.content["attempts"][-1] |= {"outcome": outcome, **measured}
        self.content["finished"] = outcome == "finished"
        self.content["seconds"] = round(self.seconds, 1)
        self.write()

    @property
    def seconds(self) -> float:
        """Seconds of all attempts together."""
        self._measure_killed()
        return sum(attempt.get("seconds", 0.0) for attempt in self.content["attempts"])

    def _measure_killed(self) -> None:
        """Note how long the last attempt took if it was killed, with nothing measured: until it wrote its last line."""
        log = self.path.with_suffix(".log")
        for attempt in self.content["attempts"][-1:]:
            if "seconds" not in attempt and "started" in attempt and log.exists():
                started = datetime.fromisoformat(attempt["started"]).timestamp()
                attempt["seconds"] = round(max(0.0, log.stat().st_mtime - started), 1)

    def write(self) -> None:
        """Write the file, whole or not at all."""
        with replacing(self.path) as temporary:
            temporary.write_text(json.dumps(self.content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def last_attempt(log: Path | str) -> str:
    """The output of the last attempt at a stage, without the command in front."""
    text = "\n" + Path(log).read_text(encoding="utf-8", errors="replace")
    return text.rpartition("\n$ ")[2].partition("\n")[2]


def _value(settings: Mapping[str, str], name: str) -> str:
    if name not in settings:
        return "not given"
    return "given" if settings[name] == "" else settings[name]


def settings_of(
    command: Sequence[str], more: Mapping[str, str] | None = None, places: Mapping[str, object] | None = None
) -> dict[str, str]:
    """The options that the outcome of a command depends on, without :data:`FREE`.

    Args:
        command: arguments, the program first.
        more: values that are not among its arguments, by name.
        places: folders by name; the name stands for the folder, which may be moved.

    Returns:
        values by option, "" for a switch; other arguments are called "argument 1", "argument 2" ...
    """
    settings: dict[str, str] = {}
    name = None
    for argument in command[1:]:
        for place, folder in (places or {}).items():
            argument = re.sub(rf"(^|=){re.escape(str(folder))}(?=/|$)", rf"\1{place}", argument)
        if re.match(r"--?[A-Za-z]", argument):
            name = argument
            settings[name] = ""
        elif name is not None:
            settings[name] = f"{settings[name]} {argument}".strip()
        else:
            settings[f"argument {len(settings) + 1}"] = argument
    settings |= more or {}
    return {name: SAME.get((name, value), value) for name, value in settings.items() if name not in FREE}


def surroundings() -> dict[str, Any]:
    """Versions, code, machine and time."""
    return {
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
        "commit": _commit(),
        "versions": {"python": platform.python_version(), **installed_versions(*PACKAGES)},
        "machine": {"host": platform.node(), "processor": _processor(), "cores": len(os.sched_getaffinity(0))}
        | {"threads": os.environ.get("OMP_NUM_THREADS", ""), "gpus": _gpus()},
    }


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=Path(__file__).parent)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _commit() -> str:
    commit = _output("git", "rev-parse", "HEAD")
    return f"{commit} with changes" if commit and _output("git", "status", "--porcelain", "-uno") else commit


def _processor() -> str:
    with contextlib.suppress(OSError):
        match = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
        if match:
            return match.group(1)
    return platform.machine()


def _gpus() -> list[str]:
    return _output("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader").splitlines()
