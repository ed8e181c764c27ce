"""Tables of measurements, as posnet-bench prints them."""

from collections.abc import Iterable

from rich.table import Table


def table(title: str, *columns: str) -> Table:
    """Return a table with a column of names and columns of figures."""
    made = Table(title=title)
    made.add_column("", no_wrap=True)
    for column in columns:
        made.add_column(column, justify="right", no_wrap=True)
    return made


def mebibytes(size: float) -> str:
    """Return a number of bytes in MiB."""
    return f"{size / 2**20:,.1f}"


def as_json(shown: Iterable[Table | str]) -> dict[str, list]:
    """Return tables and remarks for ``json.dumps``; rows map titles of columns, first ``name``, to rounded figures."""
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
                "rows": [dict(zip(titles, (name, *map(_figure, figures)), strict=True)) for name, *figures in rows],
            }
        )
    return {"tables": tables, "remarks": remarks}


def _figure(cell: str) -> float | str:
    """Return the number in a cell, or its text if it is none."""
    try:
        return float(cell.replace(",", ""))
    except ValueError:
        return cell
