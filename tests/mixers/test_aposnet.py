import pytest

from posnet_fairseq.mixers.bases.gating import GATES
from posnet_fairseq.mixers.bases.mixer_settings import PLACES
from support import reference
from support.building import build_mixer, vectors
from support.formulas import absolute_energy


def naive_aposnet(mixer, x, y, positions, memory_positions):
    energy = absolute_energy(mixer, mixer.energies[0], positions, memory_positions)
    return reference.attend(mixer, x, y, energy)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("gate", GATES)
def test_equals_formula(place, gate):
    lengths = reference.LENGTHS if gate == "gelu" else reference.SHORT
    p = vectors(max(lengths))
    reference.assert_equal_to_reference(build_mixer("aposnet", place, gate), naive_aposnet, lengths, **p)
