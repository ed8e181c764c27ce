"""The sections of the check: what is run, for how long at most, and what is skipped."""

import shlex
from dataclasses import dataclass, field
from pathlib import Path

import torch

PART = "python -m posnet_fairseq.bench.gpu_check"
NO_GPU = "needs a real GPU"


@dataclass(frozen=True)
class Section:
    """Commands that are run one after the other.

    Attributes:
        name: key of its results.
        title: heading in the report.
        limit: seconds for all commands.
        commands: of a shell.
        environment: variables beside those of the check.
        skipped: why it is not run; "" if it is.
    """

    name: str
    title: str
    limit: int
    commands: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    skipped: str = ""


def sections(out: Path, simulated: bool) -> list[Section]:
    """The sections in their order; together their limits are 20 minutes.

    Args:
        out: folder of the check, absolute.
        simulated: without a GPU: small sizes, and only what can be run there.
    """
    simulation = {"POSNET_SIMULATED_GPU": "1"} if simulated else {}
    few = " -k 'test_law and training and rposnet-encoder-gelu'" if simulated else ""
    no_gpu = NO_GPU if simulated else ""
    count = torch.cuda.device_count()
    alone = no_gpu or ("" if count > 1 else f"needs two GPUs, there is {count}")
    parts = [
        Section("environment", "Environment", 60, ("posnet-doctor",)),
        Section("laws", "Laws of a GPU", 240, (f"python -m pytest -n 0 -m gpu -rs tests/gpu{few}",), simulation),
    ]
    for precision in ("fp16", "bf16"):
        commands = _training(out / precision, precision)
        parts.append(Section(precision, f"Training and translation, {precision}", 90, commands, skipped=no_gpu))
    commands = _training(out / "ddp", "bf16", " --distributed-world-size 2")[:3]
    parts.append(Section("ddp", "Two processes", 90, commands, skipped=alone))
    for name, options in (SMALL if simulated else SPEED).items():
        parts.append(Section(f"bench_{name}", f"Speed: {name}", 105, (f"posnet-bench {name} {options}",)))
    parts += [
        Section("memory", "Memory of training steps, estimated and measured", 120, (f"{PART}.memory",), skipped=no_gpu),
        Section("profile", "Waits of a training and a decoding step", 90, (f"{PART}.profile",)),
    ]
    return parts


SPEED = {
    "layers": "--mixers rposnet lightconv shaw irpe --lengths 64 512 --rounds 5",
    "models": "--mixers attention rposnet shaw --size base --rounds 5",
    "decode": "--lengths 20 60 --beams 1 5 --rounds 2",
    "translution": "--mixers alpha_translution --lengths 64 128 --alone 512",
}
SMALL = {
    "layers": "--mixers rposnet --lengths 8 --size tiny --tokens 16 --rounds 1",
    "models": "--mixers rposnet --sentences 2 --length 4 --beam 1 --rounds 1",
    "decode": "--mixers rposnet --lengths 4 --beams 1 --size tiny --words 50 --sentences 2 --rounds 1",
    "translution": "--mixers alpha_translution --lengths 4 --alone 8 --sentences 1 --embed-dim 12 --rounds 1",
}


def _training(folder: Path, precision: str, options: str = "") -> tuple[str, ...]:
    """Commands that make data, train, look at the loss, average, precompute and translate."""
    at = shlex.quote(str(folder))
    return (
        f"{PART}.made_up {at}/text && fairseq-preprocess --source-lang a --target-lang b --joined-dictionary "
        f"--trainpref {at}/text/train --validpref {at}/text/valid --destdir {at}/data",
        f"fairseq-train {at}/data --user-dir posnet_fairseq --arch rposnet_tiny --share-all-embeddings --{precision} "
        "--optimizer fused_adam --lr 1e-3 --criterion chunked_label_smoothed_cross_entropy --label-smoothing 0.1 "
        "--max-source-positions 64 --max-target-positions 64 --max-tokens 2000 --max-update 60 --log-interval 5 "
        f"--log-format json --no-epoch-checkpoints --save-interval-updates 30 --save-dir {at}/checkpoints{options} "
        f"| tee {at}/train.log; exit ${{PIPESTATUS[0]}}",
        f"{PART}.losses {at}/train.log",
        f"posnet-average {at}/checkpoints --num 2 --out {at}/averaged.pt",
        f"posnet-precompute {at}/averaged.pt --out {at}/fast.pt",
        f"head -20 {at}/text/valid.a | posnet-translate {at}/fast.pt --pretokenized --dtype {precision} --device cuda",
    )
