"""``python -m posnet_fairseq.bench.gpu_check``, as ``bash recipes/gpu_check.sh`` calls it: commands and their output.

Sections that have passed are kept as JSON, and are not run again.
"""

import argparse
import contextlib
import datetime
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from posnet_fairseq.shared.command import command
from posnet_fairseq.shared.common_options import parsed_by
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import a_path, write_lines
from posnet_fairseq.shared.records import installed_versions

ROOT = Path(__file__).parents[3]
LINES = 200  # of a section's output in the report, the last ones
PACKAGES = ("posnet", "ve-fairseq", "fairseq-fixed", "torch", "triton", "ctranslate2")
# Of posnet-bench: command, options on a GPU, options on a CPU.
BENCHMARKS = (
    ("layers", "--lengths 64 512 2048", "--mixers rposnet --lengths 4 --size tiny --tokens 8 --rounds 1"),
    (
        "models",
        "--size base --sentences 128 --length 32",
        "--mixers rposnet --size tiny --length 3 --sentences 2 --rounds 1 --beam 2",
    ),
    (
        "decode",
        "--sentences 64 --lengths 20 60 --beams 1 5",
        "--beams 2 --lengths 4 --size tiny --words 50 --sentences 2 --rounds 1",
    ),
    (
        "translution",
        "--lengths 32 128 --alone 512",
        "--lengths 4 --alone 5 --sentences 2 --embed-dim 8 --heads 2 --rounds 1",
    ),
)


class Section(NamedTuple):
    """A part of the report: commands of bash that a user could run alone, until one fails or its time is up."""

    name: str
    commands: tuple[str, ...]
    seconds: int
    left_out: str = ""  # why it does not run


def sections(gpus: int, bf16: bool, scratch: Path) -> Iterator[Section]:
    """Yield the sections in their order. Without GPUs tests have a simulated one, and the rest is small on the CPU."""
    measures = f"{shlex.quote(sys.executable)} -m posnet_fairseq.bench.gpu_check.measures"
    smi = ("nvidia-smi",) if shutil.which("nvidia-smi") else ()
    yield Section("environment", (*smi, "posnet-doctor"), 120)
    # On the simulated device, where tests/run.sh --all runs all tests, a few.
    few = "" if gpus else " -k 'one_by_one or (test_law and rposnet-encoder-gelu)'"
    tests = f"-n 0 -m gpu -rs {shlex.quote(str(ROOT / 'tests' / 'gpu'))}{few}"
    yield Section("every mixer on the device", (f"{shlex.quote(sys.executable)} -m pytest {tests}",), 600)
    no_bf16, one_gpu = "" if bf16 else "the GPU has no bf16", "" if gpus != 1 else "there is one GPU"
    kinds = (
        (("bf16", 1, no_bf16), ("fp16", 1, ""), ("fp16", 2, one_gpu)) if gpus else (("fp32", 1, ""), ("fp32", 2, ""))
    )
    for precision, processes, left_out in kinds:
        commands = _training(measures, scratch, gpus > 0, precision, processes)
        yield Section(f"training in {precision}, processes: {processes}", commands, 240, left_out)
    for name, on_gpu, on_cpu in BENCHMARKS:
        yield Section(f"posnet-bench {name}", (f"posnet-bench {name} {on_gpu if gpus else on_cpu}",), 300)
    yield Section("memory of a training step", (f"{measures} memory {shlex.quote(str(scratch))}",), 300)


def _training(measures: str, scratch: Path, real: bool, precision: str, processes: int) -> tuple[str, ...]:
    """Prepare made-up text, train on it as recipes do, and translate with the averaged model."""
    size, updates, lines = ("iwslt", 300, 20000) if real else ("tiny", 6, 300)
    name = f"rposnet_{precision}_{processes}"
    devices = f"--gpus {processes} --precision {precision}" if real else f"--cpus {processes}"
    run = f"runs/data/{name}_{size}_s1"
    return (
        f"cd {shlex.quote(str(scratch))}",
        f"{measures} text train {lines} && {measures} text test 100",
        "posnet-prepare corpus --train train.en train.de --test test.en test.de --merges 100 --out data "
        f"--valid-every {lines // 50}",
        f"posnet-run corpus --data data --name {name} --mixer rposnet --size {size} {devices} --updates {updates} "
        f"--interval {updates // 3} --warmup {updates // 3} --average 2",
        f"posnet-translate {run}/averaged.pt --fast --input test.en --output {run}/fast.de",
    )


def outcome_of(section: Section, folder: Path, again: bool) -> dict[str, Any]:
    """Return what came of a section, which is run unless it has passed before; it is kept in the folder."""
    path = folder / f"{section.name.replace(' ', '_')}.json"
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if section.left_out:
        outcome = {"state": "left out", "output": section.left_out}
    elif before.get("state") == "passed" and before.get("commands") == list(section.commands) and not again:
        return before
    else:
        print(f"{section.name} ...", file=sys.stderr, flush=True)
        outcome = _run(section)
        print(f"{section.name}: {outcome['state']}, {outcome['seconds']:.0f} s", file=sys.stderr, flush=True)
    write_lines(path, [json.dumps(outcome, indent=1, ensure_ascii=False)])
    return outcome


def _run(section: Section) -> dict[str, Any]:
    """Return what came of the commands of a section."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "120"}
    script, start, ended = "set -e\n" + "\n".join(section.commands), time.monotonic(), ""
    streams: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    with subprocess.Popen(["bash", "-c", script], env=environment, start_new_session=True, **streams) as process:
        try:
            output, _ = process.communicate(timeout=section.seconds)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            output, _ = process.communicate()
            ended = f"\nended after {section.seconds} seconds"
    return {
        "state": "failed" if process.returncode else "passed",
        "commands": list(section.commands),
        "seconds": round(time.monotonic() - start, 1),
        "output": output + ended,
    }


def report(outcomes: dict[str, dict[str, Any]], gpus: int) -> Iterator[str]:
    """Yield the lines of report.md."""
    where = f"{gpus} GPUs" if gpus else "a simulated GPU: no figure here is one of a GPU"
    said = ", ".join(f"{name} {version}" for name, version in installed_versions(*PACKAGES).items())
    yield from ("# posnet on a GPU", "", f"{datetime.date.today()}, {where}; {said}.", "")
    yield from ("| section | outcome | seconds |", "|---|---|---|")
    for name, outcome in outcomes.items():
        yield f"| {name} | {outcome['state']} | {outcome.get('seconds', '')} |"
    for name, outcome in outcomes.items():
        printed = outcome["output"].rstrip().splitlines()
        cut = [f"... {len(printed) - LINES} lines more in the JSON file"] if len(printed) > LINES else []
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


@command
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
    (folder / "scratch").mkdir(parents=True, exist_ok=True)
    if gpus == 0:
        os.environ |= {"POSNET_SIMULATED_GPU": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    bf16 = all(torch.cuda.get_device_capability(index) >= (8, 0) for index in range(gpus))
    made = sections(gpus, bf16, folder / "scratch")
    outcomes = {section.name: outcome_of(section, folder, options.again) for section in made}
    failed = [name for name, outcome in outcomes.items() if outcome["state"] == "failed"]
    write_lines(folder / "report.md", report(outcomes, gpus))
    print(f"{folder / 'report.md'}: " + (f"failed: {', '.join(failed)}" if failed else "all sections passed"))
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    sys.argv[0] = "gpu_check"  # as errors name it
    main()
