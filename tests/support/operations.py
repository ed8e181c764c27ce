"""The operations that mixers declare by a method, as formulas."""

import sympy

from posnet_fairseq.mixers.bases.operations import MixingSize

# K̂ = 2K + 1 rows of a table, N tokens, width D, and E = H·C, the width of α-Translution's relative part.
SYMBOLS = sympy.symbols("K̂ N D E")


def formula(mixer):
    """The multiplications of a mixer for one sentence of N tokens, in :data:`SYMBOLS`; None if it declares none."""
    rows, tokens, width, narrow = SYMBOLS
    try:
        return mixer.operations(MixingSize(tokens, tokens, width, (rows - 1) / 2, narrow))
    except NotImplementedError:
        return None


def as_text(operations):
    """A formula as "2N²D + 4ND²", without the terms that do not grow with N."""
    text = ""
    for powers, factor in sorted(sympy.Poly(operations, *SYMBOLS).terms(), key=_order):
        if powers[1]:
            number, symbols = float(factor), zip(SYMBOLS, powers, strict=True)
            text += (" - " if number < 0 else " + ") + ("" if abs(number) == 1 else f"{abs(number):g}")
            text += "".join(f"{symbol}{'²' * (power == 2)}" for symbol, power in symbols if power)
    return text.removeprefix(" + ")


def _order(term):
    """Terms of D alone first, higher powers first."""
    (rows, tokens, width, narrow), _ = term
    return narrow > 0, -rows, -tokens, width if narrow else -width, -narrow
