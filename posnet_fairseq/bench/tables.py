"""Tables of measurements, as posnet-bench prints them."""

from rich.table import Table


def table(title: str, *columns: str) -> Table:
    """A table with a column of names and columns of figures.

    Args:
        title: of the table.
        columns: titles of the columns of figures.
    """
    made = Table(title=title)
    made.add_column("", no_wrap=True)
    for column in columns:
        made.add_column(column, justify="right", no_wrap=True)
    return made


def mebibytes(size: float) -> str:
    """A number of bytes in MiB."""
    return f"{size / 2**20:,.1f}"
