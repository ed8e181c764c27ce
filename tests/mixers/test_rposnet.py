import pytest
import torch

from posnet_fairseq.mixers.bases.gating import GATES
from posnet_fairseq.mixers.bases.mixer_settings import PLACES
from support import reference
from support.building import build_mixer, vectors
from support.formulas import relative_energy

every_place = pytest.mark.parametrize("place", PLACES)


def naive_rposnet(positions, memory_positions):
    def mix(mixer, x, y):
        return reference.attend(mixer, x, y, relative_energy(mixer, mixer.energies[0], positions))

    return mix


@every_place
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("clip_distance", [1, 3, 100])
def test_equals_formula(place, gate, clip_distance):
    lengths = reference.LENGTHS if (gate, clip_distance) == ("gelu", 3) else reference.SHORT
    p = vectors(max(lengths))
    mixer = build_mixer("rposnet", place, gate, clip_distance=clip_distance)
    reference.assert_equal_to_reference(mixer, naive_rposnet(**p), lengths, **p)


@every_place
def test_gradcheck(place):
    mixer = build_mixer("rposnet", place, "gelu", embed_dim=4, clip_distance=2)
    reference.assert_gradcheck(mixer, **vectors(4, 4))


def test_weights_need_no_token():
    mixer, p = build_mixer("rposnet"), vectors(5)
    x, y = torch.randn(2, 3, 5, 8, dtype=torch.float64)
    (_, ours), (_, theirs) = (mixer(z, positions=p["positions"], need_weights=True) for z in (x, y))
    assert torch.equal(ours, theirs)


def test_with_a_table_for_every_offset_it_is_any_softmax_over_positions():
    """K ≥ L - 1 and one-hot position vectors: every energy of a static softmax has its own product of two tables."""
    length, width = 4, 8
    mixer = build_mixer("rposnet", num_heads=1, embed_dim=width, clip_distance=length - 1)
    wanted = torch.randn(length, length, dtype=torch.float64)
    relative = mixer.energies[0]
    with torch.no_grad():
        relative.query_proj.bias.zero_()
        # The table is one-hot per offset (7 offsets, 8 features); the query of position n lists its row of energies.
        relative.relative.copy_(torch.eye(2 * length - 1, width, dtype=torch.float64))
        relative.query_proj.weight.zero_()
        for n in range(length):
            for m in range(length):
                relative.query_proj.weight[n - m + length - 1, n] = wanted[n, m] * width**0.5
    x = torch.randn(3, length, width, dtype=torch.float64)
    positions = torch.eye(length, width, dtype=torch.float64)
    _, weights = mixer(x, x, positions=positions, need_weights=True)
    torch.testing.assert_close(weights[0, 0], wanted.softmax(-1))
