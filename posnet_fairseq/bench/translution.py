"""Translutions against their formulas written out, against the products it cannot do without, and against attention."""

import math
import statistics
from pathlib import Path

import torch

from posnet_fairseq.bench import layers
from posnet_fairseq.bench.memory import peak_resident
from posnet_fairseq.bench.timing import interleaved, median_ratio
from posnet_fairseq.ops.heads import merge_heads, split_heads

NAME, NARROW = "translution", "alpha_translution"


def written_out(mixer, x):
    """A causal mixer as Translution (Fan et al., 2025) App. C and D state it: matrices and vectors for every pair.

    Args:
        mixer: Translution or α-Translution, without a gate, of a decoder, with matrices of all offsets.
        x: (B, N, D).
    """
    heads, narrow = mixer.num_heads, mixer.name == NARROW
    n = torch.arange(x.size(1), device=x.device)
    offsets = n[:, None] - n
    tables = mixer.matrices.queries, mixer.matrices.keys, mixer.matrices.values
    of_pairs = [table[offsets.clamp(min=0)] for table in tables]  # (N, N, C, C)
    tokens = (mixer.narrow_query(x), mixer.narrow_key(x), mixer.narrow_value(x)) if narrow else (x, x, x)
    q = torch.einsum("bnd,nmde->bnme", tokens[0], of_pairs[0])
    k, v = (torch.einsum("bmd,nmde->bnme", tokens[i], of_pairs[i]) for i in (1, 2))
    energy = (q * k).unflatten(-1, (heads, -1)).sum(dim=-1).permute(0, 3, 1, 2)
    if narrow:
        q, k = split_heads(mixer.query_proj(x), heads), split_heads(mixer.key_proj(x), heads)
        energy = (energy + q @ k.mT) / 2
    weights = (energy / math.sqrt(mixer.head_dim)).masked_fill(offsets < 0, -torch.inf).softmax(dim=-1)
    mixed = torch.einsum("bhnm,bnmhc->bnhc", weights, v.unflatten(-1, (heads, -1))).flatten(2)
    if narrow:
        ordinary = merge_heads(weights @ split_heads(mixer.gating.value(x), heads))
        mixed = (ordinary + mixer.widen(mixed)) / 2
    return mixer.out_proj(mixed)


def bytes_written_out(mixer, x):
    """About what :func:`written_out` with its backward pass takes, in bytes.

    The matrices of all pairs are there six times at once, as measured, with copies and gradients; the vectors of all
    pairs a dozen times at most.
    """
    batch, length, _ = x.shape
    width = mixer.matrices.queries.size(1)
    return 4 * (6 * (length * width) ** 2 + 12 * batch * length**2 * width)


def available_bytes():
    """Memory that nobody uses."""
    if torch.cuda.is_available():
        return torch.cuda.mem_get_info()[0]
    (line,) = [line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable:")]
    return int(line.split()[1]) * 1024


def products(length, sentences, embed_dim):
    """A function that takes the matrix products of one training step of Translution, and does nothing else.

    For each offset three in the forward pass, and in the backward pass three to make the same again, three for the
    gradients of tokens, three for those of matrices.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokens, matrix = (torch.randn(rows, embed_dim, device=device) for rows in (length * sentences, embed_dim))

    def call():
        for pairs in range(sentences, (length + 1) * sentences, sentences):
            for _ in range(9):
                projected = tokens[:pairs] @ matrix
            for _ in range(3):
                tokens[:pairs].T @ projected
        layers.wait()

    return call


def run(mixers, length, sentences, embed_dim, num_heads, rounds, compare=True):
    """Time causal mixers with their backward passes in turn.

    Args:
        mixers: names, with options after plus signs.
        length, sentences, embed_dim, num_heads: N, B, D, H.
        rounds: how often everything is timed; a formula written out only once.
        compare: also the formulas written out, where there is memory enough.

    Returns:
        dict from name to a dict with ``seconds``, ``ratio`` (to attention), and ``resident`` (the most memory that
        a call takes at once, in bytes). Of Translution also ``products`` (its time, as a ratio to :func:`products`). Of
        a formula without memory enough only ``needs``, in bytes.
    """
    torch.manual_seed(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.randn(sentences, length, embed_dim, device=device, requires_grad=True)
    built = {
        name: layers.build(name, "decoder", embed_dim, num_heads, length).to(device)
        for name in dict.fromkeys([layers.BASELINE, NAME, *mixers])
    }
    positions = torch.randn(length, embed_dim, device=device, requires_grad=True)
    calls = {name: layers.training(mixer, x, positions=positions) for name, mixer in built.items()}
    seconds = interleaved(calls | {"products": products(length, sentences, embed_dim)}, rounds)
    results = {}
    for name, call in calls.items():
        results[name] = {
            "seconds": statistics.median(seconds[name]),
            "ratio": median_ratio(seconds[name], seconds[layers.BASELINE]),
            "resident": peak_resident(call),
        }
    results[NAME]["products"] = median_ratio(seconds[NAME], seconds["products"])
    for name in (NAME, NARROW):
        if compare and name in built:
            results[f"{name} written out"] = _written_out(built[name], x, results[layers.BASELINE]["seconds"])
    return results


def _written_out(mixer, x, baseline):
    """The figures of the formula; `baseline`: seconds of attention."""
    needs = bytes_written_out(mixer, x)
    if needs > 0.95 * available_bytes():
        return {"needs": needs}
    inputs = [x, *mixer.parameters()]

    def call():
        output = written_out(mixer, x)
        torch.autograd.grad(output, inputs, torch.ones_like(output))
        layers.wait()

    (seconds,) = interleaved({"once": call}, rounds=1, warm_up=0)["once"]
    return {"seconds": seconds, "ratio": seconds / baseline, "resident": peak_resident(call)}
