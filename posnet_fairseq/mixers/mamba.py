"""Mamba: a selective state space, with step sizes and decays of every feature."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posnet_fairseq.mixers.bases import Mixed, MixerSettings, MixingContext, RecurrentMixer
from posnet_fairseq.ops.dtypes import in_float
from posnet_fairseq.ops.initialization import linear, step_bias, without_decay
from posnet_fairseq.ops.selective_scan import Terms, advance, selective_scan
from posnet_fairseq.ops.short_convolution import ShortConvolution
from posnet_fairseq.registry import register_mixer

# e, how many times as wide as the model features are, and the numbers that are remembered for each of them.
EXPAND, STATES = 2, 16


class Direction(nn.Module):
    """What reads tokens in one direction: a convolution, and the parameters of Δ, A, B and C."""

    def __init__(self, width: int, rank: int) -> None:
        super().__init__()
        self.widths = [rank, STATES, STATES]
        self.convolution = ShortConvolution(width, bias=True)
        self.inner_proj = linear(width, sum(self.widths), bias=False)
        self.step_proj = linear(rank, width, bias=False)
        nn.init.uniform_(self.step_proj.weight, -(rank**-0.5), rank**-0.5)
        self.step_bias = step_bias(width)
        rates = torch.arange(1.0, STATES + 1, device="cpu").log()[:, None]
        self.log_rate = without_decay(torch.empty(STATES, width).copy_(rates))

    def forward(self, x: Tensor, padding: Tensor | None) -> Terms:
        """Return the terms of convolved features, (B, N, C); `padding`, (B, N, 1), writes zeros."""
        steps, writes, reads = in_float(self.inner_proj(x)).split(self.widths, dim=-1)
        steps = F.softplus(in_float(self.step_proj(steps.to(x.dtype))) + self.step_bias)
        values = steps * x if padding is None else (steps * x).masked_fill(padding, 0)
        return Terms(steps, values, writes, reads, in_float(self.log_rate).exp())


@register_mixer("mamba")
class Mamba(RecurrentMixer):
    """h_n = exp(Δ_n A) ⊙ h_{n-1} + Δ_n x'_n B_nᵀ, y_n = h_n C_n + D ⊙ x'_n: Mamba (Gu and Dao, 2023) Eq. 2 and Alg. 2.

    x' and z, of width 2D each, are projections of x; x' goes through a convolution over 4 tokens. (δ, B, C) = W_x x' of
    the widths R = ⌈D/16⌉, 16 and 16; Δ = softplus(W_Δ δ + b). h has 16 numbers for each feature of x'. The result is
    W_out (y ⊙ silu(z)). As in the authors' code A, -1 ... -16 for each feature, and D, 1, start the same everywhere,
    b starts so that softplus(b) is between .001 and .1, and W_Δ is uniform up to 1/√R. A, D and b take no weight decay.

    In the encoder convolution, W_x, W_Δ, b and A have weights of their own in each direction; D multiplies the x' of
    the first one. A layer has 6D² + 2D parameters, and (108 + 4R)·D more for each direction, where D is the width.
    """

    operations_formula = "6ND² + 8NRD + 256ND"

    def __init__(self, settings: MixerSettings) -> None:
        width = EXPAND * settings.embed_dim
        super().__init__(settings, 2 * width, width)
        rank = -(-settings.embed_dim // 16)
        self.by_direction = nn.ModuleList(Direction(width, rank) for _ in range(self.directions))
        self.skip = without_decay(torch.ones(width))

    def project(self, x: Tensor, context: MixingContext) -> tuple[Tensor, ...]:
        """z, what goes into the convolutions, and what comes out of the first one."""
        features, z = self.in_proj(x).chunk(2, dim=-1)
        return z, features, self.convolve(features, 0, context)

    def read(self, projected: tuple[Tensor, ...], padding: Tensor | None, context: MixingContext) -> Mixed:
        """h C of both directions, (B, N, 2D), in float32 or wider.

        Padding, which precedes the tokens of a direction, writes zeros, so that h is 0 there.
        """
        _, features, convolved = projected
        state, first = context.state, self.by_direction[0](convolved, padding)
        if state is not None:
            last = state.get_or_create("features", lambda: first.values.new_zeros(len(convolved), *first.rates.shape))
            state.rows["features"], y = advance(last, first)
            return y, None
        y = selective_scan(first)
        if not self.causal:
            second = self.by_direction[1](self.convolve(features, 1, context), padding)
            own = (second.writes * second.reads).sum(dim=-1, keepdim=True) * second.values
            y = y + selective_scan(second, reverse=True) - own
        return y, None

    def finish(self, y: Tensor, projected: tuple[Tensor, ...]) -> Tensor:
        """x' of the token itself added, gated."""
        z, _, convolved = projected
        return (y + convolved * self.skip).to(z.dtype) * F.silu(z)
