"""Comparisons made up for tests of whatever shows them: any number of systems, test sets, metrics and runs."""

import random

import numpy as np

from posnet_eval.inputs.loading import Texts
from posnet_eval.inputs.plan import Plan
from posnet_eval.metrics.base import MeanMetric, MetricOptions
from posnet_eval.statistics.results import Comparison
from posnet_eval.statistics.summary import MetricRun, summarize

RESAMPLES = 200


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


def _named(name, label):
    metric = Mean(MetricOptions())
    metric.name, metric.label, metric.higher_is_better = name, label, name != "ter"
    return metric


METRICS = tuple(map(_named, ("bleu", "chrf", "ter", "comet", "bleurt"), ("BLEU", "chrF", "TER", "COMET", "BLEURT")))


def comparison(systems=3, segments=40, runs=1, metrics=3, test_sets=1, baselines=1, **options):
    """Systems s0, s1, … that translate made-up sentences, each a little worse than the one before it."""
    names = [f"s{number}" for number in range(systems)]
    sets = [
        made_up_test_set(f"test{number}", names, segments, runs, METRICS[:metrics], seed=number, **options)
        for number in range(test_sets)
    ]
    return compared(names, sets, baselines=baselines)


def compared(systems, test_sets, baselines=1):
    """A comparison of systems on test sets that were made elsewhere."""
    return Comparison(
        systems=tuple(systems),
        labels={name: f"System {name}" for name in systems},
        baselines=tuple(systems[:baselines]),
        test_sets=tuple(test_sets),
        test="bs",
        resamples=RESAMPLES,
        trials=0,
        seed=12345,
        versions={"posnet": "1.2.3", "sacrebleu": "2.6.0"},
    )


def made_up_test_set(name, systems, segments, runs, metrics, seed=0, missing=(), same=(), sources=True):
    """A test set of random words, of which a system gets some wrong; `same` ones have the output of the first."""
    generator = random.Random(seed)
    vocabulary = [f"w{number}" for number in range(1000)]
    references = [" ".join(generator.choices(vocabulary, k=generator.randint(1, 23))) for _ in range(segments)]
    outputs = {}
    for number, system in enumerate(systems):
        share = 0.0 if system in same else 0.1 + 0.4 * number / len(systems)
        outputs[system] = [[_wrong(generator, line, share) for line in references] for _ in range(runs)]
    for system in same:
        outputs[system] = outputs[systems[0]]
    shown = {system: lines for system, lines in outputs.items() if system not in missing}
    scores = {metric: {s: _right(lines, references, metric) for s, lines in shown.items()} for metric in metrics}
    return scored(name, shown, references, [line.upper() for line in references] if sources else (), scores, missing)


def scored(name, outputs, references, sources, scores, missing=()):
    """A test set's result from scores {metric: {system: (runs, N)}}; those of the whole are their means."""
    texts = Texts(
        name,
        ("en", "de"),
        tuple(sources),
        (tuple(references),),
        {system: tuple(map(tuple, runs)) for system, runs in outputs.items()},
        {system: f"{system}.txt is not there" for system in missing},
        (),
    )
    runs = [
        MetricRun(metric, {"made-up": metric.name}, texts, {s: np.stack([v, v * 0 + 1], 2) for s, v in of.items()})
        for metric, of in scores.items()
    ]
    return summarize(Plan({"system": "label"}, (), resamples=RESAMPLES), "bs", texts, runs)


def _wrong(generator, line, share):
    return " ".join("wrong" if generator.random() < share else word for word in line.split())


def _right(runs, references, metric):
    """Share of right words, of TER of wrong ones, in percent."""
    words = [line.split() for line in references]
    share = np.array(
        [[np.mean([*map(str.__eq__, line.split(), of)]) for line, of in zip(run, words, strict=True)] for run in runs]
    )
    return 100 * (share if metric.higher_is_better else 1 - share)


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
