"""How an encoder layer and a decoding step grow with the length of sentences."""

import math
import statistics

import torch
from fairseq.modules import MultiheadAttention

from posnet_fairseq.bench.layers import BASELINE, build_mixer, forward
from posnet_fairseq.bench.memory import peak_bytes
from posnet_fairseq.bench.timing import interleaved, median_ratio
from posnet_fairseq.inference.precompute import store
from posnet_fairseq.mixers.bases.context import MixingContext
from posnet_fairseq.mixers.bases.decoding_state import DecodingState
from posnet_fairseq.mixers.bases.position_based import PositionBasedMixer
from posnet_fairseq.transformer.sizes import SIZES

FAIRSEQ = "fairseq's attention"
# Shorter sentences cost mostly what every call costs.
SHORTEST_TO_FIT = 512
# Timed together, so that what ran before them in the round is out of the caches.
STEPS = 8


def exponent(lengths, seconds):
    """The slope of the logarithm of time over that of length, for lengths from 512 on; None for fewer than two.

    1 is linear growth, 2 quadratic.
    """
    points = [(math.log(n), math.log(t)) for n, t in zip(lengths, seconds, strict=True) if n >= SHORTEST_TO_FIT]
    if len(points) < 2:
        return None
    slope, _ = statistics.linear_regression(*zip(*points, strict=True))
    return slope


def encoder_layer(mixers, length, size="base", rounds=5):
    """Self-attention of one sentence, with its projections, energies stored where that is possible.

    Args:
        mixers: names of mixers, with options as in :mod:`posnet_fairseq.bench.layers`.
        length: tokens of the sentence.
        size: one of :data:`posnet_fairseq.transformer.sizes.SIZES`.
        rounds: how often everything is timed.

    Returns:
        dict from name to a dict with ``seconds``, ``ratio`` to attention and ``bytes``, the most allocated at once.
    """
    torch.manual_seed(1)
    x = torch.randn(1, length, SIZES[size].embed_dim)
    built = {name: _built(name, "encoder", size, length) for name in [BASELINE, *mixers]}
    calls = {name: forward(mixer, x) for name, mixer in built.items()}
    return _figures(calls, {name: peak_bytes(call) for name, call in calls.items()}, rounds)


def decoder_step(mixers, length, size="base", rows=12, rounds=5):
    """The step that makes a token with so many before it, and the reordering of the beam after it.

    Args:
        mixers: as above.
        length: tokens of the hypotheses, the new one counted.
        size: as above.
        rows: hypotheses.
        rounds: as above.

    Returns:
        As :func:`encoder_layer`, ``bytes`` being those of the decoder's state; fairseq's own attention is one more row.
    """
    torch.manual_seed(1)
    x = torch.randn(rows, 1, SIZES[size].embed_dim)
    steps = {name: _Step(_built(name, "decoder", size, length), x, length) for name in [BASELINE, *mixers]}
    steps[FAIRSEQ] = _FairseqStep(size, x, length)
    figures = _figures(steps, {name: step.state_bytes for name, step in steps.items()}, rounds)
    for figure in figures.values():
        figure["seconds"] /= STEPS
    return figures


def _built(name, place, size, length):
    mixer = build_mixer(name, place, size, length).eval()
    if isinstance(mixer, PositionBasedMixer):
        store(mixer, length, length, MixingContext(positions=torch.randn(length, mixer.embed_dim)))
    return mixer


def _figures(calls, sizes, rounds):
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
    """One step of a mixer as it is after many: what a state appends is made up, instead of taking all steps before."""

    def __init__(self, mixer, x, length):
        self.mixer, self.x, self.length = mixer, x, length
        self.order = torch.arange(len(x)).flip(0)
        first, second = self._state_after(1), self._state_after(2)
        self.rows = {
            name: tensor if tensor.shape == first[name].shape else _longer(tensor, length - 1)
            for name, tensor in second.items()
        }
        self.tables, self.state_bytes = {}, sum(tensor.nbytes for tensor in self.rows.values())

    def _state_after(self, steps):
        state = self.mixer.init_state(len(self.x))
        for _ in range(steps):
            self._mix(state)
        return dict(state.rows)

    @torch.inference_mode()
    def _mix(self, state):
        self.mixer.step(self.x, state, rows=self.length)

    def __call__(self):
        for _ in range(STEPS):
            state = DecodingState(len(self.x))
            state.position, state.rows, state.tables = self.length - 1, dict(self.rows), self.tables
            self._mix(state)
            state.reorder(self.order)


def _longer(tensor, length):
    return torch.randn(*tensor.shape[:2], length, tensor.size(3))


class _FairseqStep:
    """The same for fairseq's own attention."""

    def __init__(self, size, x, length):
        shape = SIZES[size]
        self.attention = MultiheadAttention(shape.embed_dim, shape.attention_heads, self_attention=True).eval()
        self.x, self.order = x.transpose(0, 1), torch.arange(len(x)).flip(0)
        heads = (len(x), shape.attention_heads, length - 1, shape.embed_dim // shape.attention_heads)
        self.rows = {name: torch.randn(heads) for name in ("prev_key", "prev_value")}
        self.state_bytes = sum(tensor.nbytes for tensor in self.rows.values())

    @torch.inference_mode()
    def __call__(self):
        for _ in range(STEPS):
            state = {}
            self.attention._set_input_buffer(state, dict(self.rows))
            self.attention(self.x, self.x, self.x, incremental_state=state)
            self.attention.reorder_incremental_state(state, self.order)
