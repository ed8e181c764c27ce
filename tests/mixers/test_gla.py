import pytest
import torch

from support import recurrences, reference
from support.building import build_mixer
from support.recurrences import rms, silu


def naive_gla(mixer, x, y):
    """GLA (Yang et al., ICML 2024) Eqs. 3-4 and Section 4.4, by the recurrence itself."""
    q, k, v, g = (x @ mixer.in_proj.weight.T).split(mixer.widths, dim=1)
    q, k, v, g = (reference.split(each, mixer.num_heads) for each in (q, k, v, g))
    width = mixer.head_dim // 2

    def of_direction(direction):
        down, up = mixer.decay_projs[direction]
        logits = x @ down.weight.T @ up.weight.T + up.bias
        decays = reference.split((1 / (1 + torch.exp(-logits))) ** (1 / 16), mixer.num_heads)
        heads = [
            recurrences.recur(q[h] / width**0.5, k[h], v[h], decays[h], backward=direction == 1)
            for h in range(mixer.num_heads)
        ]
        return torch.stack(heads, dim=1)

    mixed = recurrences.both_ways(mixer, of_direction)
    rows = [torch.cat([rms(head, mixer.norm_scale) for head in row]) for row in mixed]
    return (torch.stack(rows) * silu(torch.cat(g, dim=1))) @ mixer.out_proj.weight.T


@pytest.mark.parametrize("place", ["encoder", "decoder"])
@pytest.mark.parametrize("expand", [1, 2])
def test_equals_formula(place, expand):
    reference.assert_equal_to_reference(build_mixer("gla", place, expand=expand), naive_gla)


def test_parameters_are_those_of_the_table():
    """q and k D²/2 each, v, gate and output eD² each; decays 16 D + 16 D/2 + D/2 in each direction; the scale."""
    width = 64
    for place, directions in (("encoder", 2), ("decoder", 1)):
        for expand in (1, 2):
            mixer = build_mixer("gla", place, embed_dim=width, expand=expand)
            decays = directions * (16 * width + 16 * width // 2 + width // 2)
            expected = (1 + 3 * expand) * width**2 + decays + expand * width // 2
            assert sum(p.numel() for p in mixer.parameters()) == expected
