import pytest
import torch

from posnet_fairseq.registry import get_mixer
from support import recurrences, reference
from support.building import build_mixer, settings
from support.recurrences import rms, silu


def unit(x):
    return x / ((x**2).sum() + 1e-6).sqrt()


def naive_gated_deltanet(mixer, x, y):
    """Gated DeltaNet (Yang et al., ICLR 2025) Eq. 10, by the recurrence itself."""
    projected = x @ mixer.in_proj.weight.T
    features, gate = projected[:, : sum(mixer.widths)], projected[:, sum(mixer.widths) :]

    def of_direction(direction):
        own = mixer.by_direction[direction]
        convolved = recurrences.convolve(features, own.convolution, backward=direction == 1)
        q, k, v = (reference.split(each, mixer.num_heads) for each in convolved.split(mixer.widths, dim=1))
        write = 1 / (1 + torch.exp(-x @ own.write_proj.weight.T))
        heads = []
        for h in range(mixer.num_heads):
            decay = None
            if own.decay_proj is not None:
                step = torch.log(1 + torch.exp(x @ own.decay_proj.weight[h] + own.step_bias[h]))
                decay = torch.exp(-torch.exp(own.log_rate[h]) * step)
            queries = [unit(row) / mixer.head_dim**0.5 for row in q[h]]
            keys = [unit(row) for row in k[h]]
            heads.append(recurrences.recur(queries, keys, v[h], decay, write[:, h], backward=direction == 1))
        return torch.stack(heads, dim=1)

    mixed = recurrences.both_ways(mixer, of_direction)
    rows = [torch.cat([rms(head, mixer.norm_scale) for head in row]) for row in mixed]
    return (torch.stack(rows) * silu(gate)) @ mixer.out_proj.weight.T


@pytest.mark.parametrize("place", ["encoder", "decoder"])
@pytest.mark.parametrize("options", [{}, {"expand": 2}, {"no_decay": True}], ids=str)
def test_equals_formula(place, options):
    reference.assert_equal_to_reference(build_mixer("gated_deltanet", place, **options), naive_gated_deltanet)


def test_parameters_are_those_of_the_table():
    """(2 + 3e) D² and the scale; in each direction 2HD, 4 (2 + e) D of the convolution, and 2H of decays."""
    width, heads = 64, 4
    for place, directions in (("encoder", 2), ("decoder", 1)):
        for expand in (1, 2):
            mixer = build_mixer("gated_deltanet", place, embed_dim=width, num_heads=heads, expand=expand)
            own = 2 * heads * width + 4 * (2 + expand) * width + 2 * heads
            expected = (2 + 3 * expand) * width**2 + expand * width // heads + directions * own
            assert sum(p.numel() for p in mixer.parameters()) == expected


def test_decays_start_as_in_the_paper():
    """Rates between 0 and 16, steps between .001 and .1; neither takes weight decay."""
    mixer = get_mixer("gated_deltanet")(settings("gated_deltanet", "decoder", embed_dim=256, num_heads=128))
    own = mixer.by_direction[0]
    recurrences.assert_decays_start_as_in_the_paper(own, 0)
    for parameter in (own.log_rate, own.step_bias):
        assert parameter.optim_overrides == {"optimizer": {"weight_decay_scale": 0.0}}
