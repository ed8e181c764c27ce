import random

import pytest
import sacrebleu
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from posnet_eval.compare import compare
from posnet_fairseq.errors import UsageError


def corpus(errors, seed):
    """Sentences with a share of wrong words."""
    words, generator = random.Random(1), random.Random(seed)
    reference = [" ".join(f"w{words.randrange(50)}" for _ in range(8)) for _ in range(60)]
    broken = [" ".join("oops" if generator.random() < errors else w for w in line.split()) for line in reference]
    return reference, broken


def test_equals_sacrebleu():
    reference, good = corpus(0.1, 2)
    _, bad = corpus(0.2, 3)
    scores, signatures = compare({"good": good, "bad": bad}, reference)
    metrics = {"BLEU": BLEU(), "chrF": CHRF()}
    expected_signatures, expected = PairedTest(
        [("good", good), ("bad", bad)], metrics, references=[reference], test_type="bs", n_samples=1000
    )()
    for metric, theirs in (("BLEU", "BLEU"), ("chrF", "chrF2")):
        for index, name in enumerate(("good", "bad")):
            assert scores[name][metric].value == expected[theirs][index].score
            assert scores[name][metric].interval == expected[theirs][index].ci
        assert scores["bad"][metric].p == expected[theirs][1].p_value
        assert signatures[metric] == str(expected_signatures[theirs])
    assert scores["good"]["BLEU"].value == sacrebleu.corpus_bleu(good, [reference]).score


def test_marks_have_a_direction():
    reference, good = corpus(0.05, 2)
    _, bad = corpus(0.4, 3)
    assert compare({"good": good, "bad": bad}, reference)[0]["bad"]["BLEU"].mark == "↓"
    assert compare({"bad": bad, "good": good}, reference)[0]["good"]["BLEU"].mark == "↑"


def test_equal_outputs_are_not_significant():
    reference, output = corpus(0.2, 2)
    score = compare({"a": output, "b": list(output)}, reference)[0]["b"]["BLEU"]
    assert (score.mark, score.p) == ("=", None)


def test_bad_input():
    reference, output = corpus(0.2, 2)
    with pytest.raises(UsageError, match="system b has 59 lines, the reference 60"):
        compare({"a": output, "b": output[:-1]}, reference)
    with pytest.raises(UsageError, match="at least one sentence"):
        compare({"a": [], "b": []}, [])
