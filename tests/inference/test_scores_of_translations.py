"""Scores of given translations: those of fairseq and of the search, of every kind of model, and as they are printed."""

import json
import re

import pytest
import torch
from fairseq.sequence_scorer import SequenceScorer

from posnet_fairseq import api
from posnet_fairseq.cli import translate
from posnet_fairseq.inference.search import ensemble
from posnet_fairseq.inference.search.beam import ForcedDecoding
from posnet_fairseq.inference.search.search_settings import SearchSettings
from posnet_fairseq.inference.stored_energies import precompute
from posnet_fairseq.shared.errors import UsageError
from support.building import Case, build_case, build_model, pad, sentences
from support.checkpoints import precomputed
from support.commands import refused
from support.searching import DICTIONARY, MIXERS, search

LINES = ["w1 w2 w3 w10", "", "w11", "w4 w5 w6 w7 w8"]
GIVEN = ["w3 w1", "w2", "", "w5 w5 w9 w10 w4 w6"]


def batch():
    """Sources, and translations with an unknown word and without any words."""
    sources, targets = sentences(5, 9, 1, 7, 3), sentences(8, 3, 1, 7, 12)
    targets[0][2] = DICTIONARY.unk()
    return sources, targets


def scored(models, sources, targets, attention=False, **settings):
    """Hypotheses of forced decoding."""
    scorer = ForcedDecoding(models, DICTIONARY, SearchSettings(**settings), attention=attention)
    return [one for (one,) in scorer(sources, targets)]


def fairseqs(models, sources, targets):
    """What fairseq-generate --score-reference computes."""
    before = [torch.cat([target[-1:], target[:-1]]) for target in targets]
    lengths = torch.tensor([*map(len, sources)])
    net_input = {"src_tokens": pad(sources, left=True), "src_lengths": lengths, "prev_output_tokens": pad(before)}
    sample = {"id": torch.arange(len(sources)), "net_input": net_input, "target": pad(targets)}
    with torch.no_grad():
        return [one for (one,) in SequenceScorer(DICTIONARY).generate(models, sample)]


def assert_fairseqs(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert one.token_scores == pytest.approx(other["positional_scores"].tolist(), abs=1e-4)
        assert one.score == pytest.approx(float(other["score"]), abs=1e-4)


@pytest.mark.parametrize(("mixer", "is_cross"), MIXERS)
def test_scores_are_fairseqs_and_those_of_the_search(mixer, is_cross):
    model = build_case(Case(mixer, "cross", "none")) if is_cross else build_model(mixer)
    sources, targets = batch()
    assert_fairseqs(scored([model], sources, targets), fairseqs([model], sources, targets))
    for source, found in zip(sources, search([model], sources, beam=4, lenpen=0.6, attention=True), strict=True):
        given = scored([model], [source] * 4, [each.tokens for each in found], lenpen=0.6, attention=True)
        for one, other in zip(given, found, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-5)
            assert one.token_scores == pytest.approx(other.token_scores, abs=1e-5)
            torch.testing.assert_close(one.attention, other.attention, rtol=0, atol=1e-5)


def test_ensembles_in_chunks_with_stored_energies(monkeypatch):
    models, (sources, targets) = [build_model(mixer) for mixer in ("rposnet", "attention", "aposnet")], batch()
    expected, sizes = fairseqs(models, sources, targets), []
    for model in models:
        precompute(model)
        model.decoder.output_projection.register_forward_hook(lambda _, inputs, __: sizes.append(len(inputs[0])))
    monkeypatch.setattr(ensemble, "MIN_CHUNK", 4)
    assert_fairseqs(scored(models, sources, targets), expected)
    assert max(sizes) == 4
    assert sum(sizes) == 3 * sum(map(len, targets))  # no scores of padding


def test_infinite_numbers_are_refused():
    model, (sources, targets) = build_model("rposnet"), batch()
    model.decoder.final_norm.weight.data.fill_(torch.inf)
    with pytest.raises(UsageError, match="become infinite or NaN"):
        scored([model], sources, targets)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("checkpoint", "float32"), ("ensemble", "float32"), ("precomputed", "bf16"), ("ensemble", "int8")],
)
def test_scores_of_own_translations(small_model, kind, dtype):
    paths = {"checkpoint": small_model, "ensemble": [small_model, small_model]}.get(kind) or precomputed(small_model)
    model = api.load(paths, dtype=dtype, pretokenized=True)
    found = model.translate(LINES[::2], beam=3, nbest=2, max_len_b=6)
    pairs = [(line, each.text) for line, several in zip(LINES[::2], found, strict=True) for each in several]
    expected = [each.score for several in found for each in several]
    scores = [each.score for each in model.score(*zip(*pairs, strict=True))]
    # One scale serves all of a batch in int8.
    assert scores == pytest.approx(expected, abs={"float32": 1e-5, "bf16": 0.02, "int8": 0.1}[dtype])


@pytest.fixture
def printed(small_model, tmp_path):
    """A function: the lines that posnet-translate prints of scores."""

    def run(*options, given=GIVEN):
        for name, lines in (("in", LINES), ("given", given)):
            (tmp_path / name).write_text("".join(line + "\n" for line in lines))
        paths = ["--input", str(tmp_path / "in"), "--output", str(tmp_path / "out")]
        scored = ["--score-translations", str(tmp_path / "given")]
        translate.main([str(small_model), "--pretokenized", "--cpu", *paths, *scored, *options])
        return (tmp_path / "out").read_text().split("\n")[:-1]

    return run


def test_what_is_printed_is_what_python_returns(printed, small_model):
    model = api.load(small_model, pretokenized=True)
    found = model.score(LINES, GIVEN, attention=True, max_tokens=7)
    assert [model.score(*pair).score for pair in zip(LINES, GIVEN, strict=True)] == pytest.approx(
        [each.score for each in found], abs=1e-5
    )
    assert [float(line) for line in printed()] == pytest.approx([each.score for each in found], abs=2e-6)
    sums = [float(line) for line in printed("--lenpen", "0", "--max-tokens", "7")]
    assert sums == pytest.approx([each.log_probability for each in found], abs=1e-5)
    for line, each in zip(printed("--per-token", "--print-alignment"), found, strict=True):
        score, tokens, token_scores, pairs = line.split(" ||| ")
        assert tokens == " ".join(each.tokens)
        assert [float(one) for one in token_scores.split()] == pytest.approx(each.token_scores, abs=2e-6)
        assert pairs == " ".join(f"{source}-{target}" for source, target in each.alignment)
        assert float(score) == pytest.approx(sum(each.token_scores) / len(each.tokens), abs=2e-6)
    for number, (line, each) in enumerate(zip(printed("--json", "--print-word-alignment"), found, strict=True)):
        values = json.loads(line)
        assert list(values) == [
            *("line", "text", "score", "log_probability", "words", "word_scores", "source_words", "word_alignment")
        ]
        assert (values["line"], values["text"], tuple(values["words"])) == (number, GIVEN[number], each.words)


def test_annotated_translations_are_scored_by_their_text(printed):
    listed = [f"{number} ||| {line} ||| -0.500000" for number, line in enumerate(GIVEN)]
    assert printed(given=listed) == printed()


def test_processes_score_the_same(printed):
    options = "--max-tokens", "5", "--json"
    assert printed("--processes", "2", *options) == printed("--processes", "1", *options)


def test_long_lines_and_unknown_words(printed, small_model, capsys):
    given = ["w1 " * 30, "w2 ☃", "", "w1 <pad> w2"]
    lines = printed("--on-long", "skip", given=given)
    assert [line == "nan" for line in lines] == [True, False, False, False]
    assert json.loads(printed("--on-long", "skip", "--json", given=given)[0])["score"] is None
    said = capsys.readouterr().err
    assert "the translation of line 1 has 31 tokens (its end symbol counted), the model takes 24: not scored." in said
    assert "translations of lines 2, 4: the model's vocabulary lacks a part, which becomes <unk>" in said
    (cut,) = api.load(small_model, pretokenized=True).score(["w1"], given[:1], on_long="truncate")
    assert cut.tokens == ("w1",) * 23 + ("</s>",)
    (left_out,) = api.load(small_model, pretokenized=True).score(["w1"], given[:1], on_long="skip")
    assert left_out.to_dict()["score"] is None


def test_scores_need_no_beam(small_model):
    """Not even one that the dictionary has entries for."""
    model, wide = api.load(small_model, pretokenized=True), SearchSettings(beam=50)
    with pytest.raises(UsageError, match="beam 50: the target dictionary has"):
        model.translator(wide)
    model.translator(wide, scores=True)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--beam", "3"], "with --beam: nothing is searched for. Leave one of the two out"),
        (["--prefix", "x"], "argument --prefix: not allowed with argument --score-translations"),
        (["--print-alignment", "--print-word-alignment"], "not allowed with argument --print-alignment"),
        (["--stream", "--output", "-"], "with --stream: leave one of the two out"),
    ],
)
def test_options_of_a_search_are_refused(printed, capsys, options, sentence):
    assert sentence in refused(capsys, lambda words: printed(*words), *options)


def test_other_numbers_of_lines_are_refused(printed, capsys, small_model):
    said = refused(capsys, lambda _: printed(given=GIVEN[:3]))
    assert re.search(r"--score-translations \S+ has 3 lines, and --input \S+ 4\. Give one line for each, which", said)
    model = api.load(small_model, pretokenized=True)
    for arguments, sentence in (
        ((LINES, GIVEN[:3]), "translations: 3 given for 4 lines"),
        (("w1", None), "translations is None, not text"),
        (([1], ["w1"]), "source 1 is 1, not text"),
        ((["w1"], [None]), "translation 1 is None, not text"),
        (("w1 " * 30, "w1"), "line 1 has 31 tokens .* choose on_long='truncate' or on_long='skip'"),
    ):
        with pytest.raises(UsageError, match=f"^{sentence}"):
            model.score(*arguments)
    with pytest.raises(UsageError, match=r"^score has no argument lenpan, .* Did you mean lenpen"):
        model.score("w1", "w1", lenpan=1)
