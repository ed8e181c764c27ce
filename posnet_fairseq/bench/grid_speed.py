"""Mixers on a grid against attention there, forward with backward."""

import itertools
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch

from posnet_fairseq.bench.layers_speed import BASELINE, build, training
from posnet_fairseq.bench.printed_tables import MIB, Measurements
from posnet_fairseq.bench.timing import default_device, interleaved, median_ratio, peak_bytes
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.mixers.translution import Translution
from posnet_fairseq.ops.grid import Grid


class Figures(NamedTuple):
    """Of a call with its backward pass: time and memory relative to attention's, bytes, and time relative to products.

    ``floor`` is None except for Translution.
    """

    time: float
    memory: float
    peak: int
    floor: float | None


def token_counts(mixer: TokenMixer) -> list[int]:
    """Return for each matrix of Translution how many tokens of an image, as queries or as keys, it is applied to.

    Pairs of an extra token and a cell add the products of one more matrix, applied to all cells.
    """
    rows, columns = mixer.settings.grid or (1, mixer.max_positions)
    reach = mixer.settings.options.translution_clip or mixer.max_positions
    offsets = (range(1 - min(reach + 1, size), min(reach + 1, size)) for size in (rows, columns))
    of_cells = [(rows - abs(row)) * (columns - abs(column)) for row, column in itertools.product(*offsets)]
    return [*of_cells, *[rows * columns] * bool(mixer.settings.extra_tokens)]


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


def measure_grids(
    mixers: Sequence[str],
    grid: tuple[int, int],
    extra_tokens: int,
    batch: int,
    embed_dim: int,
    num_heads: int,
    rounds: int,
) -> dict[str, Figures]:
    """Time mixers with their backward passes in turn on a batch of images of one grid."""
    torch.manual_seed(1)
    device = default_device()
    built = {
        name: build(name, embed_dim, num_heads, grid=grid, extra_tokens=extra_tokens).to(device)
        for name in dict.fromkeys([BASELINE, *mixers])
    }
    x = torch.randn(batch, built[BASELINE].max_positions, embed_dim, device=device, requires_grad=True)
    calls = {name: training(mixer, x) for name, mixer in built.items()}
    floors = {
        name: products([batch * count for count in token_counts(mixer)], embed_dim)
        for name, mixer in built.items()
        if isinstance(mixer, Translution)
    }
    seconds = interleaved(calls | {f"products of {name}": call for name, call in floors.items()}, rounds)
    peaks = {name: peak_bytes(call) for name, call in calls.items()}
    return {
        name: Figures(
            median_ratio(seconds[name], seconds[BASELINE]),
            peaks[name] / peaks[BASELINE],
            peaks[name],
            median_ratio(seconds[name], seconds[f"products of {name}"]) if name in floors else None,
        )
        for name in calls
    }


def tables(options: Namespace) -> Iterator[Measurements | str]:
    """Yield what ``posnet-bench grid`` prints."""
    rows, columns = options.grid
    sizes = options.grid, options.extra_tokens, options.batch, options.embed_dim, options.heads
    title = "{}, B = {}, D = {}, H = {}, with backward".format(Grid(rows, columns, options.extra_tokens), *sizes[2:])
    ratios = dict.fromkeys(("time ×\nattention", "memory ×\nattention"), ".2f")
    shown = Measurements(title, ratios | {"memory\nMiB": ",.1f", "time ×\nproducts": ".2f"})
    for name, (time, memory, peak, floor) in measure_grids(options.mixers, *sizes, options.rounds).items():
        shown.add(name, time, memory, peak / MIB, "" if floor is None else floor)
    yield shown
    yield (
        "Time: CPU time, or seconds on a GPU, medians of ratios, of a call with its backward pass. Memory: the most "
        "that it allocates at once. × products: against the matrix products alone that Translution takes. No dropout."
    )
