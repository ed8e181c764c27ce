"""posnet-rerank and posnet.rerank: minimum Bayes risk, against a plain double loop over sacreBLEU's scores."""

import json
import random

import pytest
from sacrebleu.metrics import BLEU, CHRF

import posnet_fairseq as posnet
from posnet_eval import rerank as command
from posnet_fairseq.shared.errors import UsageError

WORDS = "ein Hund läuft über die Wiese und das Kind sieht ihm nach".split()


def samples(lines=7, most=9):
    draw = random.Random(3)
    return [
        [" ".join(draw.choices(WORDS, k=draw.randint(0, 6))) for _ in range(draw.randint(1, most))]
        for _ in range(lines)
    ]


@pytest.mark.parametrize(("utility", "metric"), [("chrf", CHRF()), ("bleu", BLEU(effective_order=True))])
def test_the_best_one_of_a_double_loop(utility, metric):
    candidates = samples()
    candidates.append(["a b", "c d", "c d"])  # which copies decide
    for line, chosen in zip(candidates, posnet.rerank(candidates, utility), strict=True):
        means = [sum(metric.sentence_score(one, [other]).score for other in line) for one in line]
        assert chosen == line[next(place for place, mean in enumerate(means) if mean > max(means) - 1e-6)]


def test_outputs_of_several_systems_are_joined(tmp_path):
    moses, lines = tmp_path / "a.txt", tmp_path / "b.jsonl"
    moses.write_text("0 ||| a b ||| -0.100000\n0 ||| c d ||| -0.200000\n1 |||  ||| -0.300000\n")
    rows = [(0, "c d e"), (1, "g h"), (1, "g h")]
    lines.write_text("".join(json.dumps({"line": n, "text": text, "score": -1.0}) + "\n" for n, text in rows))
    command.main([str(moses), str(lines), "--output", str(tmp_path / "out.txt")])
    joined = [["a b", "c d", "c d e"], ["", "g h", "g h"]]
    assert (tmp_path / "out.txt").read_text().splitlines() == posnet.rerank(joined)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("0 ||| a ||| -0.100000\n2 ||| b ||| -0.100000\n", "line 2, is no candidate for line 0 or 1 of the source"),
        ("1 ||| a ||| -0.100000\n", "line 1, is no candidate for line 0 or 1 of the source"),
        ("a plain text\n", "line 1, is no candidate for line 0"),
        ('{"line": 0, "text": "a", "score": -1}\n{"line": 0, "text": "', "candidates, line 2: it is no JSON"),
    ],
)
def test_what_is_no_list_of_candidates_is_refused(tmp_path, capsys, content, sentence):
    path = tmp_path / "candidates"
    path.write_text(content)
    with pytest.raises(SystemExit) as end:
        command.main([str(path)])
    assert end.value.code == 2
    assert sentence in capsys.readouterr().err


def test_other_numbers_of_lines_are_refused(tmp_path, capsys):
    for name, count in (("a", 1), ("b", 2)):
        (tmp_path / name).write_text("".join(f"{n} ||| x ||| -0.100000\n" for n in range(count)))
    with pytest.raises(SystemExit):
        command.main([str(tmp_path / "a"), str(tmp_path / "b")])
    assert "a has 1 line, " in capsys.readouterr().err


def test_a_line_without_candidates_and_a_text_are_refused():
    for candidates in ([["a"], []], ["a text"], [["a\nb"]]):
        with pytest.raises(UsageError, match="candidates: item"):
            posnet.rerank(candidates)
    with pytest.raises(UsageError, match="utility ter: give one of chrf, bleu"):
        posnet.rerank([["a"]], utility="ter")
