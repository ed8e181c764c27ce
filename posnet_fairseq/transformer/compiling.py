"""Layers compiled by ``torch.compile``. They are compiled in place: modules and parameters keep their names."""

import os
import tempfile

import torch
from torch import nn

from posnet_fairseq.shared.errors import UsageError

# Layers of all kinds share a count of graphs, and each kind has some: with padding and without.
_MOST_GRAPHS = 64


def check_compiler(device: str) -> None:
    """Compile a function on a trial, on a device of type ``cpu`` or ``cuda``."""
    try:
        torch.compile(lambda x: x + 1, dynamic=True)(torch.ones(2, device=device))
    except Exception as error:
        if device == "cpu" and (space := path_with_space()):
            raise UsageError(f"--compile: {space[0]}. To fix it, {space[1]}.") from error
        needed = "a C++ compiler and Python's headers" if device == "cpu" else "Triton and a C compiler"
        raise UsageError(
            f"--compile: torch could not compile a function on this machine, which takes {needed}. Install "
            f"them (on Debian and Ubuntu: build-essential and python3-dev), or leave --compile out."
        ) from error


def path_with_space() -> tuple[str, str] | None:
    """Return what is wrong and what to do if a space in a path keeps torch from compiling for CPUs; else None."""
    cache = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or tempfile.gettempdir()
    for path, fix in (
        (cache, "set TORCHINDUCTOR_CACHE_DIR to a folder without a space"),
        (os.path.dirname(torch.__file__), "install posnet in a folder without a space"),
    ):
        if " " in path:  # torch 2.13 splits the command of the compiler there
            return f"torch.compile fails on CPUs: there is a space in {path}", fix
    return None


def compile_layer(layer: nn.Module) -> None:
    """Let ``torch.compile`` compile calls of a layer, one graph for batches of all sizes. Layers alike share graphs."""
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _MOST_GRAPHS)
    layer.compile(dynamic=True)
