import pytest
import reference
import torch
from building import build_mixer

from posnet_fairseq.mixers.bases.gating import GATES
from posnet_fairseq.mixers.bases.token_mixer import PLACES

every_place = pytest.mark.parametrize("place", PLACES)


def vectors(count, width=8):
    """Of more positions than tokens: in cross-attention ⌊γn⌋ is looked up."""
    return {
        name: torch.randn(2 * count, width, dtype=torch.float64, requires_grad=True)
        for name in ("positions", "memory_positions")
    }


def absolute_energy(mixer, energy, positions, memory_positions):
    """PosNet (Schmidt and Di Gangi, WMT 2023) Eq. 8 as a function (h, n, m)."""
    q = reference.project(positions, energy.query_proj, mixer.num_heads)
    memory = memory_positions if mixer.place == "cross" else positions
    k = reference.project(memory, energy.key_proj, mixer.num_heads)
    return lambda h, n, m: q[h][reference.at(mixer, n)] @ k[h][m] / mixer.head_dim**0.5


def naive_aposnet(positions, memory_positions):
    def mix(mixer, x, y):
        energy = absolute_energy(mixer, mixer.energies[0], positions, memory_positions)
        return reference.attend(mixer, x, y, energy)

    return mix


@every_place
@pytest.mark.parametrize("gate", GATES)
def test_equals_formula(place, gate):
    lengths = reference.LENGTHS if gate == "gelu" else reference.SHORT
    p = vectors(max(lengths))
    reference.assert_equal_to_reference(build_mixer("aposnet", place, gate), naive_aposnet(**p), lengths, **p)


@every_place
def test_gradcheck(place):
    reference.assert_gradcheck(build_mixer("aposnet", place, "gelu", embed_dim=4), **vectors(4, 4))
