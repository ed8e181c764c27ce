"""preprocess, train, average, generate, score: in every system a BLEU that only word order can reach."""

import re

import pytest
import sacrebleu

from posnet_fairseq import api
from posnet_fairseq.cli import average, precompute
from posnet_fairseq.cli import translate as translate_command
from support import commands
from support.corpus import translate

FLOOR = 90.0
BEAM_SEARCH = "--beam 4 --max-len-a 2 --max-len-b 5".split()


def bleu(hypotheses, references):
    return sacrebleu.corpus_bleu(hypotheses, [references], tokenize="none").score


def lines(path):
    return path.read_text().split("\n")[:-1]


def test_floor_is_out_of_reach_without_word_order(data):
    """The right words in the order of the source, or in alphabetical order."""
    sources, references = lines(data / "test.xx"), lines(data / "test.yy")
    in_source_order = [source.replace("a", "b") for source in sources]
    assert bleu(in_source_order, references) < FLOOR / 2
    assert bleu([" ".join(sorted(line.split())) for line in references], references) < FLOOR / 2
    assert [translate(source) for source in sources] == references


@pytest.fixture(scope="module")
def averaged(trained):
    average.main([str(trained), "--num", "3", "--out", str(trained / "averaged.pt")])
    return trained / "averaged.pt"


@pytest.fixture(scope="module")
def generated(data, averaged):
    """What fairseq-generate translates, in the order of the test set. 61 sentences make no full batches of 8."""
    results = averaged.parent / "generated"
    hypotheses = commands.generate(pytest.MonkeyPatch(), data, averaged, results, *BEAM_SEARCH)
    assert sorted(hypotheses) == list(range(61)), "a sentence was lost"
    return [hypotheses[i] for i in range(61)]


@pytest.mark.thorough  # 25 s: trains a model; quick: test_translate_equals_generate
def test_generate_reaches_the_floor(data, generated):
    assert bleu(generated, lines(data / "test.yy")) > FLOOR


@pytest.mark.parametrize(("max_tokens", "processes"), [(9, 1), (2000, 1), (100, 2)])
@pytest.mark.quick_cases(1)
def test_translate_equals_generate(data, averaged, generated, tmp_path, max_tokens, processes):
    out = tmp_path / "test.hyp"
    arguments = ["--pretokenized", *BEAM_SEARCH, "--max-tokens", str(max_tokens), "--output", str(out), "--cpu"]
    arguments += ["--processes", str(processes)]
    translate_command.main([str(averaged), *arguments, "--input", str(data / "test.xx")])
    assert lines(out) == generated


def test_python_translates_as_the_command(data, averaged, generated):
    sources = lines(data / "test.xx")
    settings = {"beam": 4, "max_len_a": 2, "max_len_b": 5}
    model = api.load(averaged, pretokenized=True)
    assert model.translate(sources, **settings) == generated
    assert model.translate(sources[0], **settings) == generated[0]
    found = model.translate(sources, nbest=4, attention=True, max_tokens=100, **settings)
    assert [best.text for best, *_ in found] == generated
    # Words are translated one by one: the model looks at the right ones.
    looked_at = [
        (token[1:], best.source_tokens[weights.argmax()][1:])
        for best, *_ in found
        for token, weights in zip(best.tokens[:-1], best.attention, strict=False)
    ]
    assert sum(token == source for token, source in looked_at) > 0.9 * len(looked_at)


@pytest.fixture(scope="module")
def precomputed(averaged):
    if "transformer" in str(averaged):
        pytest.skip("nothing to precompute")
    precompute.main([str(averaged), "--out", str(averaged.parent / "fast.pt")])
    return averaged.parent / "fast.pt"


def test_precomputed_generates_the_same(data, precomputed, generated, monkeypatch):
    results = precomputed.parent / "generated_fast"
    hypotheses = commands.generate(monkeypatch, data, precomputed, results, *BEAM_SEARCH)
    assert [hypotheses[i] for i in range(61)] == generated


@pytest.mark.parametrize(
    "options", ["--fast", "--fast --dtype bf16", "--fast --dtype fp16", "--dtype int8", "--fast --dtype int8"]
)
def test_fast_translation(data, averaged, generated, tmp_path, capsys, options):
    """The same in float32, nearly the same in other precisions; with every mixer."""
    arguments = ["--pretokenized", *BEAM_SEARCH, "--output", str(tmp_path / "hyp"), *options.split()]
    translate_command.main([str(averaged), *arguments, "--input", str(data / "test.xx")])
    if "--dtype" in options:
        assert bleu(lines(tmp_path / "hyp"), generated) > FLOOR
    else:
        assert lines(tmp_path / "hyp") == generated
    tokens = sum(len(line.split()) + 1 for line in lines(tmp_path / "hyp"))
    report = re.search(
        r"61 sentences in ([\d.]+) s, ([\d.]+) sentences and ([\d.]+) tokens a second", capsys.readouterr().err
    )
    assert float(report[3]) / float(report[2]) == pytest.approx(tokens / 61, rel=0.01)


def test_tables_too_small_for_the_data_are_refused(averaged, precomputed, capsys, tmp_path):
    said = commands.fails(capsys, precompute.main, averaged, "--out", tmp_path / "fast.pt", "--max-length", 5)
    assert "a sentence of 7 tokens (its end symbol counted). Give that or more" in said


def test_alignment_does_not_depend_on_the_side_of_padding(monkeypatch, capsys, data, averaged):
    """fairseq asks for attention over the source as it padded it."""
    aligned = []
    for side in ([], ["--left-pad-source"]):  # the flag turns the default, left, off
        settings = "--cpu --required-batch-size-multiple 1 --num-workers 0 --print-alignment hard --max-len-b 8".split()
        commands.call(monkeypatch, "generate", data, "--path", averaged, *settings, *side)
        aligned.append(sorted(line for line in capsys.readouterr().out.split("\n") if line.startswith("A-")))
    assert len(aligned[0]) == 61
    assert aligned[0] == aligned[1]


def test_interactive_and_validate(monkeypatch, capsys, data, averaged, tmp_path):
    source = tmp_path / "source"
    source.write_text("a1 a2 a3\n")
    commands.call(
        monkeypatch, "interactive", data, "--path", averaged, "--cpu", "--input", source, "-s", "xx", "-t", "yy"
    )
    assert "b3 b2 b1" in capsys.readouterr().out
    commands.call(
        monkeypatch, "validate", data, "--path", averaged, "--cpu", "--required-batch-size-multiple", "1",
        "--num-workers", "0", "--batch-size", "16", "--valid-subset", "valid", "--task", "translation",
    )  # fmt: skip
