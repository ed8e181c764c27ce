"""The parts of a model that can be on crossbars, by the names that options have for them."""

from posnet_fairseq.shared.errors import UsageError

PARTS = ("mixing", "projections", "feed-forward", "output")


def parse_parts(option: str, text: str) -> tuple[str, ...]:
    """The parts that an option names, in the order of :data:`PARTS`.

    Args:
        option: as a command line has it.
        text: its value, names with commas between.

    Raises:
        UsageError: it has another name, or one twice.
    """
    given = text.split(",")
    if not set(given) <= set(PARTS) or len(set(given)) < len(given):
        raise UsageError(f"{option} {text!r:.80}: give one or more of {', '.join(PARTS)}, with commas between.")
    return tuple(part for part in PARTS if part in given)
