"""How an encoder layer and a decoding step grow with the length of sentences."""

import math
import statistics
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import posnet_fairseq.fairseq_plugin  # noqa: F401  (imports fairseq without scikit-learn)

# isort: split
import torch
from fairseq.modules import MultiheadAttention
from rich.table import Table

from posnet_fairseq.bench.layers_speed import BASELINE, build_of_size, forward
from posnet_fairseq.bench.printed_tables import mebibytes, table
from posnet_fairseq.bench.timing import Time, compared, peak_bytes
from posnet_fairseq.inference.stored_energies import store
from posnet_fairseq.mixers.bases.context import MixingContext
from posnet_fairseq.mixers.bases.position_based import PositionBasedMixer
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.transformer.sizes import SIZES

Figures = dict[str, tuple[Time, int]]  # of each mixer: time and bytes

FAIRSEQ = "fairseq's attention"
# In shorter sentences the fixed cost of a call prevails.
SHORTEST_TO_FIT = 512
# Timed together, so that what ran before them in the round has left the caches.
STEPS = 8


def exponent(lengths: Iterable[int], seconds: Iterable[float]) -> float | None:
    """Return the slope of the logarithm of time over that of length: 1 for linear growth, 2 for quadratic.

    It is fitted to lengths from 512 on; None if there are fewer than two of them.
    """
    points = [(math.log(n), math.log(t)) for n, t in zip(lengths, seconds, strict=True) if n >= SHORTEST_TO_FIT]
    if len(points) < 2:
        return None
    slope, _ = statistics.linear_regression(*zip(*points, strict=True))
    return slope


def encoder_layer(mixers: Sequence[str], length: int, size: str = "base", rounds: int = 5) -> Figures:
    """Time self-attention of one sentence with its projections, with stored energies where there are any.

    Bytes are those that it allocates at once.
    """
    torch.manual_seed(1)
    x = torch.randn(1, length, SIZES[size].embed_dim)
    calls = {name: forward(_build(name, "encoder", size, length), x) for name in [BASELINE, *mixers]}
    sizes = {name: peak_bytes(call) for name, call in calls.items()}
    return {name: (time, sizes[name]) for name, time in compared(calls, BASELINE, rounds).items()}


def decoder_step(mixers: Sequence[str], length: int, size: str = "base", rows: int = 12, rounds: int = 5) -> Figures:
    """Time the decoding step that makes the last token of a sentence, and the reordering of the beam after it.

    fairseq's own attention is measured, too. Bytes are those of the state of all hypotheses, ``rows``.
    """
    torch.manual_seed(1)
    x = torch.randn(rows, 1, SIZES[size].embed_dim)
    steps: dict[str, _Step | _FairseqStep] = {
        name: _Step(_build(name, "decoder", size, length), x, length) for name in [BASELINE, *mixers]
    }
    steps[FAIRSEQ] = _FairseqStep(size, x, length)
    found = compared(steps, BASELINE, rounds)
    return {
        name: (time._replace(seconds=time.seconds / STEPS), steps[name].state_bytes) for name, time in found.items()
    }


def _build(name: str, place: str, size: str, length: int) -> TokenMixer:
    mixer = build_of_size(name, place, size, length).eval()
    if isinstance(mixer, PositionBasedMixer):
        store(mixer, length, length, MixingContext(positions=torch.randn(length, mixer.embed_dim)))
    return mixer


class _Step:
    """A late decoding step of a mixer; the state that earlier steps would have left is made of random numbers."""

    def __init__(self, mixer: TokenMixer, x: torch.Tensor, length: int) -> None:
        self.mixer, self.x, self.length = mixer, x, length
        self.order = torch.arange(len(x)).flip(0)
        self.state = mixer.init_state(len(x))
        self._mix()
        shapes = {name: tensor.shape for name, tensor in self.state.rows.items()}
        self._mix()
        self.growing = [name for name, tensor in self.state.rows.items() if tensor.shape != shapes[name]]
        for name in self.growing:
            self.state.rows[name] = _longer(self.state.rows[name], length - 1)
        kept = [*self.state.rows.values(), self.state.values]
        self.state_bytes = sum(tensor.nbytes for tensor in kept if tensor is not None)

    @torch.inference_mode()
    def _mix(self) -> None:
        self.mixer.step(self.x, self.state, rows=self.length)

    @torch.inference_mode()
    def __call__(self) -> None:
        for _ in range(STEPS):
            self.state.position = self.length - 1
            for name in self.growing:
                self.state.rows[name] = self.state.rows[name][:, :, : self.length - 1]
            self._mix()
            self.state.reorder(self.order)


def _longer(tensor: torch.Tensor, length: int) -> torch.Tensor:
    return torch.randn(*tensor.shape[:2], length, tensor.size(3))


class _FairseqStep:
    """A late decoding step of fairseq's own attention, with a state of random numbers."""

    def __init__(self, size: str, x: torch.Tensor, length: int) -> None:
        shape = SIZES[size]
        self.attention = MultiheadAttention(shape.embed_dim, shape.attention_heads, self_attention=True).eval()
        self.x, self.order = x.transpose(0, 1), torch.arange(len(x)).flip(0)
        heads = (len(x), shape.attention_heads, length - 1, shape.embed_dim // shape.attention_heads)
        self.rows = {name: torch.randn(heads) for name in ("prev_key", "prev_value")}
        self.state_bytes = sum(tensor.nbytes for tensor in self.rows.values())

    @torch.inference_mode()
    def __call__(self) -> None:
        for _ in range(STEPS):
            state: dict[str, Any] = {}
            self.attention._set_input_buffer(state, dict(self.rows))
            self.attention(self.x, self.x, self.x, incremental_state=state)
            self.attention.reorder_incremental_state(state, self.order)


def tables(options: Namespace) -> Iterator[Table | str]:
    """Yield what ``posnet-bench length`` prints."""
    if min(options.lengths) < 2:
        raise UsageError(f"--lengths {min(options.lengths)}: give 2 or more.")
    for mixer in options.mixers:
        build_of_size(mixer, "decoder", options.size, 2)  # refused at once if it cannot stand there
    layers = {n: encoder_layer(options.mixers, n, options.size, options.rounds) for n in options.lengths}
    yield from _growth(f"Encoder layer, one sentence, size {options.size}", layers, "allocated")
    steps = {n: decoder_step(options.mixers, n, options.size, options.rows, options.rounds) for n in options.lengths}
    title = f"Decoding step of {options.rows} hypotheses, with reordering, size {options.size}"
    yield from _growth(title, steps, "state")


def _growth(title: str, results: Mapping[int, Figures], memory: str) -> Iterator[Table | str]:
    """Yield the table of results by length, and the fitted exponents of the time."""
    shown, exponents = table(title, "N", "ms", "× attention's", f"{memory}\nMiB"), []
    for name in next(iter(results.values())):
        for length, figures in results.items():
            time, size = figures[name]
            shown.add_row(name, f"{length:,}", f"{1000 * time.seconds:.2f}", f"{time.ratio:.3f}", mebibytes(size))
        shown.add_section()
        slope = exponent(results, [figures[name][0].seconds for figures in results.values()])
        exponents.append(f"{name} N^{slope:.2f}" if slope is not None else f"{name} -")
    yield shown
    yield f"Fitted growth from N = {SHORTEST_TO_FIT} on: {', '.join(exponents)}"
