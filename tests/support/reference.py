"""Mixers as slow loops in float64, straight from the formulas, to hold the fast ones against."""

import math

import torch
import torch.nn.functional as F

LENGTHS = (1, 2, 7, 35)  # the longest is beyond all clip distances and buckets of these tests
SHORT = (1, 2, 7)
# γ in cross-attention: source and target tokens.
RATIO = (5, 4)


def split(x, num_heads):
    """(N, D) to a list of H (N, d)."""
    return x.chunk(num_heads, dim=-1)


def project(x, linear, num_heads):
    """(N, D) through a Linear layer, to a list of H (N, d)."""
    return split(x @ linear.weight.T + (0 if linear.bias is None else linear.bias), num_heads)


def at(mixer, n):
    """n in self-attention, ⌊γn⌋ in cross-attention."""
    return math.floor(1.25 * n) if mixer.place == "cross" else n


def clip(offset, limit):
    return max(-limit, min(limit, offset))


def values(mixer, memory):
    """Eq. 4 of PosNet (Schmidt and Di Gangi, WMT 2023): v_m of one sentence, (M, D)."""
    gating = mixer.gating
    v = memory @ gating.value_proj.weight.T + gating.value_proj.bias
    if gating.kind == "gelu":
        v = 0.5 * v * (1 + torch.erf(v / 2**0.5))
        v = (v - v.mean(-1, keepdim=True)) / (v.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
        return v * gating.value_norm.weight + gating.value_norm.bias
    if gating.kind == "glu":
        a, b = v.chunk(2, dim=-1)
        return a * torch.sigmoid(b)
    return v


def gate(mixer, query):
    """Eq. 4: g_n of one sentence, (N, D), or 1."""
    if mixer.gating.kind != "gelu":
        return 1.0
    g = query @ mixer.gating.gate_proj.weight.T + mixer.gating.gate_proj.bias
    return 0.5 * g * (1 + torch.erf(g / 2**0.5))


def softmax(energies):
    """energies [h][n][m] (minus infinity where masked) to weights [h][n] of (M,)."""
    return [[torch.stack(row).softmax(0) for row in head] for head in energies]


def mix_one_sentence(mixer, query, memory, weights, relative_value=None):
    """Weighted sum, gate, output projection.

    Args:
        weights: [h][n] of (M,).
        relative_value: function (h, n, m) to what is added to v_m, (d,).
    """
    heads = split(values(mixer, memory), mixer.num_heads)
    rows = []
    for n in range(len(query)):
        context = []
        for h, v in enumerate(heads):
            vectors = [v[m] if relative_value is None else v[m] + relative_value(h, n, m) for m in range(len(memory))]
            context.append(sum(weights[h][n][m] * vector for m, vector in enumerate(vectors)))
        rows.append(torch.cat(context))
    context = torch.stack(rows) * gate(mixer, query)
    return context @ mixer.out_proj.weight.T + mixer.out_proj.bias


def attend(mixer, query, memory, energy, relative_value=None):
    """The softmax of energy(h, n, m) over what a query may see, then :func:`mix_one_sentence`."""
    weights = softmax(masked(mixer, energy, len(query), len(memory)))
    return mix_one_sentence(mixer, query, memory, weights, relative_value)


def masked(mixer, energy, queries, keys, hidden=-torch.inf):
    """energy(h, n, m) as nested lists, `hidden` where the future is."""
    hidden = torch.tensor(hidden, dtype=torch.float64)

    def of_pair(h, n, m):
        return energy(h, n, m) if m <= n or mixer.place != "decoder" else hidden

    heads = range(mixer.num_heads)
    return [[[of_pair(h, n, m) for m in range(keys)] for n in range(queries)] for h in heads]


def content(mixer, x, y):
    """q and k of one sentence, as lists of H."""
    heads = mixer.num_heads
    return project(x, mixer.query_proj, heads), project(y, mixer.key_proj, heads)


def assert_equal_to_reference(mixer, reference, lengths=LENGTHS, **context):
    """Forward and every gradient of a padded batch against reference(mixer, tokens) sentence by sentence.

    Args:
        mixer: in float64. In cross-attention the memory's sentences are as long as the queries', in another order.
        reference: function of the mixer, the queries (N, D) and the memory (M, D) of one sentence, and the context, to
            (N, D).
        lengths: of the sentences; the batch is padded to the longest.
        context: other arguments than the padding mask and γ.
    """
    queries = [_tokens(mixer, n) for n in lengths]
    memories = [_tokens(mixer, n) for n in lengths[::-1]] if mixer.place == "cross" else queries
    cotangents = [torch.randn_like(sentence) for sentence in queries]
    given = dict(context)
    inputs = [*queries, *(memories if mixer.place == "cross" else []), *mixer.parameters(), *given.values()]
    if mixer.place != "decoder":
        context["padding_mask"] = torch.tensor([[m >= len(y) for m in range(max(lengths))] for y in memories])
    if mixer.place == "cross":
        context["length_ratio"] = RATIO

    batch = _padded(queries, max(lengths))
    memory = batch if memories is queries else _padded(memories, max(lengths))
    fast = mixer(batch, memory, **context)
    outputs = [row[:n] for row, n in zip(fast, lengths, strict=True)]
    gradients = torch.autograd.grad(_pair(outputs, cotangents), inputs, allow_unused=True)

    slow = [reference(mixer, x, y, **given) for x, y in zip(queries, memories, strict=True)]
    expected = torch.autograd.grad(_pair(slow, cotangents), inputs, allow_unused=True)
    torch.testing.assert_close(outputs, slow, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(gradients, expected, rtol=1e-8, atol=1e-8)


def _tokens(mixer, length):
    return torch.randn(length, mixer.embed_dim, dtype=torch.float64, requires_grad=True)


def _padded(sentences, longest):
    return torch.stack([F.pad(sentence, (0, 0, 0, longest - len(sentence))) for sentence in sentences])


def _pair(outputs, cotangents):
    return sum((output * cotangent).sum() for output, cotangent in zip(outputs, cotangents, strict=True))
