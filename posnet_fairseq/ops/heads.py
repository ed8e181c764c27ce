"""Between model width and heads."""


def split_heads(x, num_heads):
    """(B, N, D) to (B, H, N, d)."""
    batch, length, width = x.shape
    return x.view(batch, length, num_heads, width // num_heads).transpose(1, 2)


def merge_heads(x):
    """(B, H, N, d) to (B, N, D)."""
    return x.transpose(1, 2).flatten(2)


def split_table(table, num_heads):
    """(T, D) to (H, T, d): each head has its columns."""
    rows, width = table.shape
    return table.view(rows, num_heads, width // num_heads).transpose(0, 1)
