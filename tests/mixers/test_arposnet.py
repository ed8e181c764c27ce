import pytest

from posnet_fairseq.mixers.bases.mixer_settings import PLACES
from support import reference
from support.building import build_mixer, vectors
from support.formulas import absolute_energy, relative_energy


def naive_arposnet(mixer, x, y, positions, memory_positions):
    """PosNet (Schmidt and Di Gangi, WMT 2023) Eq. 8 plus Eqs. 9 and 10."""
    relative = relative_energy(mixer, mixer.energies[0], positions)
    absolute = absolute_energy(mixer, mixer.energies[1], positions, memory_positions)
    return reference.attend(mixer, x, y, lambda h, n, m: relative(h, n, m) + absolute(h, n, m))


@pytest.mark.parametrize("place", PLACES)
def test_equals_formula(place):
    p = vectors(max(reference.LENGTHS))
    mixer = build_mixer("arposnet", place, "gelu", clip_distance=3)
    reference.assert_equal_to_reference(mixer, naive_arposnet, **p)
