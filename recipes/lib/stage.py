"""One stage of a run: python recipes/lib/stage.py RUN NAME [--made FILE] [--setting NAME=VALUE] -- COMMAND ...

Runs the command once, with its output in RUN/NAME.log and what happened in RUN/NAME.json. A stage that is finished is
left alone; one that was cut short is done again; other options than before are refused.
"""

import argparse
import contextlib
import fcntl
import os
import resource
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

from record import Record, settings_of

from posnet_fairseq.cli._run import command
from posnet_fairseq.errors import UsageError
from posnet_fairseq.processes import die_with_parent
from posnet_fairseq.progress import Report, shown

STEP = 0.5  # seconds between two looks at a command that runs


class Stage:
    """A command of a run, done once.

    Args:
        run: folder, which is made.
        name: of the stage.
        command: list of arguments.
        made: the file it makes; a finished stage whose file is gone is done again. None: none in particular.
        settings: see :func:`record.settings_of`.
    """

    def __init__(self, run, name, command, made=None, settings=()):
        self.run, self.name, self.command = Path(run), name, command
        self.made = Path(made) if made else None
        self.settings = settings_of(command, settings)
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
                f"{shown(self.run)}: {self.name} was {verb} with other options ({'; '.join(different)}). Give this run "
                "a name of its own (NAME=...), or remove that folder."
            )
        return self.record.finished and (self.made is None or self.made.exists())

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
            start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
            code = self._run(watch, lock)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            measured = {
                "seconds": round(time.perf_counter() - start, 1),
                "cpu_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
                "peak_memory_bytes": after.ru_maxrss * 1024,  # of the largest process
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
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UsageError(
                    f"{shown(self.run)}: another process works in this folder. Wait for it, or stop it."
                ) from error
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
                preexec_fn=die_with_parent,
                start_new_session=True,  # torchrun and its processes are stopped as one
            )
            try:
                while True:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        return process.wait(STEP)
                    watch()
            finally:
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGTERM)
                    process.wait()

    def _last_words(self):
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        begun = max(index for index, line in enumerate(lines) if line.startswith("$ "))
        errors = [line for line in lines[begun + 1 :] if "error: " in line] or lines[begun + 1 :][-1:]
        return f"{errors[0].strip()} (log: {shown(self.log)})" if errors else f"See {shown(self.log)}."


def parser(description):
    """Of the command line that every stage has."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("run", help="folder of the run")
    made.add_argument("name", help="of the stage")
    made.add_argument("--made", help="the file that the command makes")
    made.add_argument("--setting", action="append", default=[], metavar="NAME=VALUE", help="beside its options")
    made.add_argument("command", nargs="+", help="the command, after --")
    return made


@command
def main(arguments=None):
    """Do a stage whose command needs no watching."""
    options = parser(__doc__).parse_args(arguments)
    stage = Stage(options.run, options.name, options.command, options.made, options.setting)
    report = Report()
    if stage.done:
        report.say(f"{stage.run.name}: {stage.name} is done")
        return
    with report.stage(f"{stage.run.name}: {stage.name}"):
        stage.do()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # stop the command, too
    main()
