"""Tables of measurements, as posnet-bench prints them."""

from collections.abc import Iterable

from rich.table import Table


def table(title: str, *columns: str) -> Table:
    """A table with a column of names and columns of figures."""
    made = Table(title=title)
    made.add_column("", no_wrap=True)
    for column in columns:
        made.add_column(column, justify="right", no_wrap=True)
    return made


def mebibytes(size: float) -> str:
    """A number of bytes in MiB."""
    return f"{size / 2**20:,.1f}"


def as_json(shown: Iterable[Table | str]) -> dict[str, list]:
    """What a benchmark shows, for ``json.dumps``.

    Args:
        shown: tables of :func:`table`, and remarks.

    Returns:
        ``tables``, each with its ``title`` and its ``rows``, which map titles of columns (``name`` for the first) to
        figures as rounded in the table, or to text; and ``remarks``.
    """
    tables, remarks = [], []
    for one in shown:
        if isinstance(one, str):
            remarks.append(one)
            continue
        titles = [str(column.header).replace("\n", " ") or "name" for column in one.columns]
        rows = zip(*(map(str, column.cells) for column in one.columns), strict=True)
        tables.append(
            {
                "title": str(one.title),
                "rows": [{t: _figure(cell) for t, cell in zip(titles, row, strict=True)} for row in rows],
            }
        )
    return {"tables": tables, "remarks": remarks}


def _figure(cell: str) -> float | str:
    """The number in a cell, or its text if it is none."""
    try:
        return float(cell.replace(",", ""))
    except ValueError:
        return cell
