import math

import pytest
import torch

from posnet_fairseq.shared.errors import UsageError
from support import reference
from support.building import build_mixer


def turned(x, position):
    """RoFormer (Su et al., 2021) Eq. 34, one pair of features at a time: i with i + d/2."""
    half = len(x) // 2
    first, second = [], []
    for i in range(half):
        angle = position * 10000 ** (-i / half)
        sin, cos = math.sin(angle), math.cos(angle)
        first.append(x[i] * cos - x[i + half] * sin)
        second.append(x[i + half] * cos + x[i] * sin)
    return torch.stack(first + second)


def naive_rope(mixer, x, y):
    q, k = reference.content(mixer, x, y)
    q = [[turned(row, n) for n, row in enumerate(head)] for head in q]
    k = [[turned(row, m) for m, row in enumerate(head)] for head in k]
    return reference.attend(mixer, x, y, lambda h, n, m: q[h][n] @ k[h][m] / mixer.head_dim**0.5)


@pytest.mark.parametrize("place", ["encoder", "decoder"])
def test_equals_formula(place):
    reference.assert_equal_to_reference(build_mixer("rope", place), naive_rope)


def test_odd_heads_are_refused():
    with pytest.raises(UsageError, match=r"--encoder-attention-heads 2: heads of 3 features cannot be turned in pairs"):
        build_mixer("rope", embed_dim=6)
