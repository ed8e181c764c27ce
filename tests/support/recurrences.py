"""Recurrences as plain loops over tokens, to hold the fast ones against."""

import torch


def recur(q, k, v, decay=None, write=None, backward=False):
    """S_n = a_n (S_{n-1} - β_n k_n (k_nᵀ S_{n-1})) + β_n k_n v_nᵀ, y_n = S_nᵀ q_n of one head, (N, d_v).

    Args:
        q, k, v: lists of N vectors.
        decay: a_n, lists of N numbers or vectors of d_k; 1 without it.
        write: β_n; None for S_n = a_n S_{n-1} + k_n v_nᵀ.
        backward: from the last token to the first, and y_n reads a_n S_{n+1}, without what token n itself does.
    """
    state = torch.zeros(len(k[0]), len(v[0]), dtype=torch.float64)
    results = [None] * len(q)
    for n in reversed(range(len(q))) if backward else range(len(q)):
        if decay is not None:
            state = torch.diag(decay[n] * torch.ones(len(k[0]), dtype=torch.float64)) @ state
        before = state
        if write is None:
            state = state + torch.outer(k[n], v[n])
        else:
            kept = torch.eye(len(k[0]), dtype=torch.float64) - write[n] * torch.outer(k[n], k[n])
            state = kept @ state + write[n] * torch.outer(k[n], v[n])
        results[n] = (before if backward else state).T @ q[n]
    return torch.stack(results)


def rms(y, scale=1.0):
    """y / √(mean(y²) + 1e-5) of one vector, times a scale."""
    return y / ((y**2).mean() + 1e-5).sqrt() * scale


def silu(x):
    return x / (1 + torch.exp(-x))


def convolve(x, convolution, backward=False):
    """silu(Σ_i w_i x_{n-3+i} + b) of one sentence (N, C), with x_{n+3-i} backward."""
    rows = []
    for n in range(len(x)):
        total = torch.zeros(x.size(1), dtype=torch.float64)
        if convolution.bias is not None:
            total = total + convolution.bias
        for i in range(4):
            m = n + 3 - i if backward else n - 3 + i
            if 0 <= m < len(x):
                total = total + convolution.weight[:, i] * x[m]
        rows.append(silu(total))
    return torch.stack(rows)


def both_ways(mixer, of_direction):
    """The sum of of_direction(0) and, in the encoder, of_direction(1), (N, any)."""
    return of_direction(0) + of_direction(1) if mixer.place == "encoder" else of_direction(0)


def assert_decays_start_as_in_the_paper(own, least):
    """Rates are drawn between `least` and 16, step sizes between .001 and .1, for many heads."""
    rates, steps = own.log_rate.exp(), torch.nn.functional.softplus(own.step_bias)
    assert least <= rates.min() < least + 2
    assert 14 < rates.max() <= 16
    assert 0.00099 < steps.min() < 0.002
    assert 0.05 < steps.max() < 0.101
