"""Mixing with energies that no token has a part in, one table for all sentences of a batch."""

from posnet_fairseq.ops.masking import at_least_float32, masked_energy


def static_weights(energy, padding_mask=None):
    """Softmax of shared energies over each sentence's real keys, in float32 at least.

    Args:
        energy: (H, N, M), future already masked.
        padding_mask: (B, M), True at padding, or None if there is none.

    Returns:
        (1, H, N, M) without padding, else (B, H, N, M).
    """
    energy = at_least_float32(energy).unsqueeze(0)
    if padding_mask is not None:
        energy = energy.masked_fill(padding_mask[:, None, None, :], masked_energy(energy.dtype))
    return energy.softmax(dim=-1)


def mix_static(weights, value):
    """Σ_m weights[n, m] · value[m].

    Args:
        weights: (B, H, N, M), or (1, H, N, M) for all sentences.
        value: (B, H, M, d).

    Returns:
        (B, H, N, d).
    """
    batch, heads, keys, width = value.shape
    queries = weights.size(2)
    if weights.size(0) == batch or queries == 1:
        return weights @ value
    # Shared weights: fold the batch into columns, so that one product per head serves every sentence.
    columns = value.permute(1, 2, 0, 3).reshape(heads, keys, batch * width)
    mixed = weights.squeeze(0) @ columns
    return mixed.view(heads, queries, batch, width).permute(2, 0, 1, 3)
