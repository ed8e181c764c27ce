"""The GPU that the tests of ``tests/gpu`` run on: a real one, or the simulated one of a process that asks for it."""

import contextlib
import os
import warnings

import torch

from support import simulated_gpu
from support.simulated_gpu import SimulatedGPU

# A process with this in its environment has the simulated GPU.
SIMULATED = "POSNET_SIMULATED_GPU"


class RealGPU(contextlib.nullcontext):
    """The first GPU of this machine.

    Attributes:
        draws_as_a_cpu: whether a seed gives the random numbers that it gives on a CPU.
    """

    device = torch.device("cuda", 0)
    draws_as_a_cpu = False

    def __enter__(self):
        return self

    @contextlib.contextmanager
    def counted_waits(self):
        """A list that names, after the block, the places that waited in it."""
        places = []
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                yield places
            finally:
                torch.cuda.set_sync_debug_mode("default")
        places.extend(f"{each.filename}:{each.lineno}" for each in seen if "synchroniz" in str(each.message))


def the_gpu():
    """The GPU, as a context manager that returns it; None if there is none."""
    if SIMULATED in os.environ:
        simulated_gpu.install()
        return SimulatedGPU()
    return RealGPU() if torch.cuda.is_available() else None
