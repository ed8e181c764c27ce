"""Devices of a machine: GPUs or processes on CPUs, for one run or shared by several."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from posnet_fairseq.runs.run_settings import TrainingSettings
from posnet_fairseq.runs.settings import refuse
from posnet_fairseq.shared.errors import counted, option
from posnet_fairseq.shared.processes import cores


def gpus() -> tuple[int, bool]:
    """Return the number of GPUs, and whether all have bf16 (compute capability 8.0)."""
    try:
        found = bool(subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=60).stdout.strip())
    except (OSError, subprocess.TimeoutExpired):  # containers may lack its programs, drivers may hang
        found = any(Path("/dev").glob("nvidia[0-9]*"))
    if not found:
        return 0, False  # without the seconds that importing torch takes
    import torch

    count = torch.cuda.device_count()
    return count, count > 0 and all(torch.cuda.get_device_capability(i) >= (8, 0) for i in range(count))


@dataclass(frozen=True)
class Device:
    """Where a run computes."""

    kind: str  # gpu or cpu
    processes: int  # of each machine
    precision: str = "fp32"
    threads: int | None = None  # of each process on CPUs

    @property
    def option(self) -> list[str]:
        """What commands that compute there are told."""
        return ["--cpu"] if self.kind == "cpu" else []


def find_device(settings: TrainingSettings) -> Device:
    """Return the device of a run on this machine."""
    count, bf16 = gpus()
    if settings.dry_run and (settings.gpus or 0) > count:  # commands for another machine
        count, bf16 = settings.gpus or 0, True
    if settings.cpus or not (settings.gpus or count):
        processes = settings.cpus or 1
        if settings.precision == "fp16":
            refuse("precision", "fp16", "CPUs train in fp32 or bf16. Give one of these.")
        return Device("cpu", processes, settings.precision or "fp32", threads=-(-cores() // processes))
    processes = settings.gpus or count
    if processes > count:
        instead = f"{option('cpus', processes)} for processes on CPUs"
        refuse("gpus", processes, f"this machine has {counted(count, 'GPU')}. Give at most that, or {instead}.")
    if settings.precision == "bf16" and not bf16:
        reason = "a GPU here has a compute capability below 8.0 and does not multiply in bf16. Give fp16."
        refuse("precision", "bf16", reason)
    precision = settings.precision or ("bf16" if bf16 else "fp32")
    return Device("gpu", processes, precision)


@dataclass(frozen=True)
class Share:
    """A part of a machine, for one of several runs at a time; on CPUs without ``gpus``."""

    environment: dict[str, str]
    gpus: int | None = None


def shares(jobs: int, settings: TrainingSettings) -> list[Share]:
    """Return the machine in equal parts; of more jobs than GPUs, several share one."""
    device = find_device(settings)  # refuses what this machine does not have
    if jobs > 1 and settings.nodes > 1:
        refuse("jobs", jobs, "runs on several machines (--nodes) go one after the other. Leave it out.")
    threads = max(1, cores() // (jobs * (settings.cpus or 1)))
    environment = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(threads)}
    if device.kind == "cpu":
        return [Share(environment)] * jobs
    taken = device.processes
    # CUDA leaves out all names behind an unknown one.
    names = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(taken)))).split(",")
    visible, size = [name.strip() for name in names][:taken], max(1, taken // jobs)
    parts = [",".join(visible[i % taken * size :][:size]) for i in range(jobs)]
    return [Share(environment | {"CUDA_VISIBLE_DEVICES": part}, size) for part in parts]
