"""The segments a page shows, as plain data for its script: every text once, small however many systems there are."""

from itertools import combinations

from posnet_eval.report import examples
from posnet_eval.report.word_diff import changes

LONGEST = 1000  # characters shown of a line


def browsable(comparison, test_set):
    """Segments of all pairs of systems where they differ most, and of all systems the best and worst.

    Args:
        comparison: :class:`posnet_eval.statistics.results.Comparison`.
        test_set: one of its test sets.

    Returns:
        A dict for JSON. Systems and metrics are given by index, segments by line from 1::

            systems: [label], without missing ones
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
    def __init__(self, comparison, test_set):
        self.test_set = test_set
        self.systems = [system for system in comparison.systems if system in test_set.scores]
        self.metrics = [metric.name for metric in test_set.metrics]
        self.places = {}  # of texts
        self.segments, self.changes = {}, {}
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

    def _pair(self, a, b, metric):
        names = self.systems[a], self.systems[b]
        found = [examples.most_different(self.test_set, *pair, metric) for pair in (names, names[::-1])]
        return [[self._compared(index, a, b) for index in indices] for indices in found]

    def _alone(self, system, metric):
        found = [choose(self.test_set, self.systems[system], metric) for choose in (examples.best, examples.worst)]
        return [[self._compared(index, system) for index in indices] for indices in found]

    def _compared(self, index, a, b=None):
        """Keep a segment with the output of one or two systems, and how it differs. Returns its line."""
        line = index + 1
        key = f"{line}:{a}:{'' if b is None else b}"
        if key not in self.changes:
            first = self._output(index, a)
            second = self.test_set.references[0][index] if b is None else self._output(index, b)
            self.changes[key] = changes(_shown(first), _shown(second))
        return line

    def _output(self, index, system):
        """Keep a segment with a system's output. Returns that."""
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

    def _place(self, text):
        return self.places.setdefault(_shown(text), len(self.places))


def _shown(text):
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text):,} characters)"
