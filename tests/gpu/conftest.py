import pytest
import torch

from support.gpu import the_gpu

GPU = the_gpu()


@pytest.fixture
def gpu(_reproducible):
    if GPU is None:
        pytest.skip("there is no GPU; test_simulated.py runs these tests on a simulated one")
    # Without these a GPU refuses operations that have no deterministic form there.
    torch.use_deterministic_algorithms(GPU.draws_as_a_cpu)
    with GPU:
        yield GPU
