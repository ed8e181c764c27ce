r"""A LaTeX table with booktabs, in a file that compiles by itself and that a paper can \input."""

import re

from posnet_eval.report import wording
from posnet_eval.statistics.results import Comparison, MetricInfo, TestSetResult

# Inside a document \@nodocument is \relax: only the table is read there.
_HEAD = r"""\expandafter\ifx\csname @nodocument\endcsname\relax\else
\documentclass{article}
\usepackage{booktabs}
\begin{document}
\def\posnetend{\end{document}}
\fi
"""
_TAIL = r"""\csname posnetend\endcsname
"""
_SIGNS = {"†": r"\dagger", "‡": r"\ddagger", "↑": r"\uparrow", "↓": r"\downarrow", "=": "="}
_TEXT = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "`": r"\textasciigrave{}", "-": "-{}",
    "±": r"$\pm$", "σ": r"$\sigma$", "≤": r"$\le$", "–": "--", "α": r"$\alpha$", "γ": r"$\gamma$",
    "→": r"$\to$",
    **{sign: f"${name}$" for sign, name in _SIGNS.items() if sign != "="},
}  # fmt: skip


def latex(comparison: Comparison, intervals: bool = False) -> str:
    """Return a table with columns for facts, then for each metric on each test set, and its notes."""
    shown = [(test_set, info) for test_set in comparison.test_sets for info in test_set.metrics]
    titles = [escaped(title) for title in comparison.columns]
    names, rules, start = [], [], 2 + len(titles)
    for test_set in comparison.test_sets:
        pair, count = wording.languages(test_set), len(test_set.metrics)
        name = escaped(f"{test_set.name} ({pair})" if pair else test_set.name)
        names.append(rf"\multicolumn{{{count}}}{{c}}{{{name}}}")
        rules.append(rf"\cmidrule(lr){{{start}-{start + count - 1}}}")
        start += count
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\begin{{tabular}}{{l{'r' * len(titles)}{'l' * len(shown)}}}",
        r"\toprule",
        " & ".join([*[""] * (1 + len(titles)), *names]) + r" \\",
        *rules,
        " & ".join(["", *titles, *(escaped(info.label) for _, info in shown)]) + r" \\",
        r"\midrule",
    ]
    for system in comparison.systems:
        cells = [_cell(comparison, test_set, system, info, intervals) for test_set, info in shown]
        # in braces: LaTeX would take a bracket or a star for an option of the line above
        facts = map(escaped, wording.facts(comparison, system))
        lines.append(" & ".join([f"{{{escaped(comparison.labels[system])}}}", *facts, *cells]) + r" \\")
    caption = wording.meaning_of_marks(comparison) if wording.baselines(comparison) else ""
    if wording.has_several_runs(comparison):
        caption += " Behind ±: standard deviation over runs."
    if intervals:
        caption += f" In brackets: {wording.interval(comparison)}."
    lines += [r"\bottomrule", r"\end{tabular}"]
    if comparison.notes:
        notes = [f"{{{escaped(note)}}}\\par" for note in comparison.notes]
        lines += [r"\par\smallskip", r"\begin{minipage}{\linewidth}\footnotesize", *notes, r"\end{minipage}"]
    lines += [rf"\caption{{{escaped(caption.strip() or 'Scores.')}}}", r"\end{table}", ""]
    signatures = "".join(f"% {line}\n" for line in wording.signatures(comparison))
    start_of_file = f"% Needs \\usepackage{{booktabs}}. {wording.for_paper(comparison)}\n{signatures}{_HEAD}"
    return start_of_file + "\n".join(lines) + _TAIL


def escaped(text: str) -> str:
    """Return text that LaTeX prints unchanged."""
    # A single hyphen stays one; two would become a dash.
    return re.sub("-(?=-)|[^-]", lambda sign: _TEXT.get(sign[0], sign[0]), text)


def _cell(comparison: Comparison, test_set: TestSetResult, system: str, info: MetricInfo, intervals: bool) -> str:
    if system not in test_set.scores:
        return "--"
    score = test_set.scores[system][info.name]
    text = wording.decimal(score.value)
    # Marks of different widths follow the numbers: columns are flush left, and short numbers are moved to the right.
    longest = max(len(wording.decimal(scores[info.name].value)) for scores in test_set.scores.values())
    moved = r"\phantom{0}" * (longest - len(text))
    text = text.replace("−", "$-$")
    text = moved + (rf"\textbf{{{text}}}" if system in wording.best(test_set, info) else text)
    if score.deviation is not None:
        text += rf"\,{{\scriptsize$\pm${score.deviation:.1f}}}"
    if intervals:
        bounds = ", ".join(f"{bound:.1f}".replace("-", "$-$") for bound in (score.low, score.high))
        text += rf"\,{{\scriptsize[{bounds}]}}"
    signs = wording.marks(comparison, test_set, system, info.name)
    return text + (f"$^{{{''.join(_SIGNS[sign] for sign in signs)}}}$" if signs else "")
