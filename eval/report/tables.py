"""Tables of scores for a terminal and in Markdown."""

import re
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.text import Text

from posnet_eval.report import wording
from posnet_eval.report.wording import GAP, fact
from posnet_eval.statistics.results import Comparison, MetricInfo, TestSetResult
from posnet_fairseq.shared.errors import visible
from posnet_fairseq.shared.progress import plain_table, print_table

WIDEST = 24  # characters of a label that are never broken
MOST_REMARKS = 5  # below the tables and their legend, beside a report that has all of them


def show(comparison: Comparison, console: Console, has_report: bool = False) -> int:
    """Print tables, legend, remarks and signatures on a console.

    Beside a report it prints no signatures and the first remarks; it returns the number of those left out.
    """
    for test_set in comparison.test_sets:
        # It may be wider than the table.
        title = Text(wording.title(test_set), "table.title", no_wrap=True, overflow="ignore")
        table = plain_table(title=title, title_justify="left")
        # rich cuts words in columns that may shrink: only the first may.
        longest = max(map(len, comparison.labels.values()))
        table.add_column("", overflow="fold", min_width=min(longest, WIDEST))
        for name, facts in comparison.columns.items():
            longest = max(map(len, [*name.split(), *map(fact, facts.values())]))
            table.add_column(name, justify="right", overflow="fold", width=min(longest, WIDEST))
        for info in test_set.metrics:
            table.add_column(info.label, no_wrap=True)
        for row in _rows(comparison, test_set, ("[bold]", "[/bold]"), str):
            scores = map(Text.from_markup, row[-len(test_set.metrics) :])
            table.add_row(*row[: -len(test_set.metrics)], *scores)
        print_table(table, console)
        console.print()
    remarks = wording.remarks(comparison)
    shown = remarks[:MOST_REMARKS] if has_report else [*remarks, *wording.signatures(comparison)]
    for line in (*wording.legend(comparison), *shown):
        console.print(visible(line), soft_wrap=True)
    return len(remarks[MOST_REMARKS:]) if has_report else 0


def markdown(comparison: Comparison) -> str:
    """Return the tables in Markdown with legend, remarks and signatures."""
    parts = []
    for test_set in comparison.test_sets:
        head = ["", *map(_escaped, comparison.columns), *(info.label for info in test_set.metrics)]
        rows = wording.markdown_table(head, _rows(comparison, test_set, ("**", "**"), _escaped))
        parts.append(f"**{_escaped(wording.title(test_set))}**\n\n{rows}")
    below = [*wording.legend(comparison), *wording.remarks(comparison)]
    parts.append("\n".join(_escaped(visible(line)) for line in below))
    parts.append("\n".join(["```", *wording.reproduction(comparison), "```"]))
    parts.append(_escaped(wording.for_paper(comparison)))
    return "\n\n".join(parts) + "\n"


def _rows(
    comparison: Comparison, test_set: TestSetResult, bold: tuple[str, str], escaped: Callable[[str], str]
) -> Iterator[list[str]]:
    for system in comparison.systems:
        texts = [comparison.labels[system], *wording.facts(comparison, system)]
        cells = [_cell(comparison, test_set, system, info, bold) for info in test_set.metrics]
        yield [*map(escaped, texts), *cells]


def _cell(comparison: Comparison, test_set: TestSetResult, system: str, info: MetricInfo, bold: tuple[str, str]) -> str:
    if system not in test_set.scores:
        return GAP
    score = test_set.scores[system][info.name]
    start, end = bold if system in wording.best(test_set, info) else ("", "")
    deviation = "" if score.deviation is None else f" σ{score.deviation:.1f}"
    marks = wording.marks(comparison, test_set, system, info.name)
    return f"{start}{wording.decimal(score.value)}{end} ±{score.half_width:.1f}{deviation} {marks}".strip()


def _escaped(text: str) -> str:
    for sign in "\\`*_{}[]<>#|~$":
        text = text.replace(sign, f"\\{sign}")
    return re.sub(r"&(?=(\\#)?\w+;)", r"\&", text)  # of an entity
