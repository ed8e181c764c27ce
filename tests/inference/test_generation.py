"""posnet-generate and posnet.load_language_model, with models that were not trained. Trained ones: tests/end_to_end."""

import pytest
import torch

import posnet_fairseq as posnet
from posnet_fairseq.cli import generate, precompute
from posnet_fairseq.inference.model_loading import load_models
from posnet_fairseq.shared.errors import UsageError
from support.building import MAX_POSITIONS, WORDS
from support.checkpoints import language_model_checkpoint
from support.commands import fails

BEGINNINGS = ["w1 w2 w3", "", "w4", "w5 w6 w7 w8 w9 w10", " ", "w2"]
NEW = 6  # tokens that texts are continued by at most


@pytest.fixture(scope="module", params=["rposnet from <s>", "attention"])
def path(request, tmp_path_factory):
    mixer, *begins = request.param.split(" from ")
    torch.manual_seed(4)
    place = tmp_path_factory.mktemp(mixer) / "model.pt"
    return language_model_checkpoint(place, mixer, add_bos_token=bool(begins))


@pytest.fixture(scope="module")
def model(path):
    return posnet.load_language_model(path, pretokenized=True)


def greedy(path, beginning, most):
    """The text that a loop over full passes finds."""
    (model,), vocabulary, *_ = load_models([path], generates=True)
    dictionary = vocabulary.target_dictionary
    adds_bos = torch.load(path)["cfg"]["model"]["add_bos_token"]
    tokens = [dictionary.bos() if adds_bos else dictionary.eos(), *map(dictionary.index, beginning.split())]
    while len(tokens) <= most:
        scores = model(torch.tensor([tokens]))[0, -1]
        scores[dictionary.pad()] = -torch.inf
        if len(tokens) == 1:  # the fewest tokens of a text
            scores[dictionary.eos()] = -torch.inf
        tokens.append(int(scores.argmax()))
        if tokens[-1] == dictionary.eos():
            break
    return dictionary.string(tokens)


def test_greedy_texts_are_those_of_full_passes(path, model):
    found = model.generate(BEGINNINGS, max_len_a=0, max_len_b=12)
    assert found == [greedy(path, beginning, 12) for beginning in BEGINNINGS]
    assert all(text.startswith(beginning.strip()) for text, beginning in zip(found, BEGINNINGS, strict=True))


@pytest.mark.parametrize("max_tokens", [1, 30])
def test_order_and_batches(model, max_tokens):
    one_by_one = [model.generate(beginning, max_len_a=0, max_len_b=12) for beginning in BEGINNINGS]
    assert model.generate(BEGINNINGS, max_len_a=0, max_len_b=12, max_tokens=max_tokens) == one_by_one
    assert model.generate([]) == []


def test_lengths_are_relative_to_the_beginning(model):
    (text,) = model.generate(["w5 w6 w7 w8"], max_len_b=2, min_len=6, beam=3)
    assert len(text.split()) == 6
    (found,) = model.generate("w5 w6 w7 w8", max_len_b=10**6, min_len=MAX_POSITIONS - 1, nbest=1)
    assert len(found.tokens) == MAX_POSITIONS


def test_lists_and_samples(model):
    found = model.generate("w1 w2", beam=4, nbest=3, max_len_b=NEW)
    assert len({each.tokens for each in found}) == 3
    assert all(each.tokens[:2] == each.source_tokens == each.source_words == ("w1", "w2") for each in found)
    scores = [each.score for each in found]
    assert scores == sorted(scores, reverse=True)
    settings = {"sampling": True, "beam": 8, "nbest": 8, "max_len_b": NEW}
    drawn = [model.generate(["w1 w2"], seed=seed, **settings)[0] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert all(each.tokens[:2] == ("w1", "w2") for each in drawn[2])


def test_precomputed_models_write_the_same(path, model, tmp_path, capsys):
    if "attention" in path.parent.name:
        assert "has nothing to precompute" in fails(capsys, precompute.main, path, "--out", tmp_path / "fast.pt")
        return
    expected = model.generate(BEGINNINGS, beam=4, max_len_b=NEW)
    precompute.main([str(path), "--out", str(tmp_path / "fast.pt")])
    stored = torch.load(tmp_path / "fast.pt", weights_only=True)["model"]
    assert any(name.endswith(".stored") for name in stored)
    stored, fast = (
        posnet.load_language_model(tmp_path / "fast.pt", pretokenized=True),
        posnet.load_language_model(str(path), fast=True, pretokenized=True),
    )
    assert stored.generate(BEGINNINGS, beam=4, max_len_b=NEW) == expected
    assert fast.generate(BEGINNINGS, beam=4, max_len_b=NEW) == expected
    capsys.readouterr()
    says = fails(capsys, precompute.main, path, "--out", tmp_path / "x.pt", "--max-length", 9)
    assert "--max-length 9: tables of a language model are made for all that it takes" in says


def test_the_command_writes_what_python_returns(path, model, tmp_path, capsys):
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in BEGINNINGS))
    arguments = [str(path), "--pretokenized", "--cpu", "--input", str(tmp_path / "in"), "--max-len-b", str(NEW)]
    generate.main([*arguments, "--output", str(tmp_path / "out")])
    expected = model.generate(BEGINNINGS, max_len_b=NEW)
    assert (tmp_path / "out").read_text().split("\n")[:-1] == expected
    assert "6 texts in" in capsys.readouterr().err
    generate.main([*arguments, "--beam", "2", "--nbest", "2"])
    lines = capsys.readouterr().out.split("\n")[:-1]
    found = model.generate(BEGINNINGS, max_len_b=NEW, beam=2, nbest=2)
    assert [line.split(" ||| ")[:2] for line in lines] == [
        [str(number), each.text] for number, texts in enumerate(found) for each in texts
    ]


def test_refusals_of_the_command(path, tmp_path, capsys):
    (tmp_path / "long").write_text(f"w1\n{'w1 ' * MAX_POSITIONS}\n")
    says = fails(capsys, generate.main, path, "--pretokenized", "--input", tmp_path / "long")
    assert f"line 2 has {MAX_POSITIONS} tokens, and the model's texts have {MAX_POSITIONS - 1} at most" in says
    assert f"has {WORDS} entries" in fails(capsys, generate.main, path, "--pretokenized", "--beam", WORDS)


def test_refusals_of_python(path, model):
    with pytest.raises(UsageError, match="a beginning of 3 tokens is given, and"):
        model.generate("w1 w2 w3", max_len_a=0, max_len_b=2)
    with pytest.raises(UsageError, match="path 5: give the path of a checkpoint or model folder"):
        posnet.load_language_model(5)
    with pytest.raises(UsageError, match="data 5: give a path"):
        posnet.load_language_model(path, 5)
