"""Parameters of mixers on grids are those of the papers' tables."""

import math

import pytest
import torch
from torch import nn

import posnet_fairseq as posnet


@pytest.mark.parametrize(
    ("method", "extra_tokens", "rows"),
    [("product", 1, 50), ("product", 0, 49), ("cross", 0, 14), ("euclidean", 0, 7), ("quantization", 0, 7)],
)
def test_buckets_of_irpe(method, extra_tokens, rows):
    """Of DeiT: 14 × 14 patches and a class token; iRPE (Wu et al., ICCV 2021) Eqs. 19-25."""
    built = {"grid": (14, 14), "extra_tokens": extra_tokens, "irpe_method": method}
    mixer = posnet.build_mixer("irpe", 384, 6, **built, irpe_on="qkv")
    assert [len(table) for table in (mixer.on_queries, mixer.on_keys, mixer.on_values)] == [rows] * 3
    assert posnet.build_mixer("irpe", 384, 6, **built, irpe_mode="bias").bias.shape == (6, rows)


A, C = (6, 192, 3), (12, 384, 6)
MNIST, IMAGENET = (84, 1, 10), (224, 3, 1000)  # pixels, colors, classes


@pytest.mark.parametrize(
    ("shape", "images", "patch", "millions"),
    [
        (A, MNIST, 12, ("2.7", "4.6", "116.2")),
        (A, MNIST, 7, ("2.7", "8.3", "355.0")),
        (A, IMAGENET, 56, ("4.7", "5.3", "38.5")),
        (A, IMAGENET, 32, ("3.5", "5.3", "116.9")),
        (A, IMAGENET, 16, ("3.0", "10.7", None)),
        ((12, 192, 3), IMAGENET, 56, ("7.4", "8.7", "75.0")),
        (C, IMAGENET, 56, ("25.3", "30.5", "296.0")),
    ],
)
def test_vision_transformers_of_translution(shape, images, patch, millions):
    """Translution (Fan et al., 2025) Tables 2 and 3, in millions of parameters."""
    for name, million in zip(("attention", "alpha_translution", "translution"), millions, strict=True):
        if million is not None:
            assert f"{_vision_transformer(name, *shape, *images, patch) / 1e6:.1f}" == million, name


def _vision_transformer(name, depth, width, heads, pixels, colors, classes, patch):
    """Parameters of a ViT whose patches are normalized before and after they are embedded, as in the published code."""
    side = pixels // patch
    with torch.device("meta"):
        every_offset = {} if name == "attention" else {"translution_clip": None}
        mixer = posnet.build_mixer(name, width, heads, grid=(side, side), extra_tokens=1, bias=False, **every_offset)
        feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.Linear(4 * width, width))
        inner = colors * patch**2
        patches = nn.Sequential(nn.LayerNorm(inner), nn.Linear(inner, width), nn.LayerNorm(width))
        others = nn.Sequential(patches, nn.LayerNorm(width), nn.Linear(width, classes))
    positions = (side**2 + 1) * width if name == "attention" else 0
    layer = sum(math.prod(p.shape) for part in (mixer, feed_forward) for p in part.parameters()) + 4 * width
    return depth * layer + sum(p.numel() for p in others.parameters()) + positions + width
