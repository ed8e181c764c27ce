"""N-grams counted all at once against sacreBLEU's, one by one."""

import random

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF

from posnet_eval.metrics import get_metric
from posnet_eval.metrics.base import MetricOptions, Segment
from posnet_eval.metrics.ngrams import matches

ALPHABETS = {
    "two letters": "ab ",
    "German": "abcdefghijklmnopqrstuvwxyzäöüß ABC,.",
    "beyond 16 bits": "😀😁a \U0010ffff\ud7ff",
    "all kinds of space": "ab \t\u00a0\u2003\u2028\x0b\x85",
    "Chinese": [chr(0x4E00 + number) for number in range(3000)] + [" "] * 50,
}  # fmt: skip


def texts(alphabet, count, longest, seed):
    generator = random.Random(seed)
    return ["".join(generator.choices(alphabet, k=generator.randrange(longest))) for _ in range(count)]


@pytest.mark.parametrize("name", ["bleu", "chrf"])
@pytest.mark.parametrize("alphabet", ALPHABETS)
@pytest.mark.parametrize("longest", [2, 9, 80])
def test_counts_are_sacrebleus(name, alphabet, longest):
    output, reference = (texts(ALPHABETS[alphabet], 300, longest, seed) for seed in (1, 2))
    reference = [
        line[1:] if number % 3 else known for number, (line, known) in enumerate(zip(output, reference, strict=True))
    ]
    metric = get_metric(name, MetricOptions())
    expected = {"bleu": BLEU, "chrf": CHRF}[name]()._extract_corpus_statistics(output, [reference])
    items = [Segment("", line, (known,)) for line, known in zip(output, reference, strict=True)]
    assert metric.count(items).tolist() == expected
    if longest == 80:
        assert sum(row[-1] if name == "chrf" else row[2] for row in expected) > 0  # something matches


def test_a_line_of_a_hundred_thousand_words():
    line = " ".join(texts("abcdef", 100_000, 5, 3))
    items = [Segment("", line, (line[: len(line) // 2],)), Segment("", "a b c", (line,)), Segment("", "", ("",))]
    for name, theirs in (("bleu", BLEU()), ("chrf", CHRF())):
        output, reference = [one.hypothesis for one in items], [one.references[0] for one in items]
        assert get_metric(name, MetricOptions()).count(items).tolist() == theirs._extract_corpus_statistics(
            output, [reference]
        )


def test_what_does_not_fit_is_left_to_sacrebleu():
    """More characters than the integers have room for, or the one that parts texts."""
    many = "".join(ALPHABETS["Chinese"])
    assert matches([("abc", "abd")], 6) is not None
    assert matches([(many, many[::-1])], 6) is None
    assert matches([("a\0b", "a\0b")], 6) is None
    for output, reference in ((many, many[5:]), ("a\0b c", "a\0b")):
        found = get_metric("chrf", MetricOptions()).count([Segment("", output, (reference,))])
        assert found.tolist() == CHRF()._extract_corpus_statistics([output], [[reference]])


def test_known_answers():
    found = matches([("aab", "ab"), ("", "x"), ("aaaa", "aa"), ("abc", "xyz")], 3)
    assert np.array_equal(found, [[2, 1, 0], [0, 0, 0], [2, 1, 0], [0, 0, 0]])
    assert np.array_equal(matches([("", "")], 2), [[0, 0]])
