import os
from collections import Counter

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

import posnet_fairseq.models  # noqa: F401  (registers the plugin)
from support.building import Case, usual_gate
from support.checkpoints import checkpoint

# Commands of hostile use that take seconds: in a process of their own, or drawing every head.
SLOW_ROWS = ("fairseq-", "posnet-plot weights")
# Files that take minutes without a slow test.
LONG = (
    *("test_first_hour", "test_documented_commands", "test_gpu_check", "test_simulated", "test_runs"),
    *("test_init_checkpoint", "test_studies", "test_compile"),
)


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their markers
def pytest_collection_modifyitems(items):
    """Mark what is thorough by its parameters, and put files that take minutes first, so that no worker ends with one.

    Of a mixer's cases those with its usual gate and options are quick; of tests with ``quick_cases(n)`` the first n; of
    rows of hostile use those of fast commands.
    """
    seen = Counter()
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        case, command = params.get("case"), getattr(params.get("row"), "command", "")
        unusual = isinstance(case, Case) and (case.options or case.gate != usual_gate(case))
        unusual = unusual or command.startswith(SLOW_ROWS)
        marker = item.get_closest_marker("quick_cases")
        seen[item.path, item.originalname] += marker is not None
        if unusual or (marker and seen[item.path, item.originalname] > marker.args[0]):
            item.add_marker(pytest.mark.thorough)
    long = {item.path for item in items if item.get_closest_marker("slow") or item.path.stem in LONG}
    items.sort(key=lambda item: item.path not in long)


@pytest.fixture(scope="session")
def small_model(tmp_path_factory):
    """A checkpoint of a small model, which tests leave as it is."""
    torch.manual_seed(2)
    return checkpoint(tmp_path_factory.mktemp("model") / "model.pt", "rposnet")


@pytest.fixture(scope="module", autouse=True)
def _reproducible_fixtures():
    """The same models in the fixtures of a file, whichever files are run before it."""
    torch.manual_seed(1)


@pytest.fixture(autouse=True)
def _reproducible():
    """The same numbers in every run, and NaN in memory that nobody has written to."""
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
