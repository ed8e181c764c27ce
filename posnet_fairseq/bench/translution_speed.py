"""Translution and α-Translution against attention, their formulas written out, and the products that they need."""

import math
import statistics
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from rich.table import Table

from posnet_fairseq.bench import layers_speed
from posnet_fairseq.bench.printed_tables import table
from posnet_fairseq.bench.timing import default_device, interleaved, median_ratio, peak_resident
from posnet_fairseq.mixers.alpha_translution import AlphaTranslution
from posnet_fairseq.mixers.translution import Translution
from posnet_fairseq.ops.heads import merge_heads, split_heads
from posnet_fairseq.shared.errors import UsageError

NAME, NARROW = "translution", "alpha_translution"


def written_out(mixer: Translution | AlphaTranslution, x: torch.Tensor) -> torch.Tensor:
    """Return the output of a causal mixer, (B, N, D), with matrices of every pair: Translution (2025) App. C and D.

    It has no gate, and matrices of all offsets.
    """
    heads, tokens = mixer.num_heads, [x, x, x]
    if isinstance(mixer, AlphaTranslution):
        narrow = mixer.narrow_query, mixer.narrow_key, mixer.narrow_value
        tokens = [project(x) for project in narrow if project is not None]
    n = torch.arange(x.size(1), device=x.device)
    offsets = n[:, None] - n
    tables = mixer.matrices.queries, mixer.matrices.keys, mixer.matrices.values
    of_pairs = [table[offsets.clamp(min=0)] for table in tables if table is not None]  # (N, N, C, C)
    q = torch.einsum("bnd,nmde->bnme", tokens[0], of_pairs[0])
    k, v = (torch.einsum("bmd,nmde->bnme", tokens[i], of_pairs[i]) for i in (1, 2))
    energy = (q * k).unflatten(-1, (heads, -1)).sum(dim=-1).permute(0, 3, 1, 2)
    if isinstance(mixer, AlphaTranslution):
        q, k = split_heads(mixer.query_proj(x), heads), split_heads(mixer.key_proj(x), heads)
        energy = (energy + q @ k.mT) / 2
    weights = (energy / math.sqrt(mixer.head_dim)).masked_fill(offsets < 0, -torch.inf).softmax(dim=-1)
    mixed = torch.einsum("bhnm,bnmhc->bnhc", weights, v.unflatten(-1, (heads, -1))).flatten(2)
    if isinstance(mixer, AlphaTranslution) and mixer.widen is not None:
        ordinary = merge_heads(weights @ split_heads(mixer.gating.value(x), heads))
        mixed = (ordinary + mixer.widen(mixed)) / 2
    return mixer.out_proj(mixed)


def bytes_written_out(mixer: Translution | AlphaTranslution, x: torch.Tensor) -> int:
    """Estimate the bytes that :func:`written_out` with its backward pass takes.

    The matrices of all pairs are held six times at once, as measured, with copies and gradients; the vectors of all
    pairs twelve times at most.
    """
    batch, length, _ = x.shape
    width = mixer.narrow_width if isinstance(mixer, AlphaTranslution) else mixer.embed_dim
    return 4 * (6 * (length * width) ** 2 + 12 * batch * length**2 * width)


def available_bytes() -> int:
    """Return the bytes of memory that are available to this process."""
    if torch.cuda.is_available():
        return torch.cuda.mem_get_info()[0]
    (line,) = [line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable:")]
    return int(line.split()[1]) * 1024


def products(counts: Sequence[int], embed_dim: int) -> Callable[[], None]:
    """Return a function that takes the matrix products of one training step of Translution and does nothing else.

    For each offset, with its number of tokens in `counts`, there are three in the forward pass, and in the backward
    pass three that are recomputed, three for the gradients of tokens and three for the gradients of matrices.
    """
    device = default_device()
    tokens, matrix = (torch.randn(rows, embed_dim, device=device) for rows in (max(counts), embed_dim))

    def call() -> None:
        for count in counts:
            for _ in range(9):
                projected = tokens[:count] @ matrix
            for _ in range(3):
                tokens[:count].T @ projected

    return call


def run(
    mixers: Sequence[str],
    length: int,
    sentences: int,
    embed_dim: int,
    num_heads: int,
    rounds: int,
    compare: bool = True,
) -> dict[str, dict[str, float]]:
    """Time causal mixers with their backward passes in turn, and once, if asked to, formulas written out.

    Returns:
        dict from name to a dict with ``seconds``, ``ratio`` (to attention), and ``resident`` (the most bytes that a
        call takes at once). Of Translution also ``products`` (its time, as a ratio to :func:`products`). Of a formula
        for which there is not enough memory only ``needs``, in bytes.
    """
    torch.manual_seed(1)
    device = default_device()
    x = torch.randn(sentences, length, embed_dim, device=device, requires_grad=True)
    built = {
        name: layers_speed.build(name, "decoder", embed_dim, num_heads, length).to(device)
        for name in dict.fromkeys([layers_speed.BASELINE, NAME, *mixers])
    }
    positions = torch.randn(length, embed_dim, device=device, requires_grad=True)
    calls = {name: layers_speed.training(mixer, x, positions=positions) for name, mixer in built.items()}
    counts = range(sentences, (length + 1) * sentences, sentences)
    seconds = interleaved(calls | {"products": products(counts, embed_dim)}, rounds)
    results: dict[str, dict[str, float]] = {}
    for name, call in calls.items():
        results[name] = {
            "seconds": statistics.median(seconds[name]),
            "ratio": median_ratio(seconds[name], seconds[layers_speed.BASELINE]),
            "resident": peak_resident(call),
        }
    results[NAME]["products"] = median_ratio(seconds[NAME], seconds["products"])
    for name in (NAME, NARROW):
        mixer = built.get(name)
        if compare and isinstance(mixer, Translution | AlphaTranslution):
            results[f"{name} written out"] = _written_out(mixer, x, results[layers_speed.BASELINE]["seconds"])
    return results


def _written_out(mixer: Translution | AlphaTranslution, x: torch.Tensor, baseline: float) -> dict[str, float]:
    """Return figures of the formula written out; `baseline` is the time of attention in seconds."""
    needs = bytes_written_out(mixer, x)
    if needs > 0.95 * available_bytes():
        return {"needs": needs}
    inputs = [x, *mixer.parameters()]

    def call() -> None:
        output = written_out(mixer, x)
        torch.autograd.grad(output, inputs, torch.ones_like(output))

    (seconds,) = interleaved({"once": call}, rounds=1, warm_up=0)["once"]
    return {"seconds": seconds, "ratio": seconds / baseline, "resident": peak_resident(call)}


def tables(options: Namespace) -> Iterator[Table | str]:
    """Yield what ``posnet-bench translution`` prints."""
    if options.embed_dim % options.heads:
        raise UsageError(f"--heads {options.heads}: the width {options.embed_dim} does not divide by it.")
    for length in [*options.lengths, *options.alone]:
        sizes = length, options.sentences, options.embed_dim, options.heads
        results = run(options.mixers, *sizes, options.rounds, compare=length in options.lengths)
        title = "N = {}, B = {}, D = {}, H = {}, with backward".format(*sizes)
        shown = table(title, "ms", "×\nattention", "×\nproducts", "memory\nMiB")
        for name, row in results.items():
            if "needs" in row:
                shown.add_row(name, "no room", "", "", f"{row['needs'] / 2**20:,.0f}")
                continue
            floor = f"{row['products']:.2f}" if "products" in row else ""
            memory = f"{row['resident'] / 2**20:,.0f}"
            shown.add_row(name, f"{1000 * row['seconds']:,.1f}", f"{row['ratio']:.1f}", floor, memory)
        yield shown
    yield (
        "CPU time, medians; a formula written out is timed once. × products: against the matrix products alone that "
        "Translution takes. Memory: the most that the process takes at once for a call; where there is no "
        "room, what it would need."
    )
