import pytest
import torch

from posnet_fairseq.mixers.bases.context import MixingContext
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


def test_is_a_convolution_inside_of_a_sentence():
    mixer = build_mixer("lightconv", clip_distance=2, num_heads=2)
    x = torch.randn(1, 12, 8, dtype=torch.float64)
    mixed, _ = mixer.mix(x, x, MixingContext())
    value = mixer.value(x, MixingContext())[0].transpose(1, 2).flatten(0, 1)  # features x positions
    kernel = (
        mixer.energies[0].weight.softmax(-1).flip(1).repeat_interleave(4, dim=0)[:, None]
    )  # a kernel for every feature
    expected = torch.nn.functional.conv1d(value[None], kernel, groups=8)
    torch.testing.assert_close(mixed[0, :, 2:-2].transpose(1, 2).flatten(0, 1), expected[0])
