"""``python -m posnet_fairseq.bench.gpu_check``, which ``bash recipes/gpu_check.sh`` calls."""

import argparse
import os
import shutil
import sys
from pathlib import Path

import torch

from posnet_fairseq.bench.gpu_check import report
from posnet_fairseq.bench.gpu_check.sections import Machine, sections
from posnet_fairseq.shared.command import command
from posnet_fairseq.shared.common_options import parsed_by
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import a_path


def find_machine(simulated: bool) -> Machine:
    """What this machine has.

    Raises:
        UsageError: there is no GPU, and none is to be simulated.
    """
    count = 0 if simulated else torch.cuda.device_count()
    if not count and not simulated:
        raise UsageError(
            "there is no GPU that torch can use (posnet-doctor says more). Run it on a machine that has one, or give "
            "--simulated, which tests the check itself on a CPU."
        )
    bf16 = all(torch.cuda.get_device_capability(index) >= (8, 0) for index in range(count))
    return Machine(count, bf16, shutil.which("nvidia-smi") is not None)


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
    machine = find_machine(options.simulated)
    folder = options.out.absolute()
    scratch = folder / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    if machine.gpus == 0:
        os.environ |= {"POSNET_SIMULATED_GPU": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    failed = [
        section.name for section in sections(machine, scratch) if not report.passes(section, folder, options.again)
    ]
    path = report.write(folder, list(sections(machine, scratch)), machine)
    print(f"{path}: " + (f"failed: {', '.join(failed)}" if failed else "all sections passed"))
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    sys.argv[0] = "gpu_check"  # as errors name it
    main()
