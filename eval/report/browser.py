"""Data of the segments that a page shows, for its script: every text once, small with any number of systems."""

from itertools import combinations
from typing import Any

from posnet_eval.report import examples
from posnet_eval.report.word_diff import changes
from posnet_eval.statistics.results import Comparison, TestSetResult

LONGEST = 1000  # characters shown of a line


def browsable(comparison: Comparison, test_set: TestSetResult) -> dict[str, Any]:
    """Return the segments where each pair of systems differs most, and the best and worst of each system.

    Args:
        comparison: results.
        test_set: one of its test sets.

    Returns:
        a dict for JSON. Systems and metrics are given by index, segments by line from 1::

            systems: [label], without missing systems
            start: [a, b], the pair to show first, or [a]
            metrics: [label]
            higher: [whether higher is better]
            texts: [text]
            segments: {line: [index of source or -1, [indices of references], {system: [index of output, scores …]}]}
            pairs: {"a:b": for each metric [[lines where a is better], [lines where b is]]}
            alone: for each system, for each metric [[best lines], [worst lines]]
            changes: {"line:a:b": [spans in a's output, spans in b's]}, "line:a:" to the first reference
    """
    return _Browsable(comparison, test_set).data


class _Browsable:
    def __init__(self, comparison: Comparison, test_set: TestSetResult) -> None:
        self.test_set = test_set
        self.systems = [system for system in comparison.systems if system in test_set.scores]
        self.metrics = [metric.name for metric in test_set.metrics]
        self.places: dict[str, int] = {}  # of texts
        self.segments: dict[int, list[Any]] = {}
        self.changes: dict[str, tuple[list[int], list[int]]] = {}
        pairs = {
            f"{a}:{b}": [self._pair(a, b, metric) for metric in self.metrics]
            for a, b in combinations(range(len(self.systems)), 2)
        }
        alone = [[self._alone(system, metric) for metric in self.metrics] for system in range(len(self.systems))]
        baselines = [self.systems.index(name) for name in comparison.baselines if name in self.systems]
        first = baselines[0] if baselines else 0
        self.data = {
            "systems": [comparison.labels[system] for system in self.systems],
            "start": [first, *(i for i in range(len(self.systems)) if i != first)][:2],
            "metrics": [metric.label for metric in test_set.metrics],
            "higher": [metric.higher_is_better for metric in test_set.metrics],
            "texts": list(self.places),
            "segments": self.segments,
            "pairs": pairs,
            "alone": alone,
            "changes": self.changes,
        }

    def _pair(self, a: int, b: int, metric: str) -> list[list[int]]:
        names = self.systems[a], self.systems[b]
        found = [examples.most_different(self.test_set, *pair, metric) for pair in (names, names[::-1])]
        return [[self._compared(index, a, b) for index in indices] for indices in found]

    def _alone(self, system: int, metric: str) -> list[list[int]]:
        found = [choose(self.test_set, self.systems[system], metric) for choose in (examples.best, examples.worst)]
        return [[self._compared(index, system) for index in indices] for indices in found]

    def _compared(self, index: int, a: int, b: int | None = None) -> int:
        """Add a segment with the output of one or two systems and their differences; return its line."""
        line = index + 1
        key = f"{line}:{a}:{'' if b is None else b}"
        if key not in self.changes:
            first = self._output(index, a)
            second = self.test_set.references[0][index] if b is None else self._output(index, b)
            self.changes[key] = changes(_shown(first), _shown(second))
        return line

    def _output(self, index: int, system: int) -> str:
        """Add a segment with a system's output; return the output."""
        test_set, name = self.test_set, self.systems[system]
        if index + 1 not in self.segments:
            source = self._place(test_set.sources[index]) if test_set.sources else -1
            self.segments[index + 1] = [source, [self._place(lines[index]) for lines in test_set.references], {}]
        outputs = self.segments[index + 1][2]
        text = test_set.outputs[name][0][index]
        if system not in outputs:
            scores = [round(float(test_set.segments[metric][name][index]), 1) for metric in self.metrics]
            outputs[system] = [self._place(text), *scores]
        return text

    def _place(self, text: str) -> int:
        return self.places.setdefault(_shown(text), len(self.places))


def _shown(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text):,} characters)"
