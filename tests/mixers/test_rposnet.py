import pytest

from posnet_fairseq.mixers.bases.gating import GATES
from posnet_fairseq.mixers.bases.mixer_settings import PLACES
from support import reference
from support.building import build_mixer, vectors
from support.formulas import relative_energy


def naive_rposnet(mixer, x, y, positions, memory_positions):
    return reference.attend(mixer, x, y, relative_energy(mixer, mixer.energies[0], positions))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("clip_distance", [1, 3, 100])
def test_equals_formula(place, gate, clip_distance):
    lengths = reference.LENGTHS if (gate, clip_distance) == ("gelu", 3) else reference.SHORT
    p = vectors(max(lengths))
    mixer = build_mixer("rposnet", place, gate, clip_distance=clip_distance)
    reference.assert_equal_to_reference(mixer, naive_rposnet, lengths, **p)
