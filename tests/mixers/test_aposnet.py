import pytest

from posnet_fairseq.mixers.bases.gating import GATES
from posnet_fairseq.mixers.bases.mixer_settings import PLACES
from support import reference
from support.building import build_mixer, vectors
from support.formulas import absolute_energy

every_place = pytest.mark.parametrize("place", PLACES)


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
