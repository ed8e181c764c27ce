"""What a command's record has besides its outcome: the settings that this depends on, and where it ran."""

import contextlib
import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from posnet_fairseq.shared.criterions import PREFIX
from posnet_fairseq.shared.records import installed_versions

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


def last_attempt(log: Path | str) -> str:
    """Return the output of the last attempt at a stage, without the command in front."""
    text = "\n" + Path(log).read_text(encoding="utf-8", errors="replace")
    return text.rpartition("\n$ ")[2].partition("\n")[2]


def settings_of(
    command: Sequence[str], more: Mapping[str, str] | None = None, places: Mapping[str, object] | None = None
) -> dict[str, str]:
    """Return the options that the outcome of a command depends on, without :data:`FREE`.

    Args:
        more: values that are not among its arguments, by name.
        places: folders by name; the name stands for the folder, which may be moved.

    Returns:
        Values by option, "" for a switch; other arguments are called "argument 1", "argument 2" ...
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


def surroundings(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return versions, code and machine, for the record of an attempt with environment variables."""
    commit, processor = _output("git", "rev-parse", "HEAD"), platform.machine()
    if commit and _output("git", "status", "--porcelain", "-uno"):
        commit += " with changes"
    with contextlib.suppress(OSError):
        if match := re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text()):
            processor = match[1]
    gpus = _output("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader").splitlines()
    return {
        "commit": commit,
        "versions": {"python": platform.python_version(), **installed_versions(*PACKAGES)},
        "machine": {"host": platform.node(), "processor": processor, "cores": len(os.sched_getaffinity(0))}
        | {"threads": environment.get("OMP_NUM_THREADS", ""), "gpus": gpus},
    }


def _output(*command: str) -> str:
    """Return what a command prints, "" if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=Path(__file__).parent)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
