"""BLEU, chrF and TER against sacreBLEU itself."""

import copy
import random
import re
import shlex
import sys
from functools import partial

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF, TER

from posnet_eval.metrics import get_metric
from posnet_eval.metrics.base import MetricOptions, Segment
from posnet_fairseq.shared.errors import UsageError

REFERENCE = [
    'Das Argument "%s" muss eine Zeichenfolge sein.',
    "Guten Tag!",
    "Tag",
    "ÄRGER & Übermut, 3,5 % mehr",
    "",
    "a a a b",
    "Der Hund beißt den Mann, der den Hund beißt.",
    "Im Jahr 2017 (und 2018) - so hieß es - kam nichts.",
]
OUTPUT = [
    'Das "%s" Argument muss ein String sein.',
    "guten Tag !",
    "Tag",
    "ärger und übermut , 3,5% mehr",
    "etwas",
    "a b a a b",
    "Den Mann beißt der Hund, der den Hund beißt.",
    "",
]


def segments(output, *references):
    return [Segment("", *pair) for pair in zip(output, zip(*references, strict=True), strict=True)]


def rows(metric, items):
    """Statistics in the order of the segments."""
    result = np.full((len(items), metric.width), np.nan)
    for places, part in metric.statistics(items):
        assert np.isnan(result[places]).all()
        result[places] = part
    return result


THEIRS = {"bleu": BLEU, "chrf": CHRF, "chrf++": partial(CHRF, word_order=2), "ter": TER}
GERMAN = OUTPUT, [REFERENCE]
TWO = OUTPUT, [REFERENCE, REFERENCE[::-1]]
CHINESE = ["我们今天去 GitHub 看看。", "他说：“你好！”", "天气很好"]
ZH = ["今天我们去GitHub看一看。", "他说“你好”。", "天气不好吗"], [CHINESE]


@pytest.mark.parametrize(
    ("name", "theirs", "options", "texts"),
    [
        *((name, {}, MetricOptions(), GERMAN) for name in THEIRS),
        *((name, {}, MetricOptions(references=2), TWO) for name in THEIRS),
        *((n, {"lowercase": True}, MetricOptions(lowercase=True), GERMAN) for n in ("bleu", "chrf", "chrf++")),
        ("bleu", {"tokenize": "intl"}, MetricOptions(tokenize="intl", language="de"), GERMAN),
        ("bleu", {"trg_lang": "zh"}, MetricOptions(language="zh"), ZH),
        ("chrf", {}, MetricOptions(language="zh"), ZH),
        ("ter", {"normalized": True, "asian_support": True}, MetricOptions(language="zh"), ZH),
    ],
)
def test_corpus_segments_and_signature_are_sacrebleus(name, theirs, options, texts):
    theirs, metric, (output, references) = THEIRS[name](**theirs), get_metric(name, options), texts
    numbers = rows(metric, segments(output, *references))
    assert numbers.tolist() == theirs._extract_corpus_statistics(output, references)
    expected = theirs.corpus_score(output, references).score
    assert metric.corpus(numbers.sum(0)) == pytest.approx(expected, abs=1e-10)
    assert expected > 0
    assert "|".join(f"{key}:{value}" for key, value in metric.details().items()) == str(theirs.get_signature())
    sentence = copy.copy(theirs)
    sentence.effective_order = True  # of BLEU, as sacreBLEU advises
    for score, line, known in zip(metric.by_segment(numbers), output, zip(*references, strict=True), strict=True):
        assert score == pytest.approx(sentence.sentence_score(line, list(known)).score, abs=1e-10), line


@pytest.mark.parametrize("name", ["bleu", "chrf", "ter"])
def test_sums_of_any_shape(name):
    """Also of corpora in which hardly anything matches, where smoothing and the guards against 0 decide."""
    generator = random.Random(1)
    words = ["ja", "nein", "vielleicht", "doch", "."]
    output, reference = (
        [" ".join(generator.choices(words, k=generator.randrange(7))) for _ in range(300)] for _ in range(2)
    )
    metric = get_metric(name, MetricOptions())
    theirs = THEIRS[name]()
    numbers = rows(metric, segments(output, reference))
    groups = numbers.reshape(100, 3, -1).sum(1).reshape(10, 10, -1)
    scores = metric.corpus(groups)
    assert scores.shape == (10, 10)
    for sums, score in zip(groups.reshape(100, -1), scores.ravel(), strict=True):
        assert score == pytest.approx(theirs._compute_score_from_stats(sums.tolist()).score, abs=1e-10)


def test_processes_change_nothing():
    generator = random.Random(2)
    words = ["".join(generator.choices("aeiourst", k=4)) for _ in range(50)]
    output, reference = ([" ".join(generator.choices(words, k=9)) for _ in range(700)] for _ in range(2))
    items = segments(output, reference)
    for name in ("bleu", "chrf++"):
        one, two = (rows(get_metric(name, MetricOptions(processes=count)), items) for count in (1, 2))
        assert np.array_equal(one, two)


def test_tokenizer_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "MeCab", None)
    with pytest.raises(
        UsageError,
        match=rf"tokenizer ja-mecab is not installed\. Run {re.escape(shlex.quote(sys.executable))} -m pip install "
        r"'sacrebleu\[ja\]'$",
    ):
        get_metric("bleu", MetricOptions(tokenize="ja-mecab"))
    assert get_metric("bleu", MetricOptions(language="ja")).details()["tok"] == "char", "a remark says so"


@pytest.mark.parametrize("failure", [OSError("no route to host"), SystemExit(1)])
def test_tokenizer_that_cannot_be_downloaded(monkeypatch, tmp_path, failure):
    def fail(*_):
        raise failure

    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_spm.SACREBLEU_DIR", str(tmp_path))
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_spm.download_file", fail)
    with pytest.raises(UsageError, match=r"tokenizer flores200 is not in .* and cannot be fetched"):
        get_metric("bleu", MetricOptions(tokenize="flores200"))


def test_ter_of_lines_that_would_take_minutes_is_refused():
    """A long line with a short reference is not one of them: systems repeat themselves."""
    ter, loop = get_metric("ter", MetricOptions()), "a b " * 500
    assert rows(ter, segments([loop], ["a b c"])).tolist() == [[998, 3]]
    with pytest.raises(UsageError, match=r"a line of 1,000 words .* has a reference of 500, and their product"):
        rows(ter, segments([loop], [loop[:1000]]))
