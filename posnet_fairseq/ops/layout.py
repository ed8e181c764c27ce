"""Order of the tokens in a padded batch: real tokens first, on whichever side the batch was padded.

fairseq pads source sentences on the left. Positions would then differ between the sentences of a batch; instead each
batch is put in order once, so that one table of positions serves all its sentences.
"""

import torch.nn.functional as F
from torch import Tensor

from posnet_fairseq.ops.host_sync import may_look_at


def padding_before_tokens(padding_mask: Tensor) -> Tensor:
    """Return a mask (B, T - 1), True at padding of a mask (B, T) that stands directly before a token."""
    return padding_mask[:, :-1] > padding_mask[:, 1:]


def front_order(padding_mask: Tensor, always: bool = False) -> Tensor | None:
    """Return the order, (B, T), that moves the real tokens of every sentence to its front, for :func:`reorder`.

    None if they stand there already, unless `always`. Where looking is not free (see
    :func:`posnet_fairseq.ops.host_sync.may_look_at`), it is not asked whether they do. Real tokens keep their order.
    """
    is_one = padding_mask.size(1) == 1
    if not always and (is_one or (may_look_at(padding_mask) and not padding_before_tokens(padding_mask).any())):
        return None
    return padding_mask.byte().argsort(dim=1, stable=True)


def reorder(tensor: Tensor, order: Tensor | None) -> Tensor:
    """Return ``tensor``, (B, T) or (B, T, D), with its entries along T in an order, (B, T); None leaves it as it is.

    Entries that were cut off its end are zeros.
    """
    if order is None:
        return tensor
    if tensor.size(1) < order.size(1):
        tensor = F.pad(tensor, (0, 0) * (tensor.dim() - 2) + (0, order.size(1) - tensor.size(1)))
    if tensor.dim() == 3:
        order = order.unsqueeze(-1).expand_as(tensor)
    return tensor.gather(1, order)


def inverse(order: Tensor | None) -> Tensor | None:
    """Return the order that undoes ``order``, (B, T) or None."""
    return None if order is None else order.argsort(dim=1)
