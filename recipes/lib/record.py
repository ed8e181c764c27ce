"""What was done in a run's folder: for each stage a JSON file with its command, and every attempt at it."""

import contextlib
import json
import os
import platform
import re
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import replacing

PACKAGES = ("posnet", "ve-fairseq", "fairseq-fixed", "torch", "numpy", "sentencepiece", "subword-nmt", "sacrebleu")
# They say where and how fast a command computes, not what: a run may go on with others.
FREE = (
    *("--cpu", "--bf16", "--fp16", "--ddp-backend", "--distributed-backend", "--distributed-world-size"),
    *("--load-checkpoint-on-all-dp-ranks", "--max-tokens", "--update-freq", "--tensorboard-logdir", "--num-workers"),
    *("--processes", "--reset-dataloader"),
)


class Record:
    """The record of one stage.

    Args:
        path: of the JSON file.

    Attributes:
        content: ``{"settings": {option: value}, "attempts": [...], "finished": bool}``.
    """

    def __init__(self, path):
        self.path = Path(path)
        self.content = {"settings": {}, "attempts": [], "finished": False}
        if self.path.exists():
            try:
                self.content = json.loads(self.path.read_text(encoding="utf-8"))
                kinds = [type(self.content[name]) for name in ("settings", "attempts", "finished")]
                if kinds != [dict, list, bool] or not all(isinstance(each, dict) for each in self.content["attempts"]):
                    raise TypeError
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise UsageError(
                    f"{path} is no record of a stage (it may be cut short). Move it away and run again: a training "
                    "goes on from its checkpoints, another stage is done anew."
                ) from error

    @property
    def finished(self):
        """Whether the stage was done to its end."""
        return self.content["finished"]

    def differences(self, settings):
        """Sentences about the settings that differ from those of the attempts so far; none if there were none."""
        if not self.content["attempts"]:
            return []
        ours, theirs = settings, self.content["settings"]
        names = [name for name in {**theirs, **ours} if ours.get(name) != theirs.get(name)]
        return [f"{name}: {_value(theirs, name)} then, {_value(ours, name)} now" for name in names]

    def begin(self, command, settings):
        """Note an attempt before it is made, so that one that is killed leaves its trace."""
        self.content["settings"] = settings
        self.content["attempts"].append({"command": command, **surroundings(), "outcome": "interrupted"})
        self.write()

    def end(self, outcome, **measured):
        """Note what came of it: "finished", or how it failed."""
        self.content["attempts"][-1] |= {"outcome": outcome, **measured}
        self.content["finished"] = outcome == "finished"
        self.write()

    def write(self):
        """Keep it, whole."""
        with replacing(self.path) as temporary:
            temporary.write_text(json.dumps(self.content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def last_attempt(log):
    """What the last attempt at a stage wrote into its log; the command itself stands before it."""
    text = "\n" + Path(log).read_text(encoding="utf-8", errors="replace")
    return text.rpartition("\n$ ")[2].partition("\n")[2]


def _value(settings, name):
    if name not in settings:
        return "not given"
    return "given" if settings[name] == "" else settings[name]


def settings_of(command, more=(), places=None):
    """What the outcome of a command depends on: its options, without those of :data:`FREE`.

    Args:
        command: list of arguments, the program first.
        more: "NAME=VALUE" that are not among its arguments.
        places: {name: folder or None}; that name stands for the folder, which may be moved.

    Returns:
        {option: value, "" for a switch}; other arguments are called "argument 1", "argument 2" ...
    """
    settings, name = {}, None
    for argument in command[1:]:
        for place, folder in (places or {}).items():
            if folder:
                argument = re.sub(rf"(^|=){re.escape(str(folder))}(?=/|$)", rf"\1{place}", argument)
        if re.match(r"--?[A-Za-z]", argument):
            name = argument
            settings[name] = ""
        elif name is not None:
            settings[name] = f"{settings[name]} {argument}".strip()
        else:
            settings[f"argument {len(settings) + 1}"] = argument
    settings |= dict(text.split("=", 1) for text in more)
    return {name: value for name, value in settings.items() if name not in FREE}


def surroundings():
    """Versions, code, machine and time: a dict."""
    from datetime import datetime

    return {
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
        "commit": _commit(),
        "versions": {"python": platform.python_version(), **dict(versions(*PACKAGES))},
        "machine": {"host": platform.node(), "processor": _processor(), "cores": len(os.sched_getaffinity(0))}
        | {"threads": os.environ.get("OMP_NUM_THREADS", ""), "gpus": _gpus()},
    }


def versions(*packages):
    """(package, version) of those that are installed."""
    for package in packages:
        with contextlib.suppress(PackageNotFoundError):
            yield package, version(package)


def _output(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=Path(__file__).parent)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _commit():
    commit = _output("git", "rev-parse", "HEAD")
    return f"{commit} with changes" if commit and _output("git", "status", "--porcelain", "-uno") else commit


def _processor():
    with contextlib.suppress(OSError):
        match = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
        if match:
            return match.group(1)
    return platform.machine()


def _gpus():
    return _output("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader").splitlines()
