"""Parameters and operations, counted from the real modules."""

import copy
import dataclasses
import functools
import itertools
import math
from argparse import Namespace

import torch
from torch.utils.flop_counter import FlopCounterMode

from posnet_fairseq.fairseq_plugin import synthetic
from posnet_fairseq.inference.precompute import precompute
from posnet_fairseq.mixers.bases.context import MixingContext
from posnet_fairseq.mixers.bases.position_based import PositionBasedMixer
from posnet_fairseq.models.mixer_transformer import MixerTransformer
from posnet_fairseq.registry import get_mixer
from posnet_fairseq.transformer.architectures import apply_arch
from posnet_fairseq.transformer.sizes import of_arch

# What a count is made of, as exponents of K̂ = 2K + 1 rows of a table, N tokens, width D, and E = H·C, the width of
# α-Translution's relative part.
SYMBOLS = ("K̂", "N", "D", "E")
EXPONENTS = [
    (1, 1, 2, 0),
    *((1, 1, 1, 0), (0, 2, 1, 0), (0, 1, 2, 0), (0, 1, 1, 0), (0, 0, 2, 0)),
    *((2, 0, 2, 0), (2, 0, 1, 0), (1, 0, 1, 0), (0, 0, 1, 0)),  # of sentences that end, matrices of offsets
    *((1, 1, 0, 2), (1, 1, 0, 1), (0, 2, 0, 1), (0, 1, 0, 1), (0, 1, 1, 1)),  # and narrow ones
    *((2, 0, 0, 2), (0, 0, 0, 2), (2, 0, 0, 1), (1, 0, 0, 1), (0, 0, 0, 1)),
]
TERMS = {
    "".join(symbol + "²" * (power == 2) for symbol, power in zip(SYMBOLS, powers, strict=True) if power): powers
    for powers in EXPONENTS
}


def build(mixer, size, words=43650, max_positions=128, **options):
    """A model of a size with shared embeddings, without memory for its weights."""
    positions = {"max_source_positions": max_positions, "max_target_positions": max_positions}
    cfg = Namespace(share_all_embeddings=True, **positions, **options)
    apply_arch(cfg, mixer, size)
    with torch.device("meta"):
        return MixerTransformer.build_model(cfg, synthetic.task(words))


def trained_parameters(model):
    """How many numbers are trained, shared ones once."""
    return sum(parameter.numel() for parameter in model.parameters())


def stored_parameters(model):
    """How many numbers inference needs when energies that no token has a part in are stored as tables.

    The tables take the place of what made them: PosNet (Schmidt and Di Gangi, WMT 2023) Table 7, "Search".
    """
    stored = copy.deepcopy(model).eval()
    precompute(stored)
    return trained_parameters(stored)


def operations(name, search=False):
    """Multiplications and additions of a mixer for one sentence, in encoder self-attention.

    Args:
        name: of a mixer, which has the gate and options it has by default.
        search: leave out what can be stored before inference.

    Returns:
        dict from a term, as in :data:`TERMS`, to how often it counts, for sentences longer than K. Exact: counted in
        matrix products of modules of several sizes, which the terms then explain without a rest.

    Raises:
        ArithmeticError: the terms do not explain the counts.
    """
    narrow = (16, 32) if _has_narrow_part(get_mixer(name)) else (0,)
    sizes = list(itertools.product((3, 5, 7), (16, 24, 40), (32, 64, 96), narrow))
    counts = torch.tensor([_count(name, *size)[search] for size in sizes], dtype=torch.float64)
    table = [[_product(powers, (2 * reach + 1, *size)) for powers in TERMS.values()] for reach, *size in sizes]
    matrix = torch.tensor(table, dtype=torch.float64)
    scale = matrix.amax(dim=0).clamp(min=1)
    # gelsd, because not all terms are independent: lstsq's default then gives something else from call to call, unless
    # torch clears new memory. Sentences end where matrices of offsets would go on: that takes quarters away.
    factors = (torch.linalg.lstsq(matrix / scale, counts, driver="gelsd").solution / scale * 4).round() / 4
    if not torch.equal(matrix @ factors, counts):
        raise ArithmeticError(f"the operations of {name} are not made of {', '.join(TERMS)}")
    return {term: float(factor) for term, factor in zip(TERMS, factors, strict=True) if factor}


def _product(powers, values):
    return math.prod(value**power for value, power in zip(values, powers, strict=True))


@functools.cache
def _count(name, clip_distance, length, width, narrow):
    """Of all, and of search. Half of the floating-point operations: in papers a product and its sum are one."""
    cls, heads = get_mixer(name), 4
    options = dict.fromkeys(_reaches(cls), clip_distance)
    if _has_narrow_part(cls):
        options["alpha_dim"] = narrow // heads
    settings = synthetic.settings("encoder", cls.default_gate, cls.Config(**options), width, heads, length)
    with torch.device("meta"):
        mixer = cls(settings).eval()
        tokens, positions = torch.empty(1, length, width), torch.empty(length, width)
        total, stored = _flops(lambda: mixer(tokens, positions=positions)), 0
        if isinstance(mixer, PositionBasedMixer):
            offsets = MixingContext(device=tokens.device).offsets(length, length)
            stored = _flops(lambda: mixer.energy(offsets, positions, positions))
    return total / 2, (total - stored) / 2


def _has_narrow_part(mixer):
    return any(field.name == "alpha_dim" for field in dataclasses.fields(mixer.Config))


def _reaches(mixer):
    """Its options that say how far relative positions are told apart."""
    return [field.name for field in dataclasses.fields(mixer.Config) if field.metadata.get("reach")]


def _flops(function):
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


def as_text(factors):
    """A count as "2N²D + 4ND²"; what does not grow with the sentence is left out."""
    signed = {
        term: ("-" if factor < 0 else "+", "" if abs(factor) == 1 else f"{abs(factor):g}")
        for term, factor in factors.items()
        if "N" in term
    }
    return " ".join(f"{sign} {times}{term}" for term, (sign, times) in signed.items()).removeprefix("+ ")


def evaluate(factors, mixer, length, shape):
    """A count for sentences of a length in the architectures of a size."""
    options = {field.name: of_arch(mixer, field, shape) for field in dataclasses.fields(mixer.Config)}
    reach = next((options[name] for name in _reaches(mixer)), shape.clip_distance)
    values = (2 * reach + 1, length, shape.embed_dim, options.get("alpha_dim", 0) * shape.attention_heads)
    return sum(factor * _product(TERMS[term], values) for term, factor in factors.items())
