"""SSRU: a recurrence of single features with a forget gate."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posnet_fairseq.mixers.bases import Mixed, MixerSettings, MixingContext, RecurrentMixer
from posnet_fairseq.ops.dtypes import in_float
from posnet_fairseq.ops.scan import scan
from posnet_fairseq.registry import register_mixer


@register_mixer("ssru")
class SSRU(RecurrentMixer):
    """c_n = f_n ⊙ c_{n-1} + (1 - f_n) ⊙ W x_n, y_n = ReLU(c_n): Kim et al. (2019) Section 3.1, unnumbered Eqs.

    The "simpler simple recurrent unit" of Marian and Sockeye for fast decoders; f_n = σ(W_f x_n + b). There are neither
    heads nor an output projection, and only f has a bias, which starts at 0. In the encoder f has weights of its own in
    each direction, and y_n is ReLU of the sum of both: c_n of the tokens up to n, and f_n ⊙ c_{n+1} of those after it.
    A layer has 2D² + D parameters in a decoder, 3D² + 2D in an encoder.
    """

    operations_formula = "3ND²"

    def __init__(self, settings: MixerSettings) -> None:
        directions = 1 if settings.place == "decoder" else 2
        super().__init__(settings, (1 + directions) * settings.embed_dim, settings.embed_dim)
        self.out_proj = nn.Identity()  # type: ignore[assignment]
        for matrix in self.in_proj.weight.split(settings.embed_dim):
            nn.init.xavier_uniform_(matrix)
        self.forget_bias = nn.Parameter(torch.zeros(directions, settings.embed_dim))

    def project(self, x: Tensor, context: MixingContext) -> Tensor:
        """W x, and W_f x of each direction, (B, N, 2D or 3D)."""
        return self.in_proj(x)

    def read(self, projected: Tensor, padding: Tensor | None, context: MixingContext) -> Mixed:
        """c, in the encoder the sum of both directions, in float32 or wider.

        W x is 0 at padding, which precedes the tokens of a direction, so that c is 0 there.
        """
        values, *gates = in_float(projected).split(self.embed_dim, dim=-1)
        gates = [torch.sigmoid(gate + bias) for gate, bias in zip(gates, self.forget_bias, strict=True)]
        added = [values - gate * values for gate in gates]
        if context.state is not None:
            last = context.state.get_or_create("features", lambda: torch.zeros_like(values))
            context.state.rows["features"] = state = torch.addcmul(added[0], gates[0], last)
            return state, None
        states = scan(gates[0], added[0])
        return states if self.causal else states + scan(gates[1], added[1], reverse=True) - added[1], None

    def finish(self, y: Tensor, projected: Tensor) -> Tensor:
        """ReLU(c)."""
        return F.relu(y).to(projected.dtype)
