"""preprocess, train, average, generate, score: in every system a BLEU that only word order can reach."""

import commands
import pytest
import sacrebleu
import torch
from corpus import make_corpus, translate

from posnet_fairseq.cli import average
from posnet_fairseq.cli import translate as translate_command

FLOOR = 90.0


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
    settings = "--beam 4 --max-len-a 2 --max-len-b 5".split()
    hypotheses = commands.generate(pytest.MonkeyPatch(), data, averaged, results, *settings)
    assert sorted(hypotheses) == list(range(61)), "a sentence was lost"
    return [hypotheses[i] for i in range(61)]


def test_generate_reaches_the_floor(data, generated):
    assert bleu(generated, lines(data / "test.yy")) > FLOOR


@pytest.mark.parametrize("max_tokens", [9, 2000])
def test_translate_equals_generate(data, averaged, generated, tmp_path, max_tokens):
    out = tmp_path / "test.hyp"
    arguments = f"--pretokenized --beam 4 --max-len-a 2 --max-len-b 5 --max-tokens {max_tokens} --output {out}".split()
    translate_command.main([str(averaged), *arguments, "--input", str(data / "test.xx")])
    assert lines(out) == generated


def test_alignment_does_not_depend_on_the_side_of_padding(monkeypatch, capsys, data, averaged):
    """fairseq asks for attention over the source as it padded it."""
    aligned = []
    for side in ([], ["--left-pad-source"]):  # the flag turns the default, left, off
        settings = "--cpu --required-batch-size-multiple 1 --num-workers 0 --print-alignment hard --max-len-b 8".split()
        commands.call(monkeypatch, "generate", data, "--path", averaged, *settings, *side)
        aligned.append(sorted(line for line in capsys.readouterr().out.split("\n") if line.startswith("A-")))
    assert len(aligned[0]) == 61
    assert aligned[0] == aligned[1]


@pytest.mark.parametrize("count", [1, 7, 8, 1685])
def test_no_sentence_is_lost(averaged, tmp_path, count):
    if count > 100 and "rposnet" not in str(averaged):
        pytest.skip("the large set is translated by one system")
    make_corpus(tmp_path, train=0, valid=0, test=count)
    out = tmp_path / "out"
    arguments = f"--pretokenized --beam 1 --max-len-b 8 --input {tmp_path / 'test.xx'} --output {out}".split()
    translate_command.main([str(averaged), *arguments])
    assert len(lines(out)) == count
    assert all(lines(out))


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


def test_average_is_the_mean_and_holds_no_optimizer(trained, averaged):
    state = torch.load(averaged, weights_only=True)
    assert state["last_optimizer_state"] is None
    parts = [torch.load(path, weights_only=True)["model"] for path in state["extra_state"]["averaged"]]
    assert len(parts) == 3
    for name, tensor in state["model"].items():
        mean = sum(part[name].double() for part in parts) / 3
        torch.testing.assert_close(tensor, mean.to(tensor.dtype))
