"""The linear layers of the parts of a model that can be on crossbars."""

from collections.abc import Iterator
from typing import Any

from torch import nn

from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.transformer.layers import FeedForward

# Linear layers of mixers that get no tokens: what they give can be computed before inference.
_OF_POSITIONS = ("energies.", "relative_proj")


def linears(model: nn.Module, part: str) -> Iterator[tuple[nn.Module, str, nn.Linear]]:
    """Yield, for the linear layers of a part other than ``mixing``, the module that has it, its name there, and it."""
    if part == "output":
        owner: Any = model.get_submodule("decoder")
        yield owner, "output_projection", owner.output_projection
        return
    kind = TokenMixer if part == "projections" else FeedForward
    for layer in (module for module in model.modules() if isinstance(module, kind)):
        for path, child in layer.named_modules():
            if isinstance(child, nn.Linear) and not path.startswith(_OF_POSITIONS):
                owner_path, _, name = path.rpartition(".")
                yield layer.get_submodule(owner_path), name, child
