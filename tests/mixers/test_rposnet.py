import pytest
import reference
import torch
from building import build_mixer

from posnet_fairseq.errors import UsageError
from posnet_fairseq.gating import GATES
from posnet_fairseq.mixers._base import MixingContext


def positions(count):
    return torch.randn(count, 8, dtype=torch.float64, requires_grad=True)


def naive_rposnet(vectors):
    """PosNet (Schmidt and Di Gangi, WMT 2023) Eqs. 9 and 10."""

    def mix(mixer, x):
        q = [reference.split(p @ mixer.query_proj.weight.T + mixer.query_proj.bias, mixer.num_heads) for p in vectors]
        table = reference.split(mixer.relative, mixer.num_heads)
        clip = mixer.clip_distance

        def energy(h, n, m):
            offset = max(-clip, min(clip, n - m))
            return q[n][h] @ table[h][offset + clip] / mixer.head_dim**0.5

        return reference.mix_one_sentence(mixer, x, x, reference.masked(mixer, energy, len(x), len(x)))

    return mix


@pytest.mark.parametrize("place", ["encoder", "decoder"])
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("clip_distance", [1, 3, 100])
def test_equals_formula(place, gate, clip_distance):
    lengths = reference.LENGTHS if (gate, clip_distance) == ("gelu", 3) else (1, 2, 7)
    p = positions(max(lengths))
    mixer = build_mixer("rposnet", place, gate, clip_distance=clip_distance)
    reference.assert_equal_to_reference(mixer, naive_rposnet(p), lengths, positions=p)


@pytest.mark.parametrize("place", ["encoder", "decoder"])
def test_gradcheck(place):
    p = positions(4)[:, :4]
    mixer = build_mixer("rposnet", place, "gelu", embed_dim=4, clip_distance=2)
    reference.assert_gradcheck(mixer, positions=p)


def test_weights_need_no_token():
    mixer, p = build_mixer("rposnet"), positions(5)
    context = MixingContext(positions=p, need_weights=True)
    x, y = torch.randn(2, 3, 5, 8, dtype=torch.float64)
    assert torch.equal(mixer(x, x, context)[1], mixer(y, y, context)[1])


@pytest.mark.parametrize("clip_distance", [0, -4])
def test_clip_distance_below_one_is_refused(clip_distance):
    with pytest.raises(UsageError, match=f"--clip-distance {clip_distance}: .* at least 1"):
        build_mixer("rposnet", clip_distance=clip_distance)
