"""The multiplications that mixers declare are those of their products of matrices."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from posnet_fairseq.inference.precompute import store
from posnet_fairseq.mixers.bases.context import MixingContext
from posnet_fairseq.mixers.bases.energies import Energy
from posnet_fairseq.mixers.bases.operations import MixingSize
from posnet_fairseq.mixers.bases.position_based import PositionBasedMixer
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.registry import get_mixer
from support import operations
from support.building import mixer_cases, possible, settings

HEADS = 2
# N, M, D, K: more tokens than K, no number twice. In self-attention M is N.
SIZES = [(7, 11, 12, 3), (13, 9, 20, 5)]


def build(case, size):
    """The mixer of a case with matrices, tables and widths of a :class:`MixingSize`."""
    config, options = get_mixer(case.mixer).Config, dict(case.options)
    for name, field in config.__dataclass_fields__.items():
        if field.metadata.get("reach"):
            options[name] = size.clip_distance
        elif name == "alpha_dim":
            options[name] = size.narrow_dim // HEADS
    chosen = settings(case.mixer, case.place, case.gate, config(**options), size.embed_dim, HEADS)
    return get_mixer(case.mixer)(chosen).eval()


def counted(mixer, size):
    """Half of the floating-point operations of a call: a product and its sum are two of them."""
    x, memory, positions = (torch.empty(1, rows, size.embed_dim) for rows in (size.queries, size.keys, 64))
    vectors = {"positions": positions[0], "memory_positions": positions[0]}
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        mixer(x, memory if mixer.place == "cross" else x, **vectors)
    return counter.get_total_flops() / 2


def mixing_size(place, numbers):
    queries, keys, width, clip = numbers
    return MixingSize(queries, keys if place == "cross" else queries, width, clip, narrow_dim=3 * HEADS)


@pytest.mark.parametrize("numbers", SIZES, ids=str)
@pytest.mark.parametrize("case", filter(possible, mixer_cases()), ids=str)
def test_operations_are_those_of_the_modules(case, numbers):
    size = mixing_size(case.place, numbers)
    with torch.device("meta"):
        mixer = build(case, size)
        assert mixer.operations(size) == counted(mixer, size)
        if isinstance(mixer, PositionBasedMixer) and len(mixer.energies):
            positions = torch.empty(64, size.embed_dim)
            store(mixer, size.queries, size.keys, MixingContext(positions=positions, memory_positions=positions))
            assert mixer.operations(size) == counted(mixer, size)


@pytest.mark.parametrize("base", [TokenMixer, PositionBasedMixer], ids=lambda base: base.__name__)
def test_operations_that_are_not_declared(base):
    size = mixing_size("encoder", SIZES[0])
    mixer = type("New", (base,), {"name": "new"})(settings("attention", "encoder"))
    with pytest.raises(NotImplementedError, match="new does not declare its operations"):
        mixer.operations(size)
    assert operations.formula(mixer) is None
    if base is PositionBasedMixer:
        mixer.energies.append(Energy())
        with pytest.raises(NotImplementedError, match="Energy does not declare its operations"):
            mixer.operations(size)


def test_text_of_a_formula():
    rows, tokens, width, narrow = operations.SYMBOLS
    terms = 4 * tokens**2 * width - tokens * width - 2 * width**2 + 0.75 * rows * tokens * width
    assert operations.as_text(terms) == "0.75K̂ND + 4N²D - ND"
    assert operations.as_text(terms + tokens * narrow + tokens * width * narrow) == ("0.75K̂ND + 4N²D - ND + NE + NDE")
