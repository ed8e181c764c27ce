"""Numbers as a page shows them."""

GAP = "–"  # where there is nothing to show


def decimal(value, digits=1):
    """A number with a real minus sign and no minus zero: "−1.2"."""
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text.replace("-", "−")


def signed(value, digits=2):
    """A number with its sign: "+1.23"."""
    return f"+{decimal(value, digits)}" if value > 0 else decimal(value, digits)


def probability(value):
    """A p-value: "0.0123"; "–" where there is none."""
    if value is None:
        return GAP
    return "< 0.0001" if value < 0.00005 else f"{value:.4f}"


def percent(share):
    """A share as "97.5%"."""
    return f"{100 * share:.1f}%"


def fact(value):
    """What a user says of a system: a whole number as "2,815", else as it is; "–" where nothing is said."""
    if value is None:
        return GAP
    return f"{value:,}" if isinstance(value, int) else str(value)


def listed(words):
    """Words as "a, b and c"."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
