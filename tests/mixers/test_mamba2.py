import pytest
import torch

from posnet_fairseq.registry import get_mixer
from support import recurrences, reference
from support.building import build_mixer, settings
from support.recurrences import rms, silu


def naive_mamba2(mixer, x, y):
    """Mamba-2 (Dao and Gu, ICML 2024) Eq. 1 and Section 7.1, by the recurrence itself."""
    z, features, steps = (x @ mixer.in_proj.weight.T).split(mixer.sizes, dim=1)
    heads = mixer.num_heads

    def of_direction(direction):
        own = mixer.by_direction[direction]
        convolved = recurrences.convolve(features, own.convolution, backward=direction == 1)
        values, b, c = convolved.split(mixer.widths, dim=1)
        results = []
        for h, value in enumerate(reference.split(values, heads)):
            step = torch.log(1 + torch.exp(steps[:, direction * heads + h] + own.step_bias[h]))
            decay = torch.exp(-torch.exp(own.log_rate[h]) * step)
            mixed = recurrences.recur(c, b, step[:, None] * value, decay, backward=direction == 1)
            results.append(mixed if direction else mixed + mixer.skip[h] * value)
        return torch.cat(results, dim=1)

    mixed = recurrences.both_ways(mixer, of_direction) * silu(z)
    return torch.stack([rms(row, mixer.norm_scale) for row in mixed]) @ mixer.out_proj.weight.T


@pytest.mark.parametrize("place", ["encoder", "decoder"])
@pytest.mark.parametrize("options", [{"state_size": 5}, {"state_size": 3, "expand": 1}], ids=str)
def test_equals_formula(place, options):
    reference.assert_equal_to_reference(build_mixer("mamba2", place, **options), naive_mamba2)


def test_parameters():
    """3eD² + 2 N_s D and HD of each direction's steps; convolutions 5 (eD + 2 N_s), 2H; D: H, the scale eD."""
    width, heads, states, expand = 64, 4, 16, 2
    for place, directions in (("encoder", 2), ("decoder", 1)):
        mixer = build_mixer("mamba2", place, embed_dim=width, num_heads=heads, state_size=states)
        own = heads * width + 5 * (expand * width + 2 * states) + 2 * heads
        expected = 3 * expand * width**2 + 2 * states * width + directions * own + heads + expand * width
        assert sum(p.numel() for p in mixer.parameters()) == expected


def test_decays_start_as_in_the_paper():
    """Rates between 1 and 16, steps between .001 and .1, D at 1."""
    mixer = get_mixer("mamba2")(settings("mamba2", "decoder", embed_dim=256, num_heads=128))
    recurrences.assert_decays_start_as_in_the_paper(mixer.by_direction[0], 1)
    assert (mixer.skip == 1).all()
