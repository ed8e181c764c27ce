import pytest
import torch

import posnet_fairseq
from posnet_fairseq.mixers.bases.mixer_settings import PLACES
from support import reference
from support.building import build_mixer


def features(x):
    """elu(x) + 1: Katharopoulos et al. (ICML 2020) Eq. 7."""
    return torch.where(x > 0, x + 1, x.clamp(max=0).exp())


def naive_linear_attention(mixer, x, y):
    """Katharopoulos et al. (ICML 2020) Eq. 4, with .000001 added to the sum of weights as in their code."""
    q, k = reference.content(mixer, x, y)
    weights = []
    for h in range(mixer.num_heads):
        products = [[features(q[h][n]) @ features(k[h][m]) for m in range(len(y))] for n in range(len(x))]
        if mixer.place == "decoder":
            products = [[p if m <= n else 0 * p for m, p in enumerate(row)] for n, row in enumerate(products)]
        weights.append([torch.stack(row) / (torch.stack(row).sum() + 1e-6) for row in products])
    return reference.mix_one_sentence(mixer, x, y, weights)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("gate", ["none", "gelu"])
def test_equals_formula(place, gate):
    lengths = reference.LENGTHS if gate == "none" else reference.SHORT
    reference.assert_equal_to_reference(build_mixer("linear_attention", place, gate), naive_linear_attention, lengths)


@pytest.mark.parametrize(
    ("place", "in_steps"), [*((place, False) for place in PLACES), ("decoder", True), ("cross", True)]
)
@torch.no_grad()
def test_sums_of_many_tokens_stay_finite_under_autocast(place, in_steps):
    """Where tokens have much in common they are beyond 65,504, the largest number of float16."""
    torch.manual_seed(0)
    causal, cross = place == "decoder", place == "cross"
    mixer = posnet_fairseq.build_mixer(
        "linear_attention", 512, 8, max_positions=1000, causal=causal, cross_attention=cross
    ).eval()
    tokens = torch.nn.functional.layer_norm(torch.randn(1, 1000, 512) + torch.randn(1, 1, 512), (512,))
    memory = tokens if cross else None
    expected = mixer(tokens, memory)
    with torch.autocast("cpu", dtype=torch.float16):
        if in_steps:
            state = mixer.init_state(1, memory)
            found = torch.cat([mixer.step(token, state) for token in tokens.split(1, dim=1)], dim=1)
        else:
            found = mixer(tokens, memory)
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=0.01)


@pytest.mark.parametrize("place", PLACES)
def test_weights_are_those_of_the_formula(place):
    mixer = build_mixer("linear_attention", place)
    query, memory = torch.randn(2, 2, 6, 8, dtype=torch.float64)
    memory = memory if place == "cross" else query
    mixed, weights = mixer(query, memory, need_weights=True)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 6, dtype=torch.float64), rtol=0, atol=1e-5)
    values = mixer.project_values(memory)
    torch.testing.assert_close(mixer.out_proj((weights @ values).transpose(1, 2).flatten(2)), mixed)
