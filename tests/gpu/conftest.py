import contextlib
import os
import warnings

import pytest
import torch

from support import simulated_gpu


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
    if simulated_gpu.SIMULATED in os.environ:
        simulated_gpu.install()
        return simulated_gpu.SimulatedGPU()
    return RealGPU() if torch.cuda.is_available() else None


GPU = the_gpu()


def pytest_collection_modifyitems(config, items):
    """Without a GPU, only ``-m gpu`` is told of each test that it is skipped."""
    if GPU is None and config.option.markexpr != "gpu":
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("gpu")])
        items[:] = [item for item in items if not item.get_closest_marker("gpu")]


@pytest.fixture
def gpu(_reproducible):
    """The GPU, real or simulated."""
    if GPU is None:
        pytest.skip("there is no GPU; test_simulated.py runs the tests with a simulated one")
    # Some operations have no deterministic form on a GPU, where torch would refuse them.
    torch.use_deterministic_algorithms(GPU.draws_as_a_cpu)
    with GPU:
        yield GPU
