import pytest
import torch

from posnet_fairseq.mixers.bases.mixer_settings import PLACES
from posnet_fairseq.ops.offsets import piecewise_index
from posnet_fairseq.registry import get_mixer
from support import reference
from support.building import build_mixer, settings
from support.formulas import piecewise

every_place = pytest.mark.parametrize("place", PLACES)


def naive_irpe(mixer, x, y):
    """iRPE (Wu et al., ICCV 2021) Eqs. 13-17: a vector for every pair."""
    q, k = reference.content(mixer, x, y)
    heads, beta = mixer.num_heads, mixer.beta

    def row(n, m):
        offset = reference.at(mixer, n) - m
        index = piecewise if mixer.buckets.kind == "piecewise" else reference.clip
        return index(offset, beta) + beta if mixer.directed else index(abs(offset), beta)

    def vector(table, h, n, m):
        return reference.split(table[row(n, m)], heads)[h] if table.size(1) == mixer.embed_dim else table[row(n, m)]

    def energy(h, n, m):
        b = 0
        if mixer.bias is not None:
            b = mixer.bias[h % len(mixer.bias), row(n, m)]
        if mixer.on_keys is not None:
            b = b + q[h][n] @ vector(mixer.on_keys, h, n, m)
        if mixer.on_queries is not None:
            b = b + k[h][m] @ vector(mixer.on_queries, h, n, m)
        return (q[h][n] @ k[h][m] + b) / mixer.head_dim**0.5

    on_values = mixer.on_values
    added = None if on_values is None else lambda h, n, m: vector(on_values, h, n, m)
    return reference.attend(mixer, x, y, energy, added)


VARIANTS = [
    {},
    *({"irpe_on": on} for on in ("q", "v", "qk", "qv", "kv", "qkv")),
    {"irpe_on": "qkv", "irpe_share_heads": "separate"},
    {"irpe_on": "qkv", "irpe_index": "clip"},
    {"irpe_on": "qkv", "irpe_undirected": True},
    {"irpe_mode": "bias"},
    {"irpe_mode": "bias", "irpe_share_heads": "shared"},
    {"irpe_mode": "bias", "irpe_index": "clip", "irpe_undirected": True},
]


@every_place
@pytest.mark.parametrize("options", VARIANTS, ids=lambda options: "-".join(map(str, options.values())))
def test_equals_formula(place, options):
    mixer = build_mixer("irpe", place, irpe_beta=3, **options)
    reference.assert_equal_to_reference(mixer, naive_irpe, (1, 2, 13))


@pytest.mark.parametrize("beta", [1, 2, 3, 8, 16, 25])
def test_piecewise_index(beta):
    offsets = torch.arange(-300, 301)
    assert piecewise_index(offsets, beta).tolist() == [piecewise(x, beta) + beta for x in range(-300, 301)]


def test_tables_start_at_zero():
    cls = get_mixer("irpe")
    for options in ({"irpe_on": "qkv"}, {"irpe_mode": "bias"}):
        mixer = cls(settings("irpe", "encoder", options=cls.Config(**options)))
        tables = [t for t in (mixer.bias, mixer.on_queries, mixer.on_keys, mixer.on_values) if t is not None]
        assert tables
        assert not any(table.any() for table in tables)
