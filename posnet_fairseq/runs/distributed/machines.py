"""Agreement of the processes of a training on several machines before it begins: the first one decides.

They talk through the store by which torchrun brought them together, which is a new one for every attempt.
"""

import hashlib
import itertools
import json
import os
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from torch.distributed import DistError, Store, rendezvous

PATIENCE = 90.0  # seconds until a file that one machine has written must be seen by the others
ANSWER = timedelta(minutes=10)  # until a process must have answered
# Machines may have different names for the same folders; the data, too, which are the first argument.
PLACES = ("--save-dir", "--tensorboard-logdir", "--user-dir")


def agreed_arguments(arguments: list[str]) -> list[str]:
    """Return arguments for fairseq-train, equal in all processes but for names of folders.

    The recipe on the first machine looks at the checkpoint and may add some; the others get them from there.
    """
    try:
        store, rank, world = next(rendezvous("env://", timeout=ANSWER))
        return agree(store, rank, world, Setup.own(arguments))
    except DistError as error:
        raise ValueError("a machine has ended, or has not answered in 10 minutes. See what it says.") from error


@dataclass(frozen=True)
class Setup:
    """What a process tells the others."""

    machine: int  # its number
    processes: int  # of that machine
    arguments: list[str]
    dataset: str  # key of its data
    record: Path  # of the attempt, in the run's folder, which the first machine has just written

    @classmethod
    def own(cls, arguments: list[str]) -> "Setup":
        """Return the setup of this process, which torchrun started."""
        card = Path(arguments[0], "dataset.json")
        dataset = json.loads(card.read_text(encoding="utf-8"))["key"] if card.exists() else ""
        run = Path(arguments[arguments.index("--save-dir") + 1]).parent
        machine, processes = (int(os.environ[name]) for name in ("GROUP_RANK", "LOCAL_WORLD_SIZE"))
        return cls(machine, processes, arguments, dataset, run / "train.json")

    def message(self) -> str:
        """Return what the first process tells the others."""
        return json.dumps([self.processes, self.arguments, self.dataset, digest(self.record)])

    def complaint(self, message: str) -> str:
        """Return a sentence if this process cannot work with the first one, else ""."""
        processes, arguments, dataset, record = json.loads(message)
        here = f"machine {self.machine} (--node-rank)"
        if processes != self.processes:
            own = f"{self.processes} {'process' if self.processes == 1 else 'processes'}"
            number = f"{here} has {own} and the first has {processes}"
            return f"{number}. Give all the same number (--gpus)."
        for pairs in zip(itertools.pairwise(self.arguments), itertools.pairwise(arguments), strict=False):
            own, first = map(" ".join, pairs)
            if pairs[0][1] != pairs[1][1] and pairs[0][0] not in PLACES:
                return f"{here} would train with {own} and the first with {first}. Give all the same settings."
        if more := " ".join(self.arguments[len(arguments) :]):
            return f"{here} would train with {more} and the first without. Give all the same settings."
        if dataset != self.dataset:
            return f"{here} has other data than the first: {self.arguments[0]}. Let all machines see the same folder."
        deadline = time.monotonic() + PATIENCE
        while digest(self.record) != record:
            if time.monotonic() > deadline:
                return (
                    f"{here} does not see what the first has written: {self.record.absolute()}. Runs must be in a "
                    "folder that all machines share (--runs)."
                )
            time.sleep(min(1.0, PATIENCE / 10))
        return ""


def agree(store: Store, rank: int, world: int, setup: Setup) -> list[str]:
    """Return :func:`agreed_arguments` of a store that all processes see, and nobody has used before."""
    if rank == 0:
        store.set("posnet/first", setup.message())
    message = store.get("posnet/first").decode()
    store.set(f"posnet/complaint/{rank}", setup.complaint(message) if rank else "")
    for other in range(world):
        complaint = store.get(f"posnet/complaint/{other}").decode()
        if complaint:
            raise ValueError(complaint)
    _, arguments, *_ = json.loads(message)
    return setup.arguments + arguments[len(setup.arguments) :]


def digest(path: Path) -> str:
    """Return a hash of a file's bytes, "" if there is none."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return ""
