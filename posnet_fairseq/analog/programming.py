"""Programming the crossbars of a model, and their drift, from seeds."""

import hashlib
from typing import Any

import torch
from aihwkit.nn.modules.base import AnalogLayerBase
from torch import nn


def tiles(model: nn.Module) -> dict[str, Any]:
    """The crossbars of a model, by name."""
    return {
        f"{name}.{number}": tile
        for name, module in model.named_modules()
        if isinstance(module, AnalogLayerBase)
        for number, tile in enumerate(module.analog_tiles())
    }


@torch.no_grad()
def program(model: nn.Module, seed: int, number: int) -> None:
    """Program all crossbars anew. What noise a crossbar gets depends on its name, not on which others there are.

    Args:
        model: whose crossbars are changed.
        seed: of everything random.
        number: of the programming, from 1.
    """
    for name, tile in tiles(model).items():
        torch.manual_seed(seed_of(seed, "programming", number, name))
        tile.program_weights()


@torch.no_grad()
def let_drift(model: nn.Module, seed: int, number: int, time: int) -> None:
    """Let the conductances drift since they were programmed.

    Args:
        model: whose crossbars are changed.
        seed, number: as in :func:`program`.
        time: seconds since the programming.
    """
    for name, tile in tiles(model).items():
        torch.manual_seed(seed_of(seed, "drift", number, time, name))
        tile.drift_weights(float(time))


def seed_of(*what: object) -> int:
    """A seed for torch that is another one for everything that differs."""
    return int.from_bytes(hashlib.sha256(repr(what).encode()).digest()[:7], "big")
