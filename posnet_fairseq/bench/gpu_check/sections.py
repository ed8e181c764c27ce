"""The sections of the check: commands, each of which a user could run alone."""

import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
HERE = "posnet_fairseq.bench.gpu_check"


@dataclass(frozen=True)
class Machine:
    """What the check has to do with.

    Attributes:
        gpus: number of GPUs; 0: tests have a simulated one, and all else runs on the CPU, with small sizes.
        bf16: whether all of them compute in bfloat16.
        driver: whether ``nvidia-smi`` is there.
    """

    gpus: int
    bf16: bool
    driver: bool


@dataclass(frozen=True)
class Section:
    """A part of the report.

    Attributes:
        name: of its file.
        title: in the report.
        commands: of bash, which run one after the other until one fails.
        seconds: after which they are ended.
        left_out: why it does not run; "" if it does.
    """

    name: str
    title: str
    commands: tuple[str, ...]
    seconds: int
    left_out: str = ""


def sections(machine: Machine, scratch: Path) -> Iterator[Section]:
    """Yield the sections in their order.

    Args:
        machine: decides on sizes and on what is left out.
        scratch: a folder for data and models.
    """
    real = machine.gpus > 0
    python = shlex.quote(sys.executable)
    smi = ("nvidia-smi",) if machine.driver else ()
    yield Section("environment", "Environment", (*smi, "posnet-doctor"), 120)
    yield Section("laws", "Every mixer on the device", (f"{python} -m pytest {_tests(real)}",), 600)
    for precision in ("bf16", "fp16") if real else ("fp32",):
        yield Section(
            f"training_{precision}",
            f"Training, averaging and translation in {precision}",
            _training(scratch, real, precision, 1),
            240,
            "" if precision != "bf16" or machine.bf16 else "the GPU has no bf16",
        )
    yield Section(
        "two_processes",
        "Training with two processes",
        _training(scratch, real, "fp16" if real else "fp32", 2),
        240,
        "" if machine.gpus != 1 else "there is one GPU",
    )
    for name, title, on_gpu, on_cpu in BENCHMARKS:
        command = f"posnet-bench {name} {on_gpu if real else on_cpu}"
        yield Section(f"bench_{name}", f"{title}: `{command}`", (command,), 300)
    memory = f"{python} -m {HERE}.memory {shlex.quote(str(scratch))}"
    yield Section("memory", "Memory of a training step, estimated and measured", (memory,), 300)
    yield Section("profile", "Profile of a training step and of a search", (f"{python} -m {HERE}.profiles",), 180)


# Of posnet-bench: command, title, options on a GPU, options on a CPU.
BENCHMARKS = (
    ("layers", "Layers", "--lengths 64 512 2048", "--mixers rposnet --lengths 4 --size tiny --tokens 8 --rounds 1"),
    (
        "models",
        "Models",
        "--size base --sentences 128 --length 32",
        "--mixers rposnet --size tiny --length 3 --sentences 2 --rounds 1 --beam 2",
    ),
    (
        "decode",
        "Decoding",
        "--sentences 64 --lengths 20 60 --beams 1 5",
        "--beams 2 --lengths 4 --size tiny --words 50 --sentences 2 --rounds 1",
    ),
    (
        "translution",
        "Translution",
        "--lengths 32 128 --alone 512",
        "--lengths 4 --alone 5 --sentences 2 --embed-dim 8 --heads 2 --rounds 1",
    ),
)


def _tests(real: bool) -> str:
    """Arguments of pytest: all tests of GPUs, or on the simulated device, where tests/run.sh --all runs all, a few."""
    few = "" if real else " -k 'one_by_one or (test_law and rposnet-encoder-gelu)'"
    return f"-n 0 -m gpu -rs {shlex.quote(str(ROOT / 'tests' / 'gpu'))}{few}"


def _training(scratch: Path, real: bool, precision: str, processes: int) -> tuple[str, ...]:
    """Prepare made-up text, train on it as recipes do, and translate with the averaged model."""
    size, updates, lines = ("iwslt", 300, 20000) if real else ("tiny", 6, 300)
    name = f"rposnet_{precision}_{processes}"
    devices = f"--gpus {processes} --precision {precision}" if real else f"--cpus {processes}"
    run = f"runs/data/{name}_{size}_s1"
    return (
        f"cd {shlex.quote(str(scratch))}",
        f"{shlex.quote(sys.executable)} -m {HERE}.made_up train {lines} && "
        f"{shlex.quote(sys.executable)} -m {HERE}.made_up test 100",
        "posnet-prepare corpus --train train.en train.de --test test.en test.de --merges 100 --out data "
        f"--valid-every {lines // 50}",
        f"posnet-run corpus --data data --name {name} --mixer rposnet --size {size} {devices} --updates {updates} "
        f"--interval {updates // 3} --warmup {updates // 3} --average 2",
        f"posnet-translate {run}/averaged.pt --fast --input test.en --output {run}/fast.de",
    )
