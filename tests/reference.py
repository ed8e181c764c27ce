"""Mixers as slow loops in float64, straight from the formulas, to hold the fast ones against."""

import torch
import torch.nn.functional as F
from torch.autograd import gradcheck

from posnet_fairseq.mixers._base import MixingContext

LENGTHS = (1, 2, 7, 63)


def split(x, num_heads):
    """(N, D) to a list of H (N, d)."""
    return x.chunk(num_heads, dim=-1)


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


def mix_one_sentence(mixer, query, memory, energies):
    """Softmax of given energies [h][n][m] (minus infinity where masked), weighted sum, gate, output projection."""
    heads = split(values(mixer, memory), mixer.num_heads)
    rows = []
    for n in range(len(query)):
        context = []
        for h, v in enumerate(heads):
            weights = torch.stack([energies[h][n][m] for m in range(len(memory))]).softmax(0)
            context.append(sum(weights[m] * v[m] for m in range(len(memory))))
        rows.append(torch.cat(context))
    context = torch.stack(rows) * gate(mixer, query)
    return context @ mixer.out_proj.weight.T + mixer.out_proj.bias


def allowed(mixer, n, m):
    return m <= n or mixer.place != "decoder"


def masked(mixer, energy, queries, keys):
    """energy(h, n, m) as nested lists, minus infinity where the future is."""
    never = torch.tensor(-torch.inf, dtype=torch.float64)
    return [
        [[energy(h, n, m) if allowed(mixer, n, m) else never for m in range(keys)] for n in range(queries)]
        for h in range(mixer.num_heads)
    ]


def assert_equal_to_reference(mixer, reference, lengths=LENGTHS, **context):
    """Forward and every gradient of a padded batch against reference(mixer, tokens) sentence by sentence.

    Args:
        mixer: for self-attention, in float64.
        reference: function of the mixer and the tokens (N, D) of one sentence, to (N, D).
        lengths: of the sentences; the batch is padded to the longest.
        context: what :class:`MixingContext` gets besides the padding mask.
    """
    longest = max(lengths)
    sentences = [torch.randn(n, mixer.embed_dim, dtype=torch.float64, requires_grad=True) for n in lengths]
    cotangents = [torch.randn_like(sentence) for sentence in sentences]
    batch = torch.stack([F.pad(sentence, (0, 0, 0, longest - len(sentence))) for sentence in sentences])
    padding_mask = torch.tensor([[m >= n for m in range(longest)] for n in lengths])
    inputs = [*sentences, *mixer.parameters(), *(t for t in context.values() if torch.is_tensor(t) and t.requires_grad)]
    mask = None if mixer.place == "decoder" else padding_mask

    fast, _ = mixer(batch, batch, MixingContext(padding_mask=mask, **context))
    outputs = [row[:n] for row, n in zip(fast, lengths, strict=True)]
    gradients = torch.autograd.grad(_pair(outputs, cotangents), inputs, allow_unused=True)

    slow = [reference(mixer, sentence) for sentence in sentences]
    expected = torch.autograd.grad(_pair(slow, cotangents), inputs, allow_unused=True)
    for got, want, n in zip(outputs, slow, lengths, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9, msg=lambda m, n=n: f"length {n}: {m}")
    for index, (got, want) in enumerate(zip(gradients, expected, strict=True)):
        torch.testing.assert_close(got, want, rtol=1e-8, atol=1e-8, msg=lambda m, i=index: f"gradient {i}: {m}")


def assert_gradcheck(mixer, length=4, **context):
    """Numerical against analytical gradients of inputs and parameters."""
    x = torch.randn(1, length, mixer.embed_dim, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x, *_: mixer(x, x, MixingContext(**context))[0], (x, *mixer.parameters()))


def _pair(outputs, cotangents):
    return sum((output * cotangent).sum() for output, cotangent in zip(outputs, cotangents, strict=True))
