import pytest
import torch

from posnet_fairseq.mixers.bases.gating import GATES
from support import reference
from support.building import build_mixer


def naive_lightconv(mixer, x, y):
    """PosNet (Schmidt and Di Gangi, WMT 2023) Eq. 14, normalized over the real positions of the window."""
    kernel, limit, nothing = (
        mixer.energies[0].weight,
        mixer.energies[0].reach,
        torch.tensor(-torch.inf, dtype=torch.float64),
    )

    def energy(h, n, m):
        if abs(n - m) > limit and not mixer.tails:
            return nothing
        return kernel[h, reference.clip(n - m, limit) + limit]

    return reference.attend(mixer, x, y, energy)


@pytest.mark.parametrize("place", ["encoder", "decoder"])
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("everything", [False, True])
def test_equals_formula(place, gate, everything):
    lengths = reference.LENGTHS if gate == "glu" else reference.SHORT
    mixer = build_mixer("lightconv", place, gate, clip_distance=2, lightconv_global_context=everything)
    reference.assert_equal_to_reference(mixer, naive_lightconv, lengths)
