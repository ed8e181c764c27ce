"""The HTML page of a comparison, which needs no network and no other file.

Imports matplotlib and jinja2; commands import this module only when a page is written.
"""

import math
import re
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from itertools import combinations, islice
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from posnet_eval.inputs.plan import SYMBOLS, Fact
from posnet_eval.metrics.base import FloatArray
from posnet_eval.report import plots, wording
from posnet_eval.statistics.results import SIGNIFICANT, Comparison, TestSetResult

COUNT = 5  # segments of a choice
DIGITS = 6  # scores that differ in later digits only are equal up to rounding
LONGEST = 1000  # characters shown of a line
_UNSPACED = "\u3001-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
# Not \w+, which lacks the vowel signs of Indian scripts. U+200C and U+200D join letters.
_PUNCTUATION = r"!-/:-@\[-`{-~\u00a1-\u00bf\u2010-\u2027\u2030-\u205e"
_WORD = re.compile(rf"[{_UNSPACED}]|[{_PUNCTUATION}]|[^\s{_UNSPACED}{_PUNCTUATION}]+")
_AMOUNT = re.compile(r"(?P<number>-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)(?P<unit>.*)")


def render(comparison: Comparison) -> str:
    """Return the page as HTML, to be written as UTF-8. Equal comparisons give equal pages."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Scripts cannot read NaN: no page is better than one that looks complete.
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":"), "allow_nan": False}
    for function in (wording.decimal, wording.signed, wording.probability, wording.listed):
        environment.filters[function.__name__] = function
    environment.filters["label"] = comparison.labels.get
    return environment.get_template("page.html").render(
        comparison=comparison,
        wording=wording,
        baselines=wording.baselines(comparison),
        symbols=dict(zip(comparison.baselines, SYMBOLS, strict=False)),
        order=[_order(column) for column in comparison.columns.values()],
        interval=wording.interval(comparison),
        significant=SIGNIFICANT,
        styles=plots.line_styles(comparison),
        plots=plots,
        browsable=browsable,
    )


def _order(column: Mapping[str, Fact]) -> Mapping[str, float]:
    """Return what a column is sorted by: its numbers if they have one unit, before other texts; else its texts."""
    texts = {system: wording.fact(value) for system, value in column.items()}
    amounts = {system: match for system, text in texts.items() if (match := _AMOUNT.match(text))}
    if len({match["unit"] for match in amounts.values()}) == 1:
        numbers = {system: float(match["number"].replace(",", "")) for system, match in amounts.items()}
        return {system: number for system, number in numbers.items() if math.isfinite(number)}
    alphabetical = sorted(set(texts.values()))
    return {system: alphabetical.index(text) for system, text in texts.items()}


def browsable(comparison: Comparison, test_set: TestSetResult) -> dict[str, Any]:
    """Return the segments where each pair of systems differs most, and the best and worst of each system.

    Returns:
        a dict for JSON. Systems and metrics are given by index, segments by line from 1::

            systems: [label], without missing systems
            start: [a, b], the pair to show first, or [a]
            metrics: [label]
            higher: [whether higher is better]
            texts: [text]
            segments: {line: [index of source or -1, [of references or -1], {system: [index of output, scores …]}]}
            pairs: {"a:b": for each metric [[lines where a is better], [lines where b is]]}
            alone: for each system, for each metric [[best lines], [worst lines]]
            changes: {"line:a:b": [spans in a's output, spans in b's]}, "line:a:" to the first reference
    """
    systems = list(test_set.scores)
    metrics = [metric.name for metric in test_set.metrics]
    outputs = [test_set.outputs[system][0] for system in systems]
    references = test_set.references_of_lines
    places: dict[str, int] = {}  # of texts
    segments: dict[int, list[Any]] = {}
    differences: dict[str, tuple[list[int], list[int]]] = {}

    def place(text: str) -> int:
        return places.setdefault(_shown(text), len(places))

    def added(indices: Iterable[int], a: int, b: int | None = None) -> list[int]:
        """Add segments with the outputs of one or two systems and their differences; return their lines."""
        lines = [index + 1 for index in indices]
        for line in lines:
            key, index = f"{line}:{a}:{'' if b is None else b}", line - 1
            if key in differences:
                continue
            if line not in segments:
                source = place(test_set.sources[index]) if test_set.sources else -1
                given = [text[index] for text in test_set.references]
                known = [place(text) if text in references[index] else -1 for text in given]
                segments[line] = [source, known, {}]
            shown = segments[line][2]
            for system in (a,) if b is None else (a, b):
                if system not in shown:
                    values = (test_set.segments[metric][systems[system]][index] for metric in metrics)
                    shown[system] = [place(outputs[system][index]), *(round(float(value), 1) for value in values)]
            other = outputs[b][index] if b is not None else (*references[index], outputs[a][index])[0]
            differences[key] = changes(_shown(outputs[a][index]), _shown(other))
        return lines

    def pair(a: int, b: int, metric: str) -> list[list[int]]:
        names = systems[a], systems[b]
        return [added(most_different(test_set, *some, metric), a, b) for some in (names, names[::-1])]

    pairs = {f"{a}:{b}": [pair(a, b, metric) for metric in metrics] for a, b in combinations(range(len(systems)), 2)}
    alone = [
        [[added(extreme(test_set, name, metric, sign), system) for sign in (1, -1)] for metric in metrics]
        for system, name in enumerate(systems)
    ]
    first = next((systems.index(name) for name in comparison.baselines if name in systems), 0)
    return {
        "systems": [comparison.labels[system] for system in systems],
        "start": [first, *(i for i in range(len(systems)) if i != first)][:2],
        "metrics": [metric.label for metric in test_set.metrics],
        "higher": [metric.higher_is_better for metric in test_set.metrics],
        "texts": list(places),
        "segments": segments,
        "pairs": pairs,
        "alone": alone,
        "changes": differences,
    }


def _shown(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text):,} characters)"


def most_different(test_set: TestSetResult, a: str, b: str, metric: str, count: int = COUNT) -> list[int]:
    """Return indices of segments where system a is better than b, the largest difference first, then by line.

    Scores are means over runs, but the text shown is that of the first run; segments for which it is equal in both
    systems are left out.
    """
    gain = _goodness(test_set, a, metric) - _goodness(test_set, b, metric)
    first, second = test_set.outputs[a][0], test_set.outputs[b][0]
    order = (int(i) for i in np.argsort(-gain, kind="stable") if gain[i] > 0)
    return list(islice((i for i in order if first[i] != second[i]), count))


def extreme(test_set: TestSetResult, system: str, metric: str, sign: int, count: int = COUNT) -> list[int]:
    """Return indices of the segments with a system's best scores (sign 1) or worst (−1), equal ones by line."""
    return np.argsort(-sign * _goodness(test_set, system, metric), kind="stable")[:count].tolist()


def _goodness(test_set: TestSetResult, system: str, metric: str) -> FloatArray:
    higher_is_better = next(m.higher_is_better for m in test_set.metrics if m.name == metric)
    scores = np.round(np.asarray(test_set.segments[metric][system], dtype=float), DIGITS)
    return scores if higher_is_better else -scores


def changes(a: str, b: str) -> tuple[list[int], list[int]]:
    """Return [start, end, start, end, …] of the spans of a that b lacks, and of those of b that a lacks.

    Texts are compared by words, in Chinese and Japanese by characters; neighboring words are one span.
    """
    words = [[match.span() for match in _WORD.finditer(text)] for text in (a, b)]
    first, second = [a[i:j] for i, j in words[0]], [b[i:j] for i, j in words[1]]
    found: tuple[list[int], list[int]] = ([], [])
    # Of 200 words and more, frequent ones are no anchors (autojunk): degenerate texts would take minutes.
    for kind, *ranges in SequenceMatcher(None, first, second).get_opcodes():
        for spans, its_words, start, end in zip(found, words, ranges[::2], ranges[1::2], strict=True):
            if kind != "equal" and start < end:
                spans += [its_words[start][0], its_words[end - 1][1]]
    return found
