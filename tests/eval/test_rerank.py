"""posnet-rerank and posnet.rerank: minimum Bayes risk, against a plain double loop over sacreBLEU's scores."""

import json
import random
from collections import Counter
from itertools import chain

import numpy as np
import pytest
import torch
from sacrebleu.metrics import BLEU, CHRF

import posnet_fairseq as posnet
from posnet_eval import rerank as command
from posnet_eval.metrics.base import MetricOptions, Segment
from posnet_eval.metrics.comet import Comet, CometKiwi
from posnet_eval.minimum_bayes_risk import _means
from posnet_fairseq.shared.errors import UsageError
from support.tiny_models import checkpoint, make_comet, scores

WORDS = "ein Hund läuft über die Wiese und das Kind sieht ihm nach".split()


def samples(lines=7, most=9):
    draw = random.Random(3)
    return [
        [" ".join(draw.choices(WORDS, k=draw.randint(0, 6))) for _ in range(draw.randint(1, most))]
        for _ in range(lines)
    ]


COPIES = ["a b", "c d", "c d"]  # which decide


def assert_greatest(chosen, line, utilities):
    first = next(place for place, utility in enumerate(utilities) if utility > max(utilities) - 1e-6)
    assert chosen == line[first]


@pytest.mark.parametrize(("utility", "metric"), [("chrf", CHRF()), ("bleu", BLEU(effective_order=True))])
def test_the_best_one_of_a_double_loop(utility, metric):
    candidates = [*samples(), COPIES]
    for line, chosen in zip(candidates, posnet.rerank(candidates, utility), strict=True):
        assert_greatest(
            chosen, line, [sum(metric.sentence_score(one, [other]).score for other in line) for one in line]
        )


def chrf_of_mean_counts(one, line):
    """chrF of a text against n-grams that are counted in all texts of a line, divided by their number."""
    shares = []
    for order in range(1, 7):

        def grams(text, order=order):
            text = text.replace(" ", "")
            return Counter(text[start : start + order] for start in range(len(text) - order + 1))

        own, all_of = grams(one), sum(map(grams, line), Counter())
        known = {gram: count / len(line) for gram, count in all_of.items()}
        match = sum(min(count, known.get(gram, 0)) for gram, count in own.items())
        if own and known:
            shares.append((match / own.total(), match / sum(known.values())))
    precision, recall = (sum(part) / len(shares) for part in zip(*shares, strict=True)) if shares else (0, 0)
    return 100 * 5 * precision * recall / (4 * precision + recall) if precision + recall else 0


def test_against_the_counts_of_all_candidates():
    candidates = [*samples(lines=40), COPIES]
    for line, chosen in zip(candidates, posnet.rerank(candidates, "chrf-aggregated"), strict=True):
        assert_greatest(chosen, line, [chrf_of_mean_counts(one, line) for one in line])


@pytest.fixture
def encoded(monkeypatch):
    """The numbers of texts that COMETs have encoded together."""
    sizes, load = [], Comet.load

    def watched(metric):
        network, tokenizer = load(metric)
        encode = network.get_sentence_embedding
        network.get_sentence_embedding = lambda ids, mask: sizes.append(len(ids)) or encode(ids, mask)
        return network, tokenizer

    monkeypatch.setattr(Comet, "load", watched)
    return sizes


@pytest.mark.parametrize("utility", ["comet", "comet-kiwi"])
def test_lines_that_are_read_in_part_are_counted(tmp_path, comet, comet_kiwi, utility, monkeypatch, capsys):
    monkeypatch.setattr(command, "AT_ONCE", 2)
    long = "the cat sat on the old bridge " * 300
    (tmp_path / "source").write_text("one\ntwo\nthree\nfour\n")
    candidates = write_candidates(tmp_path / "all", [["a", "b"], ["a", long, f"{long} so"], ["a"], [long]])
    model = {"comet": comet, "comet-kiwi": comet_kiwi}[utility]
    options = [candidates, "--utility", utility, f"--{utility}-model", str(model), "--cpu"]
    command.main([*options, "--source", str(tmp_path / "source"), "--output", str(tmp_path / "out")])
    assert capsys.readouterr().err.count("2 lines have a text that is longer than COMET") == 1
    best, stopped = command.best_candidates, []

    def interrupted(*arguments):
        stopped.append(1)
        if len(stopped) == 2:
            raise KeyboardInterrupt
        return best(*arguments)

    options += ["--source", str(tmp_path / "source"), "--output", str(tmp_path / "again")]
    monkeypatch.setattr(command, "best_candidates", interrupted)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        command.main(options)
    command.main([*options, "--resume"])
    assert "from line 3 on, 1 line has a text that is longer than COMET" in capsys.readouterr().err


@pytest.mark.parametrize("devices", [1, 2])
def test_comet_of_a_double_loop_encodes_every_text_once(comet, encoded, devices, monkeypatch):
    monkeypatch.setattr("posnet_eval.metrics.comet._AT_ONCE", 50)
    monkeypatch.setattr("posnet_eval.metrics.neural_metric.devices", lambda cpu: [torch.device("cpu")] * devices)
    candidates, sources = [*samples(lines=5), COPIES, ["alone"]], [f"{n} the cat" for n in range(7)]
    found = posnet.rerank(candidates, "comet", sources, comet_model=comet, device="cpu")
    if devices == 1:
        assert sum(encoded) == len({*sources, *chain(*candidates)})
    metric = Comet(MetricOptions(comet_model=str(comet), device="cpu"))
    for source, line, chosen in zip(sources, candidates, found, strict=True):
        pairs = [Segment(source, one, (other,)) for one in line for other in line]
        utilities = scores(metric, pairs)
        assert_greatest(chosen, line, [sum(utilities[n : n + len(line)]) for n in range(0, len(pairs), len(line))])


def test_the_best_estimate_without_references(comet_kiwi):
    candidates, sources = samples(), [f"the cat {n}" for n in range(7)]
    metric = CometKiwi(MetricOptions(comet_kiwi_model=str(comet_kiwi), device="cpu"))
    found = posnet.rerank(candidates, "comet-kiwi", sources, comet_kiwi_model=str(comet_kiwi), device="cpu")
    for source, line, chosen in zip(sources, candidates, found, strict=True):
        assert chosen in line
        assert_greatest(chosen, line, scores(metric, [Segment(source, one, ()) for one in line]))


def write_candidates(path, lines):
    rows = [{"line": n, "text": text, "score": -1.0} for n, line in enumerate(lines) for text in line]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_an_interrupted_command_goes_on(tmp_path, comet, encoder, encoded, monkeypatch, capsys):
    monkeypatch.setattr(command, "AT_ONCE", 2)
    candidates, sources = samples(), [f"{n} the cat" for n in range(7)]
    (tmp_path / "source").write_text("\n".join(sources))
    options = ["--utility", "comet", "--source", str(tmp_path / "source"), "--comet-model", str(comet), "--cpu"]
    options += ["--output", str(tmp_path / "out"), write_candidates(tmp_path / "all", candidates)]
    whole, best = posnet.rerank(candidates, "comet", sources, comet_model=comet, device="cpu"), command.best_candidates

    def interrupt():
        def interrupted(lines, *others):
            if lines == candidates[4:6]:
                raise KeyboardInterrupt
            return best(lines, *others)

        with monkeypatch.context() as patch:
            patch.setattr(command, "best_candidates", interrupted)
            with pytest.raises(SystemExit) as end:
                command.main(options)
        assert end.value.code == 130

    interrupt()
    assert (tmp_path / "out.partial").exists()
    assert not (tmp_path / "out").exists()
    encoded.clear()
    command.main(options)
    assert (tmp_path / "out").read_text().splitlines() == whole
    assert not (tmp_path / "out.partial").exists()
    assert sum(encoded) == len({*sources[4:6], *candidates[4], *candidates[5]}) + len({sources[6], *candidates[6]})
    interrupt()
    other = make_comet(tmp_path / "other", encoder, seed=2)
    capsys.readouterr()
    with pytest.raises(SystemExit):
        command.main([*options, "--comet-model", str(other), "--resume"])
    assert "a difference in: model, id. Give the same as then, or remove the file" in capsys.readouterr().err
    command.main([*options, "--comet-model", str(other)])
    assert "out.partial is of other work, with a difference in: model, id; it is replaced" in capsys.readouterr().err
    assert (tmp_path / "out").read_text().splitlines() == posnet.rerank(
        candidates, "comet", sources, comet_model=other, device="cpu"
    )


def test_what_a_model_needs_is_asked_for(tmp_path, copy, capsys):
    lines = [["a", "b"], ["c"]]
    with pytest.raises(UsageError, match=r"utility comet: COMET reads the source\. Give sources"):
        posnet.rerank(lines, "comet", comet_model=copy)
    for sources in (["one"], ["one", None], ["one", "tw\no"], "ab", 5, tmp_path):
        with pytest.raises(UsageError, match="sources: give a line of text for each of the 2 lists of candidates"):
            posnet.rerank(lines, "comet", sources, comet_model=copy)
    with pytest.raises(UsageError, match="comet_model 5: give a value of type str"):
        posnet.rerank(lines, "comet", ["one", "two"], comet_model=5)
    weights = torch.load(checkpoint(copy), weights_only=True)
    weights["state_dict"]["estimator.ff.0.bias"].fill_(float("nan"))
    torch.save(weights, checkpoint(copy))
    with pytest.raises(UsageError, match=r"the score of 'a' is not a number\. The model seems to be broken"):
        posnet.rerank(lines, "comet", ["one", "two"], comet_model=copy, device="cpu")
    with pytest.raises(UsageError, match="the score of 'b' is not"):
        list(_means([Counter("ab")], [np.array([[0, np.nan], [np.nan, np.nan]])]))
    for utility, read in (("chrf", "no model"), ("comet-kiwi", "comet_kiwi_model and comet_encoder")):
        with pytest.raises(UsageError, match=f"utility {utility} reads {read}. Leave comet_model out"):
            posnet.rerank(lines, utility, ["one", "two"], comet_model=copy)
    (tmp_path / "source").write_text("one\n")
    with pytest.raises(SystemExit):
        command.main([write_candidates(tmp_path / "all", lines), "--source", str(tmp_path / "source")])
    assert "all has 2 lines, " in capsys.readouterr().err


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
    with pytest.raises(UsageError, match="utility ter: give one of chrf, chrf-aggregated, bleu, comet, comet-kiwi"):
        posnet.rerank([["a"]], utility="ter")
    with pytest.raises(UsageError, match=r"utility .'chrf'.: give one of chrf"):
        posnet.rerank([["a"]], utility=["chrf"])
    with pytest.raises(UsageError, match="candidates 5: give a list of candidates for each line"):
        posnet.rerank(5)
