"""Where the tokens of a padded batch stand: real tokens first, whichever side fairseq padded.

fairseq pads sources on the left. A mixer that knows positions would need them per sentence; instead the
batch is put in order once, so that one table of positions serves all its sentences.
"""


def padding_before_tokens(padding_mask):
    """(B, T - 1), True where padding stands right before a token, of a mask (B, T)."""
    return padding_mask[:, :-1] > padding_mask[:, 1:]


def front_order(padding_mask):
    """The order that moves every sentence's real tokens to its front, or None if they are there already.

    Args:
        padding_mask: (B, T), True at padding, in any pattern.

    Returns:
        (B, T) indices for :func:`reorder`, which keep the order of the real tokens; or None.
    """
    if not padding_before_tokens(padding_mask).any():
        return None
    return padding_mask.byte().argsort(dim=1, stable=True)


def reorder(tensor, order):
    """`tensor` (B, T) or (B, T, D) with the entries along T in the given order, (B, T) or None."""
    if order is None:
        return tensor
    if tensor.dim() == 3:
        order = order.unsqueeze(-1).expand_as(tensor)
    return tensor.gather(1, order)


def inverse(order):
    """The order that undoes `order`, (B, T) or None."""
    return None if order is None else order.argsort(dim=1)
