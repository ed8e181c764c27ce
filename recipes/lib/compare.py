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

from before_training import parse
from comparison import Comparison
from gpus import gpus
from record import Record
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from stage import DONE, end_with_recipe
from systems import System, chosen
from training import progress as updates_of

from posnet_fairseq.shared.command import command
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.failures import explain
from posnet_fairseq.shared.processes import cores, ending_with_this
from posnet_fairseq.shared.progress import shown

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
        self._running, self._failed, self._said = {}, {}, set()
        self._stop, self._starting = False, threading.Lock()
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
            {job that failed: a sentence about it}.
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
                with self._starting:
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
            try:
                failure = self._do(job, share)
            except Exception as error:  # it would end the thread, unseen, and leave the jobs that wait
                failure = explain(error) or f"{type(error).__name__}: {error}"
            if failure:
                self._failed[job] = failure
            self._progress.advance(total)

    def _do(self, job, share):
        """Do a job; why it failed, "" if it did not."""
        task = self._progress.add_task(escape(job.run.name), total=self._updates, note="")
        try:
            process = self._start(job, share, task)
            if process is None:
                return ""
            done, last = 0, ""
            for line in map(str.rstrip, process.stderr):
                done += self._pass_on(line)
                last = line if "error: " in line or "error: " not in last else last
            code = process.wait()
        finally:
            self._running.pop(job, None)
            self._progress.remove_task(task)
        if done == len(STAGES):
            self._progress.console.print(f"{job.run.name} is done", markup=False)
        return (last.partition("error: ")[2] or last or f"exit code {code}").rstrip(".") if code else ""

    def _start(self, job, share, task):
        """The recipe of a job, a process; None if all is stopped."""
        others = [other.run for other in self._jobs if other != job and not is_trained(other.run)]
        places = {"DATA": str(self._data), "POSNET_OTHER_RUNS": ":".join(map(str, others))}  # they need room, too
        with self._starting:
            if self._stop:
                return None
            process = subprocess.Popen(
                ["bash", RECIPE, *STAGES],
                env=os.environ | places | share | job.environment(),
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                preexec_fn=ending_with_this(),
            )
            self._running[job] = process, task
        return process

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
            try:
                updates, valid = updates_of(job.run / "train.log")
            except (OSError, LookupError):  # its own process says what is wrong with it
                continue
            note = f"validation perplexity {valid['valid_ppl']:.1f}" if valid else ""
            self._progress.update(task, completed=updates, note=note)


def is_trained(run):
    """Whether the training of a run is finished. Of one with a damaged record, its own process says so."""
    try:
        return Record(run / "train.json").finished
    except UsageError:
        return False


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
    taken = int(os.environ.get("GPUS") or count)
    if max(number, taken) > count:
        given = f"JOBS={number}" if number > count else f"GPUS={taken}"
        raise UsageError(f"{given}: this machine has {count} GPUs. Give at most that.")
    if number > taken:
        raise UsageError(
            f"JOBS={number}: GPUS={taken} are shared by all, and each needs one. Give at most JOBS={taken}."
        )
    visible = visible_gpus(count)
    size = taken // number
    parts = [",".join(visible[i * size : (i + 1) * size]) for i in range(number)]
    return [{"CUDA_VISIBLE_DEVICES": part, "GPUS": str(size)} for part in parts]


def visible_gpus(count):
    """What CUDA_VISIBLE_DEVICES calls the GPUs. CUDA leaves out what follows a name that it does not know.

    Args:
        count: how many CUDA found.
    """
    names = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(count))))
    return [name.strip() for name in names.split(",")][:count]


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
    if wrong or len(found) > 2 or len(set(found)) < len(found):
        raise UsageError(f"BASELINES={given}: name one or two of {', '.join(names)}.")
    return found


def check_settings(jobs, data, size):
    """Refuse what a run would be refused for, before the first of them begins.

    Args:
        jobs: one for each system.
        data: folder of the dataset.
        size: of the models.

    Raises:
        UsageError: the recipe or fairseq-train does not understand the options of a system.
    """
    for job in jobs:
        only_checks = os.environ | job.environment() | {"POSNET_CHECK": "1"}
        done = subprocess.run(["bash", RECIPE], env=only_checks, capture_output=True, text=True, errors="replace")
        if done.returncode:
            raise UsageError(f"{job.system.name}: {done.stderr.strip().partition('error: ')[2] or done.stderr}")
        try:
            parse([str(data), "--arch", f"{job.system.mixer}_{size}", *job.environment()["OPTIONS"].split()])
        except UsageError as error:
            raise UsageError(f"{job.system.name}: {error}") from error


@command
def main(arguments=None):
    """Train, average, precompute, translate, compare."""
    data, runs, *file = arguments or sys.argv[1:]
    data, runs = Path(data), Path(runs)
    given = {name: os.environ.get(name, "") for name in ("MIXERS", "SEEDS", "JOBS", "BASELINES")}
    name, systems = chosen(file[0] if file else None, given["MIXERS"])
    seeds = [whole_number("SEEDS", text) for text in (given["SEEDS"] or "1").split()]
    if not seeds or len(set(seeds)) < len(seeds):
        raise UsageError(f"SEEDS={given['SEEDS']}: give one or more seeds between spaces, each once.")
    baselines = baselines_of(systems, given["BASELINES"])
    size = os.environ["SIZE"]
    # Seed by seed: all systems can be compared as soon as the first is done.
    jobs = [Job(system, seed, runs / f"{system.name}_{size}_s{seed}") for seed in seeds for system in systems]
    parts = shares(whole_number("JOBS", given["JOBS"] or "1"))[: len(jobs)]
    crew = Crew(jobs, parts, data, int(os.environ["UPDATES"]))
    check_settings(jobs[: len(systems)], data, size)
    comparison = Comparison(
        data,
        runs / f"compare_{name}_{size}",
        {s.name: [runs / f"{s.name}_{size}_s{n}" for n in seeds] for s in systems},
    )
    comparison.check()
    # Only now, when all that was said is understood, what may take hours.
    prepare = ["bash", RECIPE, "prepare"]
    if subprocess.run(prepare, env=os.environ | jobs[0].environment(), preexec_fn=ending_with_this()).returncode:
        sys.exit(2)
    failed = crew.work()
    if failed:
        sentences = "; ".join(f"{job.run.name}: {sentence}" for job, sentence in failed.items())
        raise UsageError(
            f"{len(failed)} of {len(jobs)} runs failed ({sentences}). The others are kept; run again when it is mended."
        )
    if os.environ.get("NODE_RANK", "0") not in ("", "0"):
        return  # the first machine does the rest
    if os.environ.get("DRY_RUN", "0") not in ("", "0"):
        return
    comparison.make(baselines, os.environ["METRICS"])
    print(f"compare: {shown(comparison.folder)} has the report, curves.png and comparison.yaml", file=sys.stderr)


if __name__ == "__main__":
    if os.environ.get("POSNET_PARENT"):  # another recipe, which compares
        end_with_recipe()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # stop the runs, too
    main()
