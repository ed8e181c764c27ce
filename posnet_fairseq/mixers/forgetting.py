"""Forgetting attention: energies decrease with the gates between two tokens."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from posnet_fairseq.mixers.bases import ContentBasedMixer, MixerSettings, MixingContext
from posnet_fairseq.ops.dtypes import in_float
from posnet_fairseq.ops.initialization import linear
from posnet_fairseq.ops.offset_gather import plus_products
from posnet_fairseq.registry import register_mixer


@register_mixer("forgetting")
class Forgetting(ContentBasedMixer):
    """α̂_nm = q_n·k_m / √d - |c_n - c_m|, c_n = Σ_{l≤n} log σ(w_h·x_l + b_h): Lin et al. (ICLR 2025) Eqs. 5-7.

    Each head forgets what is before a token by a gate of that token, σ(w·x + b), which is the forget gate of a
    recurrent network. The paper has language models, where m ≤ n; in an encoder what is forgotten between two tokens is
    the same in both directions. As in the authors' code, b starts at 0.
    """

    operations_formula = "2N²D + 4ND² + NHD"
    places = ("encoder", "decoder")
    position_embedding = "none"

    def __init__(self, settings: MixerSettings) -> None:
        super().__init__(settings)
        self.forget_proj = linear(settings.embed_dim, settings.num_heads)

    def of_tokens(self, memory: Tensor | None, context: MixingContext) -> Tensor:
        """c_m of all tokens, (B, H, M, 1), in float32 or wider."""

        def log_gates() -> Tensor:
            gates = self.forget_proj(memory)
            return F.logsigmoid(in_float(gates)).mT.unsqueeze(3)

        return self.cached_projection("log_gates", log_gates, context).cumsum(dim=2)

    def prepare(self, offsets: Tensor) -> Tensor:
        """1 at the past and the query itself, -1 at the future, (N, M)."""
        return 1 - 2 * (offsets < 0).to(torch.int8)

    def energy(self, q: Tensor, k: Tensor, index: Any) -> Tensor:
        """(B, H, N, M)."""
        sign, total = index
        forgotten = (total[:, :, -q.size(2) :] - total.mT) * sign
        return plus_products(forgotten.to(q.dtype), q, k)
