"""Relative positions."""

import torch


def clipped_offsets(num_queries, num_keys, clip_distance, device=None):
    """clip(n - m, -K, K) + K for queries 0 ... N - 1 and keys 0 ... M - 1.

    Returns:
        (N, M) indices into a table of 2K + 1 offsets: 0 is K or more to the right, 2K is K or more to the left.
    """
    queries = torch.arange(num_queries, device=device)
    keys = torch.arange(num_keys, device=device)
    return (queries[:, None] - keys).clamp(-clip_distance, clip_distance) + clip_distance
