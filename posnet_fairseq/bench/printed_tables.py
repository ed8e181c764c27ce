"""Tables of measurements, as posnet-bench prints them."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from rich.table import Table

MIB = 2**20


@dataclass
class Measurements:
    """A table of measured values.

    Attributes:
        title: what was measured.
        columns: titles of columns, which may have several lines, and how their numbers are printed, such as ``,.1f``.
        rows: a name and a value for each column, "" if there is none.
    """

    title: str
    columns: dict[str, str]
    rows: list[tuple[str, *tuple[float | str, ...]]] = field(default_factory=list)

    def add(self, name: str, *values: float | str) -> None:
        """Add a row."""
        self.rows.append((name, *values))

    def printed(self) -> Table:
        """Return the table for the console."""
        made = table(self.title, *self.columns)
        for name, *values in self.rows:
            formats = zip(values, self.columns.values(), strict=True)
            made.add_row(name, *(value if isinstance(value, str) else format(value, how) for value, how in formats))
        return made


def table(title: str, *columns: str) -> Table:
    """Return a table with a column of names and columns of figures."""
    made = Table(title=title)
    made.add_column("", no_wrap=True)
    for column in columns:
        made.add_column(column, justify="right", no_wrap=True)
    return made


def as_json(shown: Iterable[Measurements | str]) -> dict[str, list]:
    """Return tables and remarks for ``json.dumps``; rows map titles of columns, first ``name``, to values."""
    tables, remarks = [], []
    for one in shown:
        if isinstance(one, str):
            remarks.append(one)
        else:
            titles = ["name", *(column.replace("\n", " ") for column in one.columns)]
            tables.append({"title": one.title, "rows": [dict(zip(titles, row, strict=True)) for row in one.rows]})
    return {"tables": tables, "remarks": remarks}
