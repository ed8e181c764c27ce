"""What only a GPU can show: ``bash recipes/gpu_check.sh`` runs it in sections and writes one report.

Sections are stages, each with a log and a record: those that have passed are not run again.
"""

import argparse
import datetime
import os
import random
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch

from posnet_fairseq.runs.command_stage import CommandStage, Work, do, last_attempt
from posnet_fairseq.shared.common_options import FAIRSEQS, parsed_by
from posnet_fairseq.shared.errors import UsageError, counted
from posnet_fairseq.shared.files import a_path, write_lines
from posnet_fairseq.shared.progress import Bar
from posnet_fairseq.shared.records import installed_versions

ROOT = Path(__file__).parents[2]
LINES = 200  # of a section's output in the report, the last ones
PACKAGES = ("posnet", *FAIRSEQS, "torch", "triton", "ctranslate2")
PYTHON = shlex.quote(sys.executable)
# Of posnet-bench, on a GPU and on a CPU.
BENCHMARKS = (
    ("layers --lengths 64 512 2048", "layers --mixers rposnet --lengths 4 --size tiny --tokens 8 --rounds 1"),
    (
        "models --size base --sentences 128 --length 32",
        "models --mixers rposnet --size tiny --length 3 --sentences 2 --rounds 1 --beam 2",
    ),
    (
        "decode --sentences 64 --lengths 20 60 --beams 1 5",
        "decode --beams 2 --lengths 4 --size tiny --words 50 --sentences 2 --rounds 1",
    ),
)


class Section(NamedTuple):
    """A part of the report: commands of bash that a user could run alone, until one fails or its time is up."""

    name: str
    commands: tuple[str, ...]
    seconds: int
    left_out: str = ""  # why it does not run


class Outcome(NamedTuple):
    """What came of a section, and what it printed."""

    state: str  # passed, failed or left out
    output: str
    seconds: float | str = ""


def sections(gpus: int, bf16: bool, scratch: Path) -> Iterator[Section]:
    """Yield the sections in their order. Without GPUs tests have a simulated one, and the rest is small on the CPU."""
    smi = ("nvidia-smi",) if shutil.which("nvidia-smi") else ()
    yield Section("environment", (*smi, "posnet-doctor"), 120)
    # On the simulated device, where tests/run.sh --all runs all tests, a few.
    laws = "test_law and not arposnet and (rposnet-encoder-gelu or rposnet-decoder-gelu)"
    few = "" if gpus else f" -k 'one_by_one or ({laws})'"
    tests = f"-n 0 -m gpu -rs {shlex.quote(str(ROOT / 'tests' / 'gpu'))}{few}"
    yield Section("every mixer on the device", (f"{PYTHON} -m pytest {tests}",), 600)
    no_bf16, one_gpu = "" if bf16 else "the GPU has no bf16", "" if gpus != 1 else "there is one GPU"
    on_gpus = (("bf16", 1, no_bf16), ("fp16", 1, ""), ("fp16", 2, one_gpu))
    for precision, processes, left_out in on_gpus if gpus else [("fp32", 2, "")]:
        commands = _training(scratch, gpus > 0, precision, processes)
        yield Section(f"training in {precision}, processes: {processes}", commands, 240, left_out)
    for on_gpu, on_cpu in BENCHMARKS:
        arguments = on_gpu if gpus else on_cpu
        yield Section(f"posnet-bench {arguments.split()[0]}", (f"posnet-bench {arguments}",), 300)


def _training(scratch: Path, real: bool, precision: str, processes: int) -> tuple[str, ...]:
    """Prepare made-up text, train on it as recipes do, and translate with the averaged model."""
    size, updates, every = ("iwslt", 300, 400) if real else ("tiny", 6, 6)
    name = f"rposnet_{precision}_{processes}"
    devices = f"--gpus {processes} --precision {precision}" if real else f"--cpus {processes}"
    run = f"runs/data/{name}_{size}_s1"
    return (
        f"cd {shlex.quote(str(scratch))}",
        "posnet-prepare corpus --train train.en train.de --test test.en test.de --merges 100 --out data "
        f"--valid-every {every}",
        f"posnet-run corpus --data data --name {name} --mixer rposnet --size {size} {devices} --updates {updates} "
        f"--interval {updates // 3} --warmup {updates // 3} --average 2",
        f"posnet-translate {run}/averaged.pt --fast --input test.en --output {run}/fast.de",
    )


def write_text(prefix: Path, lines: int, words: int, length: int, seed: int) -> None:
    """Write PREFIX.en and PREFIX.de: every target sentence has the words of its source, reversed and renamed."""
    drawn = random.Random(seed)
    sentences = [[drawn.randrange(words) for _ in range(length)] for _ in range(lines)]
    for language, word, order in (("en", "a", 1), ("de", "b", -1)):
        text = (" ".join(f"{word}{number}" for number in sentence[::order]) for sentence in sentences)
        write_lines(prefix.with_name(f"{prefix.name}.{language}"), text)


def outcome_of(section: Section, folder: Path, again: bool) -> Outcome:
    """Return what came of a section, which is run unless it has passed before with the same commands."""
    if section.left_out:
        return Outcome("left out", section.left_out)
    script = " && ".join(section.commands)
    stage = CommandStage(folder, section.name.replace(" ", "_"), ["bash", "-c", script], settings={"-c": script})
    if again or stage.record.content["settings"] != stage.settings:
        stage.record.path.unlink(missing_ok=True)
    if not stage.is_done():
        print(f"{section.name} ...", file=sys.stderr, flush=True)
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "120"}
    start, problem = time.monotonic(), ""

    def end_late(_: Bar) -> None:
        if time.monotonic() - start > section.seconds:
            raise UsageError(f"ended after {section.seconds} seconds")

    try:
        do(stage, Work(environment=environment), watch=end_late)
    except UsageError as error:
        problem = f"\n{error}"
    state = "failed" if problem else "passed"
    return Outcome(state, last_attempt(stage.log) + problem, stage.record.content["attempts"][-1].get("seconds", ""))


def report(outcomes: dict[str, Outcome], gpus: int) -> Iterator[str]:
    """Yield the lines of report.md."""
    where = counted(gpus, "GPU") if gpus else "a simulated GPU: no figure here is one of a GPU"
    said = ", ".join(f"{name} {version}" for name, version in installed_versions(*PACKAGES).items())
    yield from ("# posnet on a GPU", "", f"{datetime.date.today()}, {where}; {said}.", "")
    yield from ("| section | outcome | seconds |", "|---|---|---|")
    for name, outcome in outcomes.items():
        yield f"| {name} | {outcome.state} | {outcome.seconds} |"
    for name, outcome in outcomes.items():
        printed = outcome.output.rstrip().splitlines()
        cut = [f"... {counted(len(printed) - LINES, 'line')} more in the log"] if len(printed) > LINES else []
        yield from ("", f"## {name}", "", "```", *cut, *printed[-LINES:], "```")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpu_check.sh",
        description="Test and measure posnet on this machine's GPUs, in about 20 minutes, and write one report.",
    )
    parser.add_argument("--out", type=a_path, default=Path("runs/gpu_check"), help="folder (default: runs/gpu_check)")
    parser.add_argument("--again", action="store_true", help="run sections again that have passed")
    parser.add_argument("--simulated", action="store_true", help="without a GPU: tests the check itself, on a CPU")
    return parser


@parsed_by(_parser)
def main(options: argparse.Namespace) -> None:
    """Run all sections that have not passed before, and write the report. Exit code 1 if one failed."""
    gpus = 0 if options.simulated else torch.cuda.device_count()
    if not gpus and not options.simulated:
        raise UsageError(
            "there is no GPU that torch can use (posnet-doctor says more). Run it on a machine that has one, or give "
            "--simulated, which tests the check itself on a CPU."
        )
    folder = options.out.absolute()
    scratch = folder / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    for name, lines in (("train", 20000 if gpus else 300), ("test", 100)):
        write_text(scratch / name, lines, words=99, length=12, seed=len(name))
    if gpus == 0:
        os.environ |= {"POSNET_SIMULATED_GPU": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    bf16 = all(torch.cuda.get_device_capability(index) >= (8, 0) for index in range(gpus))
    made = sections(gpus, bf16, scratch)
    outcomes = {section.name: outcome_of(section, folder, options.again) for section in made}
    failed = [name for name, outcome in outcomes.items() if outcome.state == "failed"]
    write_lines(folder / "report.md", report(outcomes, gpus))
    print(f"{folder / 'report.md'}: " + (f"failed: {', '.join(failed)}" if failed else "all sections passed"))
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    sys.argv[0] = "gpu_check"  # as errors name it
    main()
