"""Tables of scores for a terminal and in Markdown."""

import re

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from posnet_eval.report import wording
from posnet_eval.report.formats import GAP

WIDEST = 24  # of a label, the part that is never broken


def terminal(comparison):
    """A rich table for each test set."""
    for test_set in comparison.test_sets:
        table = Table(
            title=escape(wording.title(test_set)), box=None, padding=(0, 2, 0, 0), pad_edge=False, title_justify="left",
            header_style="bold underline",
        )  # fmt: skip
        rows = list(_rows(comparison, test_set, ("[bold]", "[/bold]"), escape))
        # rich cuts columns that may shrink, even those whose words it would lose: none but the first may.
        longest = max(map(len, comparison.labels.values()))
        table.add_column("", overflow="fold", min_width=min(longest, WIDEST))
        for title, facts in comparison.columns.items():
            longest = max(map(len, [*title.split(), *map(wording.fact, facts.values())]))
            table.add_column(escape(title), justify="right", overflow="fold", width=min(longest, WIDEST))
        for place, info in enumerate(test_set.metrics, 1 + len(comparison.columns)):
            longest = max(Text.from_markup(text).cell_len for text in (info.label, *(row[place] for row in rows)))
            table.add_column(info.label, no_wrap=True, width=longest)
        for row in rows:
            table.add_row(*row)
        yield table


def markdown(comparison):
    """The tables with legend and signatures."""
    parts = []
    for test_set in comparison.test_sets:
        head = ["", *map(_escaped, comparison.columns), *(info.label for info in test_set.metrics)]
        lines = [head, ["---"] + ["---:"] * (len(head) - 1)]
        lines += _rows(comparison, test_set, ("**", "**"), _escaped)
        rows = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        parts.append(f"**{_escaped(wording.title(test_set))}**\n\n{rows}")
    parts.append("\n".join(map(_escaped, wording.legend(comparison))))
    parts.append("\n".join(["```", *wording.reproduction(comparison), "```"]))
    parts.append(_escaped(wording.for_the_paper(comparison)))
    return "\n\n".join(parts) + "\n"


def _rows(comparison, test_set, bold, escaped):
    best = {info.name: wording.best(test_set, info) for info in test_set.metrics if test_set.scores}
    for system in comparison.systems:
        cells = [GAP] * len(test_set.metrics)
        if system in test_set.scores:
            cells = [
                _cell(comparison, test_set, system, info.name, bold if system in best[info.name] else ("", ""))
                for info in test_set.metrics
            ]
        texts = [comparison.labels[system], *wording.facts(comparison, system)]
        yield [*map(escaped, texts), *cells]


def _cell(comparison, test_set, system, metric, bold):
    score = test_set.scores[system][metric]
    parts = [f"{bold[0]}{score.value:.1f}{bold[1]}", f"±{score.half_width:.1f}"]
    if score.deviation is not None:
        parts.append(f"σ{score.deviation:.1f}")
    found = wording.marks(comparison, test_set, system, metric)
    return " ".join([*parts, found] if found else parts)


def _escaped(text):
    for sign in "\\`*_{}[]<>#|~$":
        text = text.replace(sign, f"\\{sign}")
    return re.sub(r"&(?=(\\#)?\w+;)", r"\&", text)  # of an entity
