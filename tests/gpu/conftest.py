import pytest
import torch

from support.gpu import the_gpu

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
