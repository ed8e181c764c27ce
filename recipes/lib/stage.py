"""One stage of a run: python recipes/lib/stage.py RUN NAME [--made FILE] [--after FILE] -- COMMAND ...

Runs the command once, with its output in RUN/NAME.log and what happened in RUN/NAME.json. A stage that is finished is
left alone, unless what it made is gone or is older than what it is made of; one that was cut short is done again; other
options than before are refused.
"""

import argparse
import contextlib
import fcntl
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

from record import Record, last_attempt, settings_of

from posnet_fairseq.shared.command import command
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.processes import die_with_parent, ending_with_this
from posnet_fairseq.shared.progress import ProgressReporter, shown

DONE = " is done"  # said of a stage that was finished before
PATIENCE = 10.0  # seconds to wait for a run's folder
STEP = 0.5  # seconds between two looks at a command that runs


class Stage:
    """A command of a run, done once.

    Args:
        run: folder, which is made.
        name: of the stage.
        command: list of arguments.
        made: the file it makes, None if none in particular. A finished stage whose file is gone is done again.
        after: a file it is made of, or None. A finished stage is done again when that is newer.
        settings: what it depends on, a dict; None: the command's own, see :func:`record.settings_of`.
        remedy: what to do if these have changed.
    """

    def __init__(self, run, name, command, made=None, after=None, settings=None, remedy=None):
        self.run, self.name, self.command = Path(run), name, command
        self.made, self.after = (Path(path) if path else None for path in (made, after))
        self.settings = settings_of(command) if settings is None else settings
        self._remedy = remedy or f"To do it again, remove {shown(self.run / name)}.json."
        self.log = self.run / f"{name}.log"
        self.record = Record(self.run / f"{name}.json")

    @property
    def done(self):
        """Whether nothing is left to do.

        Raises:
            UsageError: it was begun with other options.
        """
        different = self.record.differences(self.settings)
        if different:
            verb = "finished" if self.record.finished else "begun"
            raise UsageError(
                f"{shown(self.run)}: {self.name} was {verb} with other options ({'; '.join(different)}). {self._remedy}"
            )
        if not self.record.finished or (self.made and not self.made.exists()):
            return False
        both = self.made and self.after and self.after.exists()
        return not both or self.made.stat().st_mtime_ns >= self.after.stat().st_mtime_ns

    def do(self, watch=lambda: None, prepare=lambda: None):
        """Run the command.

        Args:
            watch: called again and again while it runs.
            prepare: called before, with nobody else at work in the folder.

        Raises:
            UsageError: it failed; or another process works in this folder.
        """
        with self._alone() as lock:
            if self.done:  # by another process, meanwhile
                return
            prepare()
            self.record.begin(self.command, self.settings)
            start = time.perf_counter()
            code, usage = self._run(watch, lock)
            measured = {
                "seconds": round(time.perf_counter() - start, 1),
                "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
                "peak_memory_bytes": usage.ru_maxrss * 1024,  # of the largest process
            }
            made = self.made is None or self.made.exists()
            if code == 0 and made:
                self.record.end("finished", **measured)
                return
            outcome = f"stopped by signal {-code}" if code < 0 else f"exit code {code}" if code else "made nothing"
            self.record.end(outcome, **measured)
            raise UsageError(f"{self.name} of {shown(self.run.name)}: {outcome}. {self._last_words()}")

    @contextlib.contextmanager
    def _alone(self):
        self.run.mkdir(parents=True, exist_ok=True)
        # The command inherits the lock: a run whose recipe was killed is not begun again beside it.
        with open(self.run / ".lock", "w") as lock:
            # Processes that load data outlive a training that was killed by some seconds.
            deadline = time.monotonic() + PATIENCE
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if time.monotonic() > deadline:
                        raise UsageError(
                            f"{shown(self.run)}: another process works in this folder. Wait for it, or stop it."
                        ) from error
                time.sleep(STEP)
            yield lock

    def _run(self, watch, lock):
        with open(self.log, "a", encoding="utf-8") as log:
            log.write(f"$ {shlex.join(self.command)}\n")
            log.flush()
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[lock.fileno()],
                preexec_fn=ending_with_this(),
                start_new_session=True,  # torchrun and its processes are stopped as one
            )
            try:
                while True:
                    ended, status, usage = os.wait4(process.pid, os.WNOHANG)
                    if ended:
                        process.returncode = os.waitstatus_to_exitcode(status)
                        return process.returncode, usage
                    watch()
                    time.sleep(STEP)
            finally:
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGTERM)
                    process.wait()

    def _last_words(self):
        lines = last_attempt(self.log).splitlines()
        lines = [line.strip() for line in lines if re.search(r"\w", line) and "ChildFailedError" not in line]
        errors = [line for line in lines if "error: " in line] or [line for line in lines if "Error: " in line]
        words = (errors or lines)[-1:]
        return f"{words[0]} (log: {shown(self.log)})" if words else f"See {shown(self.log)}."


def do(stage, unit="", total=None, watch=None, prepare=lambda: None):
    """Do a stage with its progress shown, unless it is done.

    Args:
        stage: a :class:`Stage`.
        unit, total: of what its bar counts.
        watch: None, or a function of a report and the bar to what is called again and again meanwhile.
        prepare: see :meth:`Stage.do`.
    """
    report = ProgressReporter()
    if stage.done:
        report.say(f"{stage.run.name}: {stage.name}{DONE}")
        return
    with report.stage(f"{stage.run.name}: {stage.name}", unit, total) as bar:
        stage.do(watch(report, bar) if watch else lambda: None, prepare)


def end_with_recipe():
    """Stop, and stop the command, when the recipe that started this process ends or tells it to."""
    die_with_parent(int(os.environ.get("POSNET_PARENT") or os.getppid()))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def parser(description):
    """Of the command line that every stage has."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("run", help="folder of the run")
    made.add_argument("name", help="of the stage")
    made.add_argument("--made", help="the file that the command makes")
    made.add_argument("--after", help="the file that it is made of")
    made.add_argument("--data", help="folder of the data; where it lies makes no difference")
    made.add_argument("--setting", action="append", default=[], metavar="NAME=VALUE", help="beside its options")
    made.add_argument("command", nargs="+", help="the command, after --")
    return made


@command
def main(arguments=None):
    """Do a stage whose command needs no watching."""
    options = parser(__doc__).parse_args(arguments)
    settings = settings_of(options.command, options.setting, {"RUN": options.run, "DATA": options.data})
    do(Stage(options.run, options.name, options.command, options.made, options.after, settings))


if __name__ == "__main__":
    end_with_recipe()
    main()
