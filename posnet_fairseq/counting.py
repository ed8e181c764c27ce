"""Parameters and operations, counted from the real modules."""

import copy
import dataclasses
import itertools
from argparse import Namespace

import torch
from torch.utils.flop_counter import FlopCounterMode

from posnet_fairseq import synthetic
from posnet_fairseq.mixers._base import MixingContext
from posnet_fairseq.mixers._position_based import PositionBasedMixer
from posnet_fairseq.model_config import apply_arch
from posnet_fairseq.models.mixer_transformer import MixerTransformer
from posnet_fairseq.precompute import precompute
from posnet_fairseq.registry import get_mixer

# What a count is made of: N tokens, width D, K̂ = 2K + 1 rows of a table.
TERMS = {
    "K̂ND": lambda n, d, k: k * n * d,
    "N²D": lambda n, d, k: n * n * d,
    "ND²": lambda n, d, k: n * d * d,
    "ND": lambda n, d, k: n * d,
    "D²": lambda n, d, k: d * d,
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
        dict from a term, as in :data:`TERMS`, to how often it counts. Exact: counted in matrix products of modules
        of several sizes, which the terms then explain without a rest.

    Raises:
        ArithmeticError: the terms do not explain the counts.
    """
    sizes = list(itertools.product((16, 24, 40), (32, 64), (3, 5, 7)))
    counts = torch.tensor([_count(name, search, *size) for size in sizes], dtype=torch.float64)
    table = [[term(n, d, 2 * k + 1) for term in TERMS.values()] for n, d, k in sizes]
    matrix = torch.tensor(table, dtype=torch.float64)
    factors = torch.linalg.lstsq(matrix, counts).solution.round()
    if not torch.equal(matrix @ factors, counts):
        raise ArithmeticError(f"the operations of {name} are not made of {', '.join(TERMS)}")
    return {term: int(factor) for term, factor in zip(TERMS, factors, strict=True) if factor}


def _count(name, search, length, width, clip_distance):
    """Half of the floating-point operations, as a paper counts: a product and its sum are one."""
    cls = get_mixer(name)
    reaches = {field.name: clip_distance for field in dataclasses.fields(cls.Config) if field.type is int}
    settings = synthetic.settings("encoder", cls.default_gate, cls.Config(**reaches), width, 4, length)
    with torch.device("meta"):
        mixer = cls(settings).eval()
        tokens, positions = torch.empty(1, length, width), torch.empty(length, width)
        context = MixingContext(positions=positions)
        total = _flops(lambda: mixer(tokens, tokens, context))
        if search and isinstance(mixer, PositionBasedMixer):
            offsets = context.offsets(length, length, tokens.device)
            total -= _flops(lambda: mixer.energy(offsets, positions, positions))
    return total / 2


def _flops(function):
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


def as_text(factors):
    """A count as "2N²D + 4ND²"."""
    signed = {
        term: ("-" if factor < 0 else "+", "" if abs(factor) == 1 else abs(factor)) for term, factor in factors.items()
    }
    return " ".join(f"{sign} {times}{term}" for term, (sign, times) in signed.items()).removeprefix("+ ")


def reach(mixer, shape):
    """K, or what a mixer has in its place, at a size."""
    reaches = [field for field in dataclasses.fields(mixer.Config) if field.type is int]
    return next((getattr(shape, field.name, field.default) for field in reaches), shape.clip_distance)


def evaluate(factors, length, width, clip_distance):
    """A count for N, D and K."""
    return sum(factor * TERMS[term](length, width, 2 * clip_distance + 1) for term, factor in factors.items())
