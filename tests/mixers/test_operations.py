"""The formulas of multiplications that mixers declare, against what torch counts in their products of matrices."""

import itertools
import math
import re

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from posnet_fairseq.costs.counting import multiplications
from posnet_fairseq.inference.stored_energies import store
from posnet_fairseq.mixers.bases.context import MixingContext
from posnet_fairseq.mixers.bases.position_based import PositionBasedMixer
from posnet_fairseq.registry import get_mixer, mixer_names
from support.building import USUAL, settings

HEADS = 2
SIZES = [(12, 3, 6), (20, 5, 10)]  # D, K and E = H·C; no number twice


def build(case, width, clip, narrow):
    """The mixer of a case on the meta device, with matrices, tables and widths of a size."""
    config, options = get_mixer(case.mixer).Config, dict(case.options)
    for name, field in config.__dataclass_fields__.items():
        if field.metadata.get("reach"):
            options[name] = clip
        elif name == "alpha_dim":
            options[name] = narrow // HEADS
    with torch.device("meta"):
        return get_mixer(case.mixer)(settings(case.mixer, case.place, case.gate, config(**options), width, HEADS))


def value(formula, tokens, width, clip, narrow):
    """The number that a formula such as "2N²D + 4ND²" stands for."""
    symbols = {"K̂": 2 * clip + 1, "N": tokens, "D": width, "d": width // HEADS, "E": narrow, "H": HEADS}
    symbols["R"] = math.ceil(width / 16)
    total = 0
    for sign, number, factors in re.findall(r"([+-]?) ?(\d*\.?\d*)((?:(?:K̂|N|D|d|E|H|R)²?)+)", formula):
        term = float(number or 1)
        for symbol, square in re.findall(r"(K̂|N|D|d|E|H|R)(²?)", factors):
            term *= symbols[symbol] ** (2 if square else 1)
        total += -term if sign == "-" else term
    return total


def test_value_of_a_formula():
    assert value("0.75K̂ND + 4N²D - ND + NE", 7, 5, 2, 3) == 0.75 * 5 * 7 * 5 + 4 * 49 * 5 - 35 + 21


@pytest.mark.quick_cases(10)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", [name for name in mixer_names() if get_mixer(name).operations_formula])
def test_formulas_are_those_of_the_products(name, size):
    """But for terms that do not grow with N, which formulas leave out: growth is compared."""
    cls = get_mixer(name)
    case = next(case for case in USUAL if (case.mixer, case.place) == (name, "encoder"))
    mixer, formulas = build(case, *size), [cls.operations_formula]
    if isinstance(mixer, PositionBasedMixer) and len(mixer.energies):
        formulas.append(cls.stored_operations_formula or cls.operations_formula)
    for formula in formulas:
        growth = [(multiplications(mixer, n), value(formula, n, *size)) for n in (13, 21, 40)]
        for (counted, expected), (more, larger) in itertools.pairwise(growth):
            assert more - counted == larger - expected
        if formula is formulas[0] and len(formulas) > 1:
            positions = torch.empty(64, size[0], device="meta")
            store(mixer, 64, 64, MixingContext(positions, positions, device="meta"))


@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("name", ["translution", "alpha_translution", "huang", "shaw"])
def test_sentences_shorter_than_the_clip_distance_are_counted(name, length):
    """Beyond it, products grow with the square of the length; these groups of offsets do not."""
    cls = get_mixer(name)
    case = next(case for case in USUAL if (case.mixer, case.place) == (name, "encoder"))
    mixer = build(case, 16, 6, 8)
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        x = torch.zeros(1, length, 16)
        mixer(x)
    assert multiplications(mixer, length) == counter.get_total_flops() // 2 > 0, cls


def operations_of_a_scan(steps, values, writes, *others, **more):
    """Of shapes, as torch's own formulas: each of C features writes into S states, and reads from them."""
    batch, tokens, features = values
    return 2 * (2 * batch * tokens * features * writes[-1])


@pytest.mark.parametrize("case", USUAL, ids=str)
def test_numbers_are_those_of_a_call(case):
    size = SIZES[1]
    mixer, length = build(case, *size), 33
    x, positions = torch.empty(1, length, size[0], device="meta"), torch.empty(64, size[0], device="meta")
    scan = {torch.ops.posnet.selective_scan: operations_of_a_scan}
    with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=scan) as counter:
        mixer(x, x.clone() if case.place == "cross" else x, positions=positions, memory_positions=positions)
    counts = dict(counter.get_flop_counts()["Global"])
    counts.pop(torch.ops.aten.convolution, None)  # over four tokens, and no product of matrices
    assert multiplications(mixer, length) == sum(counts.values()) / 2


def test_long_sentences_cost_what_formulas_say():
    """They are mixed in blocks of tokens, which takes fewer products."""
    case = next(case for case in USUAL if case.mixer == "lightconv")
    assert (
        multiplications(build(case, 12, 3, 6), 10**6) == 10**12 * 12 + (2 if case.gate == "none" else 3) * 10**6 * 144
    )
