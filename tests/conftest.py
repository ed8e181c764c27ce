import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

import posnet_fairseq.models  # noqa: F401  (registers the plugin)
from support.tiers import longest_first, mark_thorough


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their markers
def pytest_collection_modifyitems(items):
    mark_thorough(items)
    longest_first(items)


@pytest.fixture(autouse=True)
def _reproducible():
    """The same numbers in every run, and NaN in memory that nobody has written to."""
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
