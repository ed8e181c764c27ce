"""Base class of the mixers that read tokens one after another and remember a matrix of constant size."""

from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from posnet_fairseq.mixers.bases.context import Mixed, MixingContext
from posnet_fairseq.mixers.bases.decoding_state import DecodingState, is_writable
from posnet_fairseq.mixers.bases.mixer_options import Options, option
from posnet_fairseq.mixers.bases.mixer_settings import MixerSettings
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.ops.dtypes import float_type
from posnet_fairseq.ops.heads import merge_heads, split_heads
from posnet_fairseq.ops.initialization import linear
from posnet_fairseq.ops.recurrence import Terms, advance, coefficients, recur
from posnet_fairseq.ops.short_convolution import WIDTH
from posnet_fairseq.shared import errors

# Added to mean squares.
EPSILON = 1e-5


def expand_option(default: int) -> Any:
    """Return the option e: how many times as wide as the model values are."""
    help_text = "e: values and gate are e times as wide as the model (GLA, Section 4.4; Mamba-2, Section 7.1)"
    return option(help_text, default=default, limits=(1, 16))


@dataclass
class Expand(Options):
    """How wide values are."""

    expand: int = expand_option(1)


class RecurrentMixer(TokenMixer):
    """y_n = S_nᵀ q_n with S_n = a_n ⊙ S_{n-1} + k_n v_nᵀ; see :mod:`posnet_fairseq.ops.recurrence`.

    In the encoder tokens are also read from the last to the first, and the two results are added. The second one
    leaves token n out, so that each token counts once. What depends on the direction has parameters for each.

    Decoding remembers S, in float32 or wider, and the last inputs of a convolution: a state of constant size. There are
    no mixing weights that could be dropped out, and gates are the mixer's own.
    """

    places = ("encoder", "decoder")
    position_embedding = "none"
    hides_pairs = False
    drops_weights = False
    constant_state = True
    by_direction: Any

    @classmethod
    def check(cls, settings: MixerSettings) -> None:
        """There is a gate already."""
        if settings.gate != "none":
            options = " or ".join(dict.fromkeys(map(errors.option, ("gate", f"{settings.place}_gate"))))
            raise errors.UsageError(f"gate {settings.gate}: {cls.name} has a gate of its own. Leave out {options}.")

    def __init__(self, settings: MixerSettings, inputs: int, values: int) -> None:
        """Make the projections, without biases, of a token to `inputs` features and of `values` features to D."""
        super().__init__(settings)
        self.gating = None
        self.in_proj = linear(settings.embed_dim, inputs, bias=False)
        self.out_proj = linear(values, settings.embed_dim, bias=False)
        self.directions = 1 if self.causal else 2

    def project(self, x: Tensor, context: MixingContext) -> Any:
        """Return what both directions and :meth:`finish` read of tokens (B, N, D), zeros at padding."""
        raise NotImplementedError(f"{type(self).__name__} does not define project, which prepares tokens")

    def terms(self, projected: Any, direction: int, context: MixingContext) -> Terms:
        """Return the terms of a recurrence. `direction`: 0 from the first token to the last, 1 the other way."""
        raise NotImplementedError(
            f"{type(self).__name__} does not define terms, which returns the terms of the recurrence"
        )

    def finish(self, y: Tensor, projected: Any) -> Tensor:
        """Return what the output projection gets, (B, N, values), of the recurrence's y, (B, H, N, d_v)."""
        raise NotImplementedError(f"{type(self).__name__} does not define finish, which returns what is projected")

    def mix_and_project(self, query: Tensor, memory: Tensor | None, context: MixingContext) -> Mixed:
        """Project, recur in one direction or both, and project again.

        Weights are the coefficients of the values, not normalized, in a full pass whose directions share their values.
        """
        padding = None if context.padding_mask is None else context.padding_mask[..., None]
        x = query if padding is None else query.masked_fill(padding, 0)
        projected = self.project(x, context)
        y, weights = self.read(projected, padding, context)
        return self.out_proj(self.finish(y, projected)), weights

    def read(self, projected: Any, padding: Tensor | None, context: MixingContext) -> Mixed:
        """Return the recurrence's y, and weights if they are asked for and there are any. `padding`: (B, N, 1)."""
        if context.state is not None:
            return advance_state(context.state, self.terms(projected, 0, context)), None
        terms = [self.terms(projected, direction, context) for direction in range(self.directions)]
        both = [self._unpadded(of_one, padding) for of_one in terms]
        if not self.causal and terms[0].shares_tokens(terms[1]):
            both[1] = both[1]._replace(k=both[0].k)
        has_weights = context.need_weights and (self.causal or both[0].shares_tokens(both[1]))
        return recur(*both), coefficients(*both) if has_weights else None

    @staticmethod
    def _unpadded(terms: Terms, padding: Tensor | None) -> Terms:
        """Return terms with which padding, (B, N, 1), writes nothing and lets nothing decay."""
        if padding is None:
            return terms
        padding = padding[:, None]
        decay = terms.log_decay
        return terms._replace(
            k=terms.k.masked_fill(padding, 0), log_decay=None if decay is None else decay.masked_fill(padding, 0)
        )

    def convolve(self, x: Tensor, direction: int, context: MixingContext) -> Tensor:
        """Return the convolution of features (B, N, C), in a step with the last three inputs.

        It is that of ``by_direction[direction]``, the modules that a mixer with convolutions has.
        """
        state, convolution = context.state, self.by_direction[direction].convolution
        if state is None:
            return convolution(x, backward=direction == 1)
        last = state.get_or_create("inputs", lambda: x.new_zeros(x.size(0), WIDTH - 1, x.size(2)))
        y, state.rows["inputs"] = convolution.step(x, last)
        return y

    def heads(self, x: Tensor) -> Tensor:
        """Return (B, N, any) as (B, H, N, any / H)."""
        return split_heads(x, self.num_heads)


def advance_state(state: DecodingState, terms: Terms) -> Tensor:
    """Return y of a step's token, (B, H, 1, d_v), and remember S, which `terms` advance."""

    def empty() -> Tensor:
        shape = *terms.v.shape[:2], terms.k.size(-1), terms.v.size(-1)
        return terms.v.new_zeros(shape, dtype=float_type(terms.v))

    matrix = state.get_or_create("matrix", empty)
    state.rows["matrix"], y = advance(matrix, terms, state.in_place and is_writable(matrix))
    return y


def gated(y: Tensor, gate: Tensor, scale: Tensor | None = None) -> Tensor:
    """Return RMS(y) ⊙ silu(gate), (B, N, H·d_v).

    Args:
        y: (B, H, N, d_v), divided by the root of its mean square over each head, and multiplied by `scale`, (d_v,).
        gate: (B, N, H·d_v).
    """
    scale = None if scale is None else scale.to(y.dtype)  # which autocast may have chosen
    return merge_heads(F.rms_norm(y, y.shape[-1:], scale, EPSILON)) * F.silu(gate)
