"""Every mixer that has a form on grids equals its formula there, forward and in every gradient."""

import pytest

from posnet_fairseq.registry import mixer_names
from support import grids

ON = ("q", "k", "v", "qk", "qv", "kv", "qkv")
VARIANTS = {
    "irpe": [
        *({"irpe_method": method, "irpe_on": "qkv"} for method in ("product", "cross", "euclidean", "quantization")),
        *({"irpe_method": method, "irpe_mode": "bias"} for method in ("product", "cross", "euclidean", "quantization")),
        *({"irpe_on": on} for on in ON[:-1]),
        {"irpe_on": "qkv", "irpe_share_heads": "separate"},
        {"irpe_mode": "bias", "irpe_share_heads": "shared"},
        {"irpe_on": "qkv", "irpe_beta": 1.9},
        {"irpe_on": "qkv", "irpe_beta": 2},
        *(
            {"irpe_on": "qkv", "irpe_method": method, "irpe_index": index, "irpe_beta": beta}
            for method in ("product", "cross", "euclidean", "quantization")
            for index in ("clip", "window")
            for beta in (1, 3.8)
        ),
        {"irpe_mode": "bias", "irpe_index": "window", "irpe_beta": 1},
    ],
    "shaw": [{"clip_distance": 1}, {}, {"clip_distance": 2, "shaw_values": True}],
    "relative": [{"clip_distance": 1}, {}],
    "huang": [{"clip_distance": 1}, {}],
    "scalar_bias": [{"clip_distance": 1}, {}, {"clip_distance": 3, "scalar_bias_index": "piecewise"}],
    "transformer_xl": [{"clip_distance": 1}, {}],
    "sasa": [{"clip_distance": 1}, {}],
    "lightconv": [{"clip_distance": 1}, {"clip_distance": 3}, {"clip_distance": 1, "lightconv_global_context": True}],
    "rposnet": [{"clip_distance": 1}, {}],
    "translution": [
        *({"translution_clip": clip} for clip in (1, 2, 4, None)),
        *({"translution_clip": 2, "translution_on": on, "gate": gate} for on in ON for gate in ("none", "gelu")),
    ],
    "alpha_translution": [
        *({"translution_clip": clip, "alpha_dim": 3} for clip in (1, 2, 4, None)),
        *({"translution_clip": 2, "translution_on": on, "alpha_dim": 1} for on in ON),
    ],
}
CASES = [(name, options) for name in mixer_names(on_grids=True) for options in VARIANTS.get(name, [{}])]


def test_every_mixer_of_grids_has_a_formula():
    assert set(mixer_names(on_grids=True)) <= set(grids.FORMULAS)


@pytest.mark.parametrize("extra_tokens", [0, 2])
@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_equals_formula(name, options, extra_tokens):
    grids.assert_equal_to_formula(grids.build_mixer(name, extra_tokens=extra_tokens, **options))


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_equals_formula_with_many_tokens(monkeypatch, name, options):
    grids.as_if_large(monkeypatch)
    grids.assert_equal_to_formula(grids.build_mixer(name, **options))


@pytest.mark.parametrize("grid", [(1, 6), (6, 1), (1, 1), (9, 2)], ids=str)
@pytest.mark.parametrize("name", mixer_names(on_grids=True))
def test_equals_formula_on_grids_of_all_shapes(name, grid):
    grids.assert_equal_to_formula(grids.build_mixer(name, grid))


@pytest.mark.parametrize("name", mixer_names(on_grids=True))
def test_equals_formula_with_a_gate(name):
    grids.assert_equal_to_formula(grids.build_mixer(name, gate="gelu"))
