"""Formatting of numbers and lists."""

from collections.abc import Iterable

from posnet_eval.inputs.plan import Fact

GAP = "–"  # shown where there is no value


def decimal(value: float, digits: int = 1) -> str:
    """Return a number with a typographic minus sign and no negative zero: "−1.2"."""
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text.replace("-", "−")


def signed(value: float, digits: int = 2) -> str:
    """Return a number with its sign: "+1.23"."""
    return f"+{decimal(value, digits)}" if value > 0 else decimal(value, digits)


def probability(value: float | None) -> str:
    """Return a p-value as "0.0123", None as "–"."""
    if value is None:
        return GAP
    return "< 0.0001" if value < 0.00005 else f"{value:.4f}"


def fact(value: Fact | None) -> str:
    """Return a fact about a system: an integer as "2,815", other values unchanged, None as "–"."""
    if value is None:
        return GAP
    return f"{value:,}" if isinstance(value, int) else str(value)


def listed(words: Iterable[str]) -> str:
    """Return words as "a, b and c"."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
