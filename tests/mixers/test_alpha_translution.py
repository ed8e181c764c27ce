import pytest
import torch

from support import reference
from support.building import build_mixer

every_place = pytest.mark.parametrize("place", ["encoder", "decoder"])


def naive_alpha_translution(mixer, x, y):
    """Translution (Fan et al., 2025) Eq. 2: a vector for every pair, widened before it is summed."""
    matrices, heads = mixer.matrices, mixer.num_heads
    q, k = reference.content(mixer, x, y)
    v = reference.split(reference.values(mixer, y), heads)

    def relative(tokens, narrow, table, n, m):
        offset = reference.clip(n - m, matrices.reaches[-1]) + (0 if mixer.place == "decoder" else matrices.reaches[-1])
        return tokens @ narrow.weight.T if table is None else tokens @ narrow.weight.T @ table[offset]

    def energy(h, n, m):
        if matrices.queries is None and matrices.keys is None:
            return q[h][n] @ k[h][m] / mixer.head_dim**0.5
        q2 = relative(x[n], mixer.narrow_query, matrices.queries, n, m).chunk(heads)[h]
        k2 = relative(y[m], mixer.narrow_key, matrices.keys, n, m).chunk(heads)[h]
        return (q[h][n] @ k[h][m] + q2 @ k2) / (2 * mixer.head_dim**0.5)

    weights = reference.softmax(reference.masked(mixer, energy, len(x), len(y)))
    rows = []
    for n in range(len(x)):
        context = torch.cat([sum(weights[h][n][m] * v[h][m] for m in range(len(y))) for h in range(heads)])
        if matrices.values is not None:
            # U of the parts of all heads, each with its weight
            for m in range(n + 1 if mixer.place == "decoder" else len(y)):
                v2 = relative(y[m], mixer.narrow_value, matrices.values, n, m).chunk(heads)
                context = context + torch.cat([weights[h][n][m] * v2[h] for h in range(heads)]) @ mixer.widen.weight.T
            context = context / 2
        rows.append(context)
    context = torch.stack(rows) * reference.gate(mixer, x)
    return context @ mixer.out_proj.weight.T + mixer.out_proj.bias


@every_place
@pytest.mark.parametrize("clip", [1, 3, 63, None])
def test_equals_formula(place, clip):
    mixer = build_mixer("alpha_translution", place, translution_clip=clip, alpha_dim=3)
    reference.assert_equal_to_reference(mixer, naive_alpha_translution, (1, 2, 7, 20))


@every_place
@pytest.mark.parametrize("gate", ["none", "gelu"])
@pytest.mark.parametrize("on", ["qkv", "qk", "qv", "kv", "q", "k", "v"])
def test_equals_formula_on_some_projections(place, gate, on):
    mixer = build_mixer("alpha_translution", place, gate, translution_clip=3, translution_on=on, alpha_dim=2)
    reference.assert_equal_to_reference(mixer, naive_alpha_translution, reference.SHORT)
