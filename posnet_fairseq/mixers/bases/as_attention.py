"""A mixer with the call of :class:`torch.nn.MultiheadAttention`, for models that are written for it."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from posnet_fairseq.mixers.bases.call_checks import check_length_ratio
from posnet_fairseq.mixers.bases.context import check_padding, check_tensors
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.ops.dtypes import dtype_name
from posnet_fairseq.ops.host_sync import may_look_at
from posnet_fairseq.ops.layout import front_order, inverse, reorder
from posnet_fairseq.shared.errors import UsageError


def as_attention(
    mixer: TokenMixer, *, batch_first: bool = True, length_ratio: tuple[int, int] = (1, 1)
) -> "MixerAttention":
    """Give a mixer the call of ``nn.MultiheadAttention``.

    Args:
        mixer: what :func:`posnet_fairseq.build_mixer` returned: for the self-attention of an encoder, with
            ``causal=True`` for that of a decoder, or with ``cross_attention=True``.
        batch_first: whether tokens are (B, N, D), or (N, B, D).
        length_ratio: γ as source tokens, target tokens, in cross-attention.

    Raises:
        UsageError: `mixer` is no mixer, or a length ratio is given outside cross-attention.

    Example::

        layer = nn.TransformerEncoderLayer(64, 4, batch_first=True)
        layer.self_attn = as_attention(build_mixer("rposnet", embed_dim=64, num_heads=4, max_positions=256))
    """
    if not isinstance(mixer, TokenMixer):
        raise UsageError(f"mixer of the type {type(mixer).__name__}: give what build_mixer returns.")
    check_length_ratio(mixer.place, length_ratio)
    return MixerAttention(mixer, batch_first, length_ratio)


class MixerAttention(nn.Module):
    """A mixer in the place of an ``nn.MultiheadAttention``; :func:`as_attention` makes it."""

    # Torch's layers read these to see whether their fused kernels fit; they don't.
    _qkv_same_embed_dim = False
    in_proj_bias = None

    def __init__(self, mixer: TokenMixer, batch_first: bool, length_ratio: tuple[int, int]) -> None:
        super().__init__()
        self.mixer, self.batch_first, self.length_ratio = mixer, batch_first, length_ratio
        self.embed_dim, self.num_heads = mixer.embed_dim, mixer.num_heads

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Mix tokens of the memory for every query.

        Args:
            query: (B, N, D), or (N, B, D) without `batch_first`, or (N, D) of one sentence.
            key: the memory in cross-attention, with M tokens; else `query`.
            value: `key`.
            key_padding_mask: (B, M), True or -inf at padding, on either side of the tokens. Tokens masked between
                others are taken out as well: positions count the others. With `attn_mask` they keep their places.
            need_weights: also return the mixing weights.
            attn_mask: (N, M) or (B·H, N, M), True or -inf at pairs that are not mixed. A causal mixer hides the future
                without it.
            average_attn_weights: return the mean of the weights over heads.
            is_causal: `attn_mask` hides the future and nothing else.

        Returns:
            Mixed tokens in the layout of `query`, and the weights, (B, N, M) or (B, H, N, M); None where they are not
            asked for or the mixer has none.

        Raises:
            UsageError: the arguments do not fit the mixer.
        """
        is_cross = self.mixer.place == "cross"
        if value is not key or (key is not query and not is_cross):
            raise UsageError(
                "query, key and value: a mixer for self-attention takes one tensor as all three, a mixer for "
                "cross-attention (build_mixer(..., cross_attention=True)) one tensor as key and value, the same object."
            )
        if is_causal and not self.mixer.causal and attn_mask is None:
            reason = "this mixer sees the future. Build it with causal=True."
            if is_cross:
                reason = "cross-attention sees the whole memory. Leave it out."
            raise UsageError(f"is_causal True: {reason}")
        x = self._batched(query)
        memory = self._batched(key) if is_cross else x
        padding = None if key_padding_mask is None else _mask("key_padding_mask", key_padding_mask)
        if padding is not None and padding.dim() == 1:
            padding = padding[None]
        pairs = None if attn_mask is None or (is_causal and self.mixer.causal) else _mask("attn_mask", attn_mask)
        if padding is not None:
            check_padding(padding, memory.shape[:2], anywhere=True)
        if pairs is not None:
            both = x.size(1), memory.size(1)
            shapes = both, (len(x) * self.num_heads, *both)
            if pairs.shape not in shapes:
                given = f"attn_mask {tuple(pairs.shape)}"
                raise UsageError(f"{given}: give True at pairs that are not mixed, {shapes[0]} or {shapes[1]}.")
            if pairs.dim() == 3:
                pairs = pairs.unflatten(0, (-1, self.num_heads))

        # Mixers count positions from the first token, but those of cells from the corner.
        order = None if padding is None or self.mixer.settings.grid else front_order(padding)
        if order is not None and padding is not None:
            padding, memory = reorder(padding, order), reorder(memory, order)
            x = x if is_cross else memory
            if pairs is not None:
                pairs = _reorder_pairs(pairs.expand(len(x), self.num_heads, -1, -1), order, is_cross)
        found = self.mixer(
            x,
            memory if is_cross else None,
            padding_mask=padding,
            attn_mask=pairs,
            length_ratio=self.length_ratio,
            need_weights=need_weights,
        )
        mixed, weights = found if isinstance(found, tuple) else (found, None)
        back = inverse(order)
        mixed = mixed if is_cross else reorder(mixed, back)
        if weights is not None:
            weights = weights.expand(len(x), -1, -1, -1)
            weights = weights if back is None else _reorder_pairs(weights, back, is_cross)
            weights = weights.mean(dim=1) if average_attn_weights else weights
        if query.dim() == 2:
            return mixed[0], None if weights is None else weights[0]
        return mixed if self.batch_first else mixed.transpose(0, 1), weights

    if TYPE_CHECKING:
        __call__ = forward

    def _batched(self, tokens: Tensor) -> Tensor:
        check_tensors(tokens=tokens)
        if tokens.dim() not in (2, 3):
            shapes = "(B, N, D)" if self.batch_first else "(N, B, D)"
            raise UsageError(f"tokens of the shape {tuple(tokens.shape)}: give {shapes}, or (N, D) of one sentence.")
        if tokens.dim() == 2:
            return tokens[None]
        return tokens if self.batch_first else tokens.transpose(0, 1)


def _mask(name: str, mask: Tensor) -> Tensor:
    """Return a mask as booleans; torch's layers make -inf of True."""
    check_tensors(**{name: mask})
    if mask.dtype == torch.bool:
        return mask
    hidden = mask == -torch.inf
    if not mask.is_floating_point():
        raise UsageError(f"{name} of {dtype_name(mask)}: give bool, or 0 and -inf.")
    if may_look_at(mask) and bool(mask.masked_fill(hidden, 0).any()):
        raise UsageError(f"{name}: a mask of numbers may contain 0 and -inf only. Give these, or bool.")
    return hidden


def _reorder_pairs(pairs: Tensor, order: Tensor, is_cross: bool) -> Tensor:
    """Return (B, H, N, M) with its memory tokens in another order, and in self-attention the queries too."""
    columns = order[:, None, None, :].expand_as(pairs)
    pairs = pairs.gather(3, columns)
    return pairs if is_cross else pairs.gather(2, order[:, None, :, None].expand_as(pairs))
