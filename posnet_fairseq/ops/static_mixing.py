"""Mixing with weights that no token has a part in, one table for all sentences of a batch."""


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
