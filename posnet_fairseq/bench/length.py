"""How an encoder layer and a decoding step grow with the length of sentences."""

import math
import statistics
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import posnet_fairseq.fairseq_plugin  # noqa: F401  (imports fairseq without scikit-learn)

# isort: split
import torch
from fairseq.modules import MultiheadAttention
from rich.table import Table

from posnet_fairseq.bench.layers import BASELINE, build_of_size, forward
from posnet_fairseq.bench.memory import peak_bytes
from posnet_fairseq.bench.tables import mebibytes, table
from posnet_fairseq.bench.timing import interleaved, median_ratio
from posnet_fairseq.inference.precompute import store
from posnet_fairseq.mixers.bases.context import MixingContext
from posnet_fairseq.mixers.bases.position_based import PositionBasedMixer
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.registry import get_mixer
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.transformer.sizes import SIZES

Figures = dict[str, dict[str, float]]  # of each mixer: seconds, ratio, bytes

FAIRSEQ = "fairseq's attention"
# In shorter sentences the fixed cost of a call prevails.
SHORTEST_TO_FIT = 512
# Timed together, so that what ran before them in the round has left the caches.
STEPS = 8


def exponent(lengths: Iterable[int], seconds: Iterable[float]) -> float | None:
    """The slope of the logarithm of time over that of length: 1 for linear growth, 2 for quadratic.

    It is fitted to lengths from 512 on; None if there are fewer than two of them.
    """
    points = [(math.log(n), math.log(t)) for n, t in zip(lengths, seconds, strict=True) if n >= SHORTEST_TO_FIT]
    if len(points) < 2:
        return None
    slope, _ = statistics.linear_regression(*zip(*points, strict=True))
    return slope


def encoder_layer(mixers: Sequence[str], length: int, size: str = "base", rounds: int = 5) -> Figures:
    """Time self-attention of one sentence with its projections, with stored energies where there are any.

    Args:
        mixers: names of mixers, with options as in :mod:`posnet_fairseq.bench.layers`.

    Returns:
        dict from name to a dict with ``seconds``, ``ratio`` (to attention) and ``bytes`` (allocated at once).
    """
    torch.manual_seed(1)
    x = torch.randn(1, length, SIZES[size].embed_dim)
    built = {name: _build(name, "encoder", size, length) for name in [BASELINE, *mixers]}
    calls = {name: forward(mixer, x) for name, mixer in built.items()}
    return _figures(calls, {name: peak_bytes(call) for name, call in calls.items()}, rounds)


def decoder_step(mixers: Sequence[str], length: int, size: str = "base", rows: int = 12, rounds: int = 5) -> Figures:
    """Time the decoding step that makes the last token of a sentence, and the reordering of the beam after it.

    Args:
        length: tokens of the hypotheses, the new one counted.

    Returns:
        dict from name to a dict with ``seconds``, ``ratio`` (to attention) and ``bytes`` (of the decoder's state), with
        fairseq's own attention as one more name.
    """
    torch.manual_seed(1)
    x = torch.randn(rows, 1, SIZES[size].embed_dim)
    steps: dict[str, _Step | _FairseqStep] = {
        name: _Step(_build(name, "decoder", size, length), x, length) for name in [BASELINE, *mixers]
    }
    steps[FAIRSEQ] = _FairseqStep(size, x, length)
    figures = _figures(steps, {name: step.state_bytes for name, step in steps.items()}, rounds)
    for figure in figures.values():
        figure["seconds"] /= STEPS
    return figures


def _build(name: str, place: str, size: str, length: int) -> TokenMixer:
    mixer = build_of_size(name, place, size, length).eval()
    if isinstance(mixer, PositionBasedMixer):
        store(mixer, length, length, MixingContext(positions=torch.randn(length, mixer.embed_dim)))
    return mixer


def _figures(calls: Mapping[str, Callable[[], None]], sizes: Mapping[str, int], rounds: int) -> Figures:
    seconds = interleaved(calls, rounds)
    return {
        name: {
            "seconds": statistics.median(seconds[name]),
            "ratio": median_ratio(seconds[name], seconds[BASELINE]),
            "bytes": sizes[name],
        }
        for name in calls
    }


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
        if "decoder" not in get_mixer(mixer.split("+")[0], "--mixers").places:
            raise UsageError(f"--mixers {mixer}: it cannot stand in a decoder. Leave it out.")
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
            row = figures[name]
            shown.add_row(
                name, f"{length:,}", f"{1000 * row['seconds']:.2f}", f"{row['ratio']:.3f}", mebibytes(row["bytes"])
            )
        shown.add_section()
        slope = exponent(results, [figures[name]["seconds"] for figures in results.values()])
        exponents.append(f"{name} N^{slope:.2f}" if slope is not None else f"{name} -")
    yield shown
    yield f"Fitted growth from N = {SHORTEST_TO_FIT} on: {', '.join(exponents)}"
