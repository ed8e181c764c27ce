"""Behind recipes/compare.sh: python recipes/lib/compare.py DATA RUNS [SYSTEMS], all else from the environment."""

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from comparison import Comparison
from gpus import gpus
from record import Record
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from stage import DONE
from systems import System, chosen
from training import progress as updates_of

from posnet_fairseq.cli._run import command
from posnet_fairseq.errors import UsageError
from posnet_fairseq.processes import cores, die_with_parent
from posnet_fairseq.progress import shown

STAGES = ("train", "average", "precompute", "translate")
RECIPE = Path(__file__).parent.parent / "corpus.sh"
STEP = 1.0  # seconds between two looks at the logs


@dataclass(frozen=True)
class Job:
    """A system with a seed.

    Attributes:
        system: what is trained.
        seed: of its run.
        run: the run's folder.
    """

    system: System
    seed: int
    run: Path

    def environment(self):
        """What the recipe of the run is told."""
        system = self.system
        options = f"{os.environ.get('OPTIONS', '')} {system.options}".strip()  # those of all, and its own
        return {"NAME": system.name, "MIXER": system.mixer, "OPTIONS": options, "SEED": str(self.seed)}


class Crew:
    """Does jobs, some side by side.

    Args:
        jobs: list of :class:`Job`, in the order in which they begin.
        shares: one dict of environment variables for each of those side by side: its part of the machine.
        data: folder of the dataset.
        updates: of each training.
    """

    def __init__(self, jobs, shares, data, updates):
        self._waiting = queue.SimpleQueue()
        for job in jobs:
            self._waiting.put(job)
        self._jobs, self._shares, self._data, self._updates = jobs, shares, data, updates
        self._running, self._failed, self._said, self._stop = {}, [], set(), False
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self._progress = Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal)

    def work(self):
        """Do them all.

        Returns:
            the jobs that failed.
        """
        with self._progress as progress:
            total = progress.add_task("runs", total=len(self._jobs), note="")
            threads = [threading.Thread(target=self._take, args=(share, total)) for share in self._shares]
            try:
                for thread in threads:
                    thread.start()
                while any(thread.is_alive() for thread in threads):
                    self._look()
                    time.sleep(STEP)
            except BaseException:
                self._stop = True
                for process, _ in list(self._running.values()):
                    process.terminate()
                for thread in threads:
                    thread.join()
                raise
        return self._failed

    def _take(self, share, total):
        while not self._stop:
            try:
                job = self._waiting.get_nowait()
            except queue.Empty:
                return
            if not self._do(job, share):
                self._failed.append(job)
            self._progress.advance(total)

    def _do(self, job, share):
        others = [other.run for other in self._jobs if other != job and not Record(other.run / "train.json").finished]
        places = {"DATA": str(self._data), "POSNET_OTHER_RUNS": ":".join(map(str, others))}  # they need room, too
        environment = os.environ | places | share | job.environment()
        task = self._progress.add_task(escape(job.run.name), total=self._updates, note="")
        process = subprocess.Popen(
            ["bash", RECIPE, *STAGES],
            env=environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            preexec_fn=die_with_parent,
        )
        self._running[job] = process, task
        done = [line for line in process.stderr if self._pass_on(line.rstrip("\n"))]
        code = process.wait()
        if len(done) == len(STAGES):
            self._progress.console.print(f"{job.run.name} is done", markup=False)
        del self._running[job]
        self._progress.remove_task(task)
        return code == 0

    def _pass_on(self, line):
        """Print what a recipe says, once if all say the same; whether it is that a stage was done before."""
        if line.endswith(DONE):
            return True
        if line not in self._said:
            self._said.add(line)
            self._progress.console.print(line, markup=False)
        return False

    def _look(self):
        for job, (_, task) in list(self._running.items()):
            updates, valid = updates_of(job.run / "train.log")
            note = f"validation perplexity {valid['valid_ppl']:.1f}" if valid else ""
            self._progress.update(task, completed=updates, note=note)


def shares(number):
    """The machine in equal parts: environment variables for each.

    Raises:
        UsageError: there are not as many.
    """
    count, _ = gpus()
    if number > 1 and os.environ.get("NODES", "1") != "1":
        raise UsageError(f"JOBS={number}: runs on several machines (NODES) go one after the other. Leave JOBS out.")
    if count == 0 or os.environ.get("CPUS"):
        threads = max(1, cores() // (number * int(os.environ.get("CPUS") or 1)))
        return [{"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads))}] * number
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(count)))).split(",")
    if number > count:
        raise UsageError(f"JOBS={number}: this machine has {count} GPUs. Give at most that.")
    size = min(count, int(os.environ.get("GPUS") or count)) // number
    parts = [",".join(visible[i * size : (i + 1) * size]) for i in range(number)]
    return [{"CUDA_VISIBLE_DEVICES": part, "GPUS": str(size)} for part in parts]


def whole_number(name, text):
    """A positive number that a person gave."""
    if not text.isdecimal() or not 0 < int(text) < 10**7:
        raise UsageError(f"{name}={text}: give whole numbers, 1 to 9999999.")
    return int(text)


def baselines_of(systems, given):
    """The systems that others are compared with: those given, else the first two (of two systems, the first).

    Raises:
        UsageError: they are not among the systems, or more than two.
    """
    names = [system.name for system in systems]
    found = given.split() or names[: 2 if len(names) > 2 else 1]
    wrong = [name for name in found if name not in names]
    if wrong or len(found) > 2:
        raise UsageError(f"BASELINES={given}: name one or two of {', '.join(names)}.")
    return found


@command
def main(arguments=None):
    """Train, average, precompute, translate, compare."""
    data, runs, *file = arguments or sys.argv[1:]
    data, runs = Path(data), Path(runs)
    given = {name: os.environ.get(name, "") for name in ("MIXERS", "SEEDS", "JOBS", "BASELINES")}
    name, systems = chosen(file[0] if file else None, given["MIXERS"])
    seeds = [whole_number("SEEDS", text) for text in (given["SEEDS"] or "1").split()]
    if len(set(seeds)) < len(seeds):
        raise UsageError(f"SEEDS={given['SEEDS']}: give each seed once.")
    baselines = baselines_of(systems, given["BASELINES"])
    size = os.environ["SIZE"]
    # Seed by seed: all systems can be compared as soon as the first is done.
    jobs = [Job(system, seed, runs / f"{system.name}_{size}_s{seed}") for seed in seeds for system in systems]
    crew = Crew(jobs, shares(whole_number("JOBS", given["JOBS"] or "1")), data, int(os.environ["UPDATES"]))
    # Only now, when all that was said is understood, what may take hours.
    if subprocess.run(["bash", RECIPE, "prepare"], env=os.environ | jobs[0].environment()).returncode:
        sys.exit(2)
    failed = crew.work()
    if failed:
        names = ", ".join(job.run.name for job in failed)
        raise UsageError(
            f"{len(failed)} of {len(jobs)} runs failed ({names}): see above. The others are kept; run again when it is "
            "mended."
        )
    if os.environ.get("DRY_RUN", "0") not in ("", "0"):
        return
    comparison = Comparison(
        data,
        runs / f"compare_{name}_{size}",
        {s.name: [runs / f"{s.name}_{size}_s{n}" for n in seeds] for s in systems},
    )
    comparison.make(baselines, os.environ["METRICS"])
    print(f"compare: {shown(comparison.folder)} has the report, curves.png and comparison.yaml", file=sys.stderr)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # stop the runs, too
    main()
