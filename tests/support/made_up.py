"""Comparisons made up for tests of whatever shows them: any number of systems, test sets, metrics and runs."""

import random
from itertools import combinations

import numpy as np

from posnet_eval.inputs.hygiene import Remark
from posnet_eval.metrics.base import MeanMetric
from posnet_eval.statistics.results import (
    Bucket,
    Comparison,
    Difference,
    MetricInfo,
    Score,
    TestSetResult,
    deviation,
)

METRICS = tuple(
    MetricInfo(name, label, name != "ter", f"nrefs:1|made-up:{name}|version:2.6.0")
    for name, label in (("bleu", "BLEU"), ("chrf", "chrF"), ("ter", "TER"), ("comet", "COMET"), ("bleurt", "BLEURT"))
)
RESAMPLES = 200
LIMITS = (10, 20, 40)  # words of the buckets of length


def sacrebleu_test_set(monkeypatch, name, pair, folder, source, reference):
    """Let one of sacreBLEU's test sets be the lines of two files, written into a folder; it is not fetched then."""
    from sacrebleu.dataset import DATASETS

    folder.mkdir(parents=True)
    for field in DATASETS[name].fieldnames(pair):
        text = (reference if field == "ref" else source).read_text(encoding="utf-8")
        (folder / f"{name.replace('/', '_')}.{pair}.{field}").write_text(text, encoding="utf-8")
    monkeypatch.setattr(DATASETS[name], "_outdir", str(folder))


class Mean(MeanMetric):
    """A metric of which only sums are wanted."""

    name, label = "mean", "mean"

    def details(self):
        return {}

    def statistics(self, segments):
        raise NotImplementedError


def comparison(systems=3, segments=40, runs=1, metrics=3, test_sets=1, baselines=1, **options):
    """Systems s0, s1, … that translate made-up sentences, each a little worse than the one before it.

    Args:
        systems, segments, metrics, test_sets, baselines: how many of them.
        runs: of each system.
        options: of :func:`made_up_test_set`.
    """
    names = [f"s{number}" for number in range(systems)]
    sets = [
        made_up_test_set(f"test{number}", names, segments, runs, METRICS[:metrics], seed=number, **options)
        for number in range(test_sets)
    ]
    return compared(names, sets, baselines=baselines)


def compared(systems, test_sets, baselines=1, test="bs"):
    """A comparison of systems on test sets that were made elsewhere."""
    return Comparison(
        systems=tuple(systems),
        labels={name: f"System {name}" for name in systems},
        baselines=tuple(systems[:baselines]),
        test_sets=tuple(test_sets),
        test=test,
        resamples=RESAMPLES,
        trials=RESAMPLES if test == "ar" else 0,
        seed=12345,
        versions={"posnet": "1.2.3", "sacrebleu": "2.6.0"},
    )


def made_up_test_set(name, systems, segments, runs, metrics, seed=0, missing=(), same=(), sources=True, words=12):
    """A test set of random words, of which a system gets some wrong.

    Args:
        name: of it.
        systems: names.
        segments: how many.
        runs: of each system.
        metrics: of :data:`METRICS`.
        seed: of the words.
        missing: systems without a score.
        same: systems with the same output as the first.
        sources: whether there are sources.
        words: in a sentence, on average.
    """
    generator = random.Random(seed)
    vocabulary = [f"w{number}" for number in range(1000)]
    references = [
        " ".join(generator.choices(vocabulary, k=generator.randint(1, 2 * words - 1))) for _ in range(segments)
    ]
    outputs = {}
    for number, system in enumerate(systems):
        share = 0.0 if system in same else 0.1 + 0.4 * number / len(systems)
        outputs[system] = [[_wrong(generator, line, share) for line in references] for _ in range(runs)]
    for system in same:
        outputs[system] = outputs[systems[0]]
    shown = {system: lines for system, lines in outputs.items() if system not in missing}
    scores = {metric: {s: _right(lines, references, metric) for s, lines in shown.items()} for metric in metrics}
    return scored(name, shown, references, [line.upper() for line in references] if sources else (), scores, missing)


def scored(name, outputs, references, sources, scores, missing=(), languages=("en", "de")):
    """A test set's result from scores of segments; those of the whole are their means.

    Args:
        name: of the test set.
        outputs: {system: runs of N lines}.
        references: N lines.
        sources: N lines or none.
        scores: {:class:`MetricInfo`: {system: (runs, N)}}.
        missing: systems.
        languages: of source and target.
    """
    count = len(references)
    weights = np.random.default_rng(12345).multinomial(count, np.full(count, 1 / count), RESAMPLES) / count
    means = {metric.name: {s: np.mean(values, axis=0) for s, values in of.items()} for metric, of in scores.items()}
    lengths = np.array([len(line.split()) for line in references])
    buckets = []
    for low, high in zip((1, *LIMITS), (*LIMITS, None), strict=True):
        inside = (lengths >= low) & (lengths < (high or np.inf))
        if inside.any():
            label = f"{low}-{high - 1}" if high else f"{low}+"
            of = {s: {metric: float(values[s][inside].mean()) for metric, values in means.items()} for s in outputs}
            buckets.append(Bucket(label, int(inside.sum()), of))
    return TestSetResult(
        name=name,
        languages=languages,
        metrics=tuple(scores),
        scores={s: {metric.name: _score(of[s], weights) for metric, of in scores.items()} for s in outputs},
        differences={
            (a, b): {metric.name: _difference(metric, means, outputs, a, b, weights) for metric in scores}
            for b, a in combinations(outputs, 2)
        },
        missing={system: f"{system}.txt is not there" for system in missing},
        by_length=tuple(buckets),
        remarks=(*(Remark(s, "2 empty lines", (3, 17)) for s in outputs), Remark("", "1 very long line", (5,))),
        sources=tuple(sources),
        references=(tuple(references),),
        outputs={system: tuple(map(tuple, runs)) for system, runs in outputs.items()},
        segments=means,
    )


def _wrong(generator, line, share):
    return " ".join("wrong" if generator.random() < share else word for word in line.split())


def _right(runs, references, metric):
    """Share of right words, of TER of wrong ones, in percent."""
    share = np.array(
        [
            [
                np.mean([w == v for w, v in zip(line.split(), r.split(), strict=True)])
                for line, r in zip(lines, references, strict=True)
            ]
            for lines in runs
        ]
    )
    return 100 * (share if metric.higher_is_better else 1 - share)


def _score(values, weights):
    runs = tuple(np.mean(values, axis=1).tolist())
    low, high = np.quantile(weights @ np.mean(values, axis=0), (0.025, 0.975)).tolist()
    return Score(float(np.mean(runs)), runs, deviation(runs), low, high, (high - low) / 2)


def _difference(metric, means, outputs, a, b, weights):
    of = means[metric.name][a] - means[metric.name][b]
    resampled = weights @ of
    value, sign = float(of.mean()), 1 if metric.higher_is_better else -1
    low, high = np.quantile(resampled, (0.025, 0.975)).tolist()
    same = outputs[a] == outputs[b]
    p = (int((np.abs(resampled - value) >= abs(value)).sum()) + 1) / (RESAMPLES + 1)
    shift = min(1.0, 2 * min(float((resampled <= 0).mean()), float((resampled >= 0).mean())))
    win = float((sign * resampled > 0).mean() + (resampled == 0).mean() / 2)
    return Difference(value, low, high, None if same else p, shift, win, int(np.sign(sign * value)), same)


def with_segments(scores, metric=0, outputs=None):
    """A test set of systems a and b with given scores of segments by one metric, all outputs different."""
    count = len(scores["a"])
    outputs = outputs or {system: [[f"{system}{i}" for i in range(count)]] for system in scores}
    arrays = {system: np.array([values]) for system, values in scores.items()}
    return scored("test", outputs, ["r"] * count, [], {METRICS[metric]: arrays})


WORDS = ["".join(random.Random(number).choices("aeioubdfglmnrstßä", k=2 + number % 7)) for number in range(400)]


def text(size, seed=1):
    generator = random.Random(seed)
    return [" ".join(generator.choices(WORDS, k=generator.randrange(3, 9))) for _ in range(size)]


def translated(lines, seed=2):
    """As a fair system would: a third of the words is another one."""
    generator = random.Random(seed)
    return [
        " ".join(word if generator.random() < 0.67 else generator.choice(WORDS) for word in line.split())
        for line in lines
    ]
