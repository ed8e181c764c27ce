"""Invented results of a study."""

import numpy as np

from posnet_eval.metrics import get_metric
from posnet_eval.metrics.base import MetricOptions
from posnet_fairseq.studies.results import TranslationScore, packed

UPDATES = [250, 500, 750, 1000]  # of validations


def segments(generator, lengths, quality):
    """(N, 10) statistics of BLEU and (N, 18) of chrF, for sentences of N lengths."""
    total = np.stack([np.maximum(lengths - n, 0) for n in range(4)], 1)
    correct = generator.binomial(total, quality ** np.arange(1, 5)[None])
    bleu = np.concatenate([lengths[:, None], lengths[:, None], correct, total], 1)
    characters = [np.maximum(5 * lengths - n, 0) for n in range(6)]
    chrf = [
        part for n, size in enumerate(characters) for part in (size, size, generator.binomial(size, quality ** (n + 1)))
    ]
    return {"bleu": bleu.astype(float), "chrf": np.stack(chrf, 1).astype(float)}


def score_of(metric, statistics):
    """The corpus score of (N, K) statistics."""
    return float(get_metric(metric, MetricOptions(language="de")).corpus(statistics.sum(0)))


def result(study, system, seed, quality, sizes, rate=0.5):
    """A result of a run, of which a share of the words is right, with sizes of test sets.

    An update takes `rate` CPU seconds; one of the baseline takes half a second.
    """
    test_sets, signature = {}, {"nrefs": "1", "case": "mixed", "version": "0"}
    for place, (name, size) in enumerate(sizes.items()):
        lengths = np.random.default_rng(place).integers(1, 45, size)
        test_sets[name], both = {}, []
        for number, precision in enumerate(("float32", "int8")):
            generator = np.random.default_rng([seed, place, number, *system.encode()])
            counted = segments(generator, lengths, quality)
            test_sets[name][precision] = {
                metric: TranslationScore(score_of(metric, numbers), signature) for metric, numbers in counted.items()
            } | {"cpu_seconds": 10.0 + number, "sentences_per_second": size / 10}
            both.append(counted)
        test_sets[name]["segments"] = {
            metric: packed(np.hstack([counted[metric] for counted in both])) for metric in ("bleu", "chrf")
        }
    perplexity = [round(40 / quality * 250 / update, 2) for update in UPDATES]
    return {
        **{"study": study, "system": system, "seed": seed, "settings": {}},
        "data": {"key": "0", "source": "en", "target": "de"},
        "search": {"beam": 5, "validation_bleu": {"5": 20.0}},
        "training": {
            **{"updates": UPDATES[-1], "best_update": UPDATES[-1], "best_perplexity": perplexity[-1], "attempts": 1},
            **{"seconds": 1.0, "cpu_seconds_per_update": rate, "tokens_per_second": 100.0, "peak_memory_bytes": 1e9},
            "cost": {"relative": rate / 0.5, "other_seconds": 0.5, "updates": 30},
            "validation": {"updates": UPDATES, "perplexity": perplexity},
            **{"loss": {"updates": [], "bits": []}, "surroundings": {}},
        },
        "model": {"parameters": 3_000_000, "folder_bytes": 12 * 2**20},
        "test_sets": test_sets,
    }


def joined(lines, score, length):
    """A result on long inputs: equal lines of 1,000 n-grams of each order, of which the same share is right.

    `length`, at least 1, is that of the translations as a share of the references'.
    """
    right = round(10 * score)
    rows = np.tile([round(1000 * length), 1000, *[right] * 4, *[1000] * 4], (lines, 1))
    return {"bleu": TranslationScore(score, {}), "segments": packed(rows)}
