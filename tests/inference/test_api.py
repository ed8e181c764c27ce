"""The Python API, with models that were not trained. That it translates as posnet-translate: tests/end_to_end."""

import dataclasses
import json
import re
from typing import get_type_hints

import pytest
import torch
from subword_nmt.learn_bpe import learn_bpe

from posnet_fairseq import api
from posnet_fairseq.cli import export, translate
from posnet_fairseq.generation import load_language_model
from posnet_fairseq.inference.model_folder import files_of_data
from posnet_fairseq.inference.options import LoadOptions, TranslationLoadArguments
from posnet_fairseq.inference.search.search_settings import SearchArguments, SearchSettings
from posnet_fairseq.shared.errors import UsageError
from support import documents
from support.checkpoints import checkpoint, language_model_checkpoint


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A checkpoint whose data has a card."""
    folder = tmp_path_factory.mktemp("data")
    words = {language: {"tokenizer": "none"} for language in ("xx", "yy")}
    card = {"source_lang": "xx", "target_lang": "yy", "words": words, "bpe_codes": "codes.bpe"}
    (folder / "dataset.json").write_text(json.dumps(card))
    with open(folder / "codes.bpe", "w") as file:
        learn_bpe(["w1 w2 w3 w10 w11 w12"] * 5, file, 10)
    averaged = checkpoint(folder / "averaged.pt", "rposnet")
    known = (folder / "dict.yy.txt").read_text()
    for number, piece in enumerate(("E@@", "i@@", "n@@", "e"), 30):  # of docs/python-api.md
        known = known.replace(f"w{number} ", f"{piece} ")
    for language in words:
        (folder / f"dict.{language}.txt").write_text(known)
    return averaged


@pytest.fixture(scope="module")
def model(path):
    return api.load(path)


def test_printing_says_what_it_is(model, path, tmp_path):
    assert repr(model) == "TranslationModel(rposnet_tiny, xx-yy, float32 on cpu, beam 12)"
    ensemble = repr(api.load([path, path], dtype="bf16"))
    assert ensemble == "TranslationModel(rposnet_tiny + rposnet_tiny, xx-yy, bf16 on cpu, beam 12)"
    of_texts = language_model_checkpoint(tmp_path / "lm.pt", "rposnet")
    found = repr(load_language_model(of_texts, pretokenized=True))
    assert re.fullmatch(r"TextModel\(gpt_\w+, float32 on cpu, beam 1\)", found), found


def test_a_card_written_by_hand_names_files_that_are_read(path):
    assert path.parent / "codes.bpe" in files_of_data(path.parent)


def test_sentences_of_a_line(model):
    sentences = ["W1 w2 w3.", "W10 w11!", "W12."]
    first, second, third = model.translate(sentences)
    assert model.translate("W1 w2 w3.  W10 w11! W12.", split_sentences=True) == f"{first}  {second} {third}"
    assert model.translate(["", "W1 w2 w3. W12."], split_sentences=True) == ["", f"{first} {third}"]
    with pytest.raises(UsageError, match=r"^split_sentences with nbest: a line has several translations"):
        model.translate("A. B.", split_sentences=True, nbest=1)
    with pytest.raises(UsageError, match=r"^line 2 has .* tokens"):
        model.translate(["w1", "W1 w2 w3. " + "w1 " * 300], split_sentences=True)


def test_text_in_and_text_out(model):
    lines = ["w1 w2 w3", "", "w10", " \t", "w11 w12"]
    found = model.translate(lines, beam=2, max_len_b=9)
    assert [bool(text) for text in found] == [True, False, True, False, True]
    assert "@@" not in "".join(found)
    assert model.translate(lines[0], beam=2, max_len_b=9) == found[0]
    assert model.translate(tuple(lines), beam=2, max_len_b=9, max_tokens=1) == found
    assert model.translate([]) == []
    assert model.translate("") == ""


def test_translations(model):
    lines = ["w1 w2 w3 w10", "w1", ""]
    texts = model.translate(lines, beam=4, max_len_b=9)
    found = model.translate(lines, beam=4, max_len_b=9, nbest=3, attention=True)
    assert [best.text for best, *_ in found] == texts
    assert found[2] == [api.Translation("", 0.0, (), ())]
    for line, translations in zip(lines[:2], found, strict=False):
        assert len(translations) == 3
        scores = [each.score for each in translations]
        assert scores == sorted(scores, reverse=True)
        for each in translations:
            assert each.tokens[-1] == each.source_tokens[-1] == "</s>"
            assert "".join(each.source_tokens[:-1]).replace("@@", "") == line.replace(" ", "")
            assert each.attention.shape == (len(each.tokens), len(each.source_tokens))
            assert each.attention.sum(dim=1).tolist() == pytest.approx([1] * len(each.tokens), abs=1e-5)
    (one,) = model.translate(lines[0], beam=4, max_len_b=9, nbest=1)
    assert (one.text, one.tokens, one.attention) == (found[0][0].text, found[0][0].tokens, None)
    assert one.score == pytest.approx(found[0][0].score, abs=1e-5)


def test_a_translation_begins_as_it_must(model):
    lines, prefixes = ["w1 w2 w3 w10", "w1", "w11 w12"], ["w12 w10", "", "w1"]
    free = model.translate(lines, beam=2, max_len_b=9)
    found = model.translate(lines, beam=2, max_len_b=9, prefix=prefixes)
    assert [text.split()[: len(prefix.split())] for text, prefix in zip(found, prefixes, strict=True)] == [
        prefix.split() for prefix in prefixes
    ]
    assert (found[0] != free[0], found[1] == free[1]) == (True, True)
    assert model.translate(lines[0], beam=2, max_len_b=9, prefix=prefixes[0]) == found[0]
    of_all = model.translate(lines, beam=2, max_len_b=9, prefix="w12")
    assert of_all == model.translate(lines, beam=2, max_len_b=9, prefix=["w12"] * 3)


def test_settings_are_arguments():
    """The types that mypy is told of are those of the settings."""
    for settings, arguments in ((SearchSettings, SearchArguments), (LoadOptions, TranslationLoadArguments)):
        types = {setting.name: setting.type for setting in dataclasses.fields(settings)}
        told = get_type_hints(arguments, localns={"torch": torch})
        assert types | {"device": None, "data": None} == told | {"device": None, "data": None}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"on_long": "cut"}, "on_long cut: choose one of error, truncate, skip"),
        ({"nbest": 5, "beam": 4}, "nbest 5: give 1 or more, and at most 4"),
        ({"sampling": 1}, "sampling 1: give True or False"),
        ({"sampling_topk": 3}, "sampling_topk 3: beam search does not read it. Give sampling too"),
        ({"min_len": 9, "max_len_b": 8}, r"min_len 9: the translations of this batch end .* \(max_len_a, max_len_b\)"),
        ({"prefix": ["w1", "w2"]}, "prefix: 2 given for 1 line. Give one for each"),
        ({"prefix": "w1 ☃ w2 ☃ ♥"}, "prefix: line 1 has ☃ ♥, which the model's vocabulary lacks"),
        ({"attention": True}, "attention is returned with translations: give nbest too"),
        ({"lines": ["w1", 2]}, "line 2 is 2, not text"),
        ({"lines": ["w1", "w2 \ud83d"]}, r"line 2 has half of a surrogate pair, '\\ud83d'"),
        ({"settings": {"beam": 2}}, "translate has no argument settings, it has nbest"),
        ({"on_lang": "skip"}, r"translate has no argument on_lang, it has nbest, .* seed\. Did you mean on_long\?"),
        ({"lines": "w1 " * 24}, r"line 1 has .* choose on_long='truncate' or on_long='skip'"),
    ],
)
def test_errors_of_translating_are_one_sentence(model, arguments, sentence):
    with pytest.raises(UsageError, match=f"^{sentence}") as error:
        model.translate(**{"lines": "w1"} | arguments)
    assert "--" not in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"paths": "none.pt"}, "none.pt: there is no such checkpoint"),
        ({"paths": []}, r"paths \[\]: give the path of a model"),
        ({"paths": ""}, "paths '': give the path of a model"),
        ({"data": "none"}, r"none \(data\): there is no such directory from here. Give the directory .* by data"),
        ({"dtype": "fp8"}, "dtype fp8: choose one of float32, bf16, fp16, int8"),
        ({"device": "meta"}, "device meta: it computes nothing. Give cpu, or cuda with a GPU."),
        ({"device": torch.device("meta")}, "device meta: it computes nothing"),
        ({"paths": "x" * 300}, "x{300}: File name too long. Check the path."),
        ({"data": "x" * 300}, "x{300}: File name too long. Check the path."),
        ({"device": "nonsense"}, "device nonsense cannot be used: posnet knows no such device. Give cpu, or cuda"),
        ({"device": None}, "device None cannot be used: posnet knows no such device"),
        ({"dtype": ["int8"]}, r"dtype \['int8'\]: give a name"),
        ({"pretokenized": "no"}, "pretokenized 'no': give True or False"),
        ({"bpe_codes": 5}, "bpe_codes 5: give a path"),
        ({"data": ""}, "data '': give a path"),
        ({"pretokenized": True, "bpe_codes": "x"}, "bpe_codes and sentencepiece_model and pretokenized split text in"),
        ({"options": {}}, "load has no argument options, it has device"),
        ({"devise": "cpu"}, r"load has no argument devise, it has device, .* onnx\. Did you mean device\?"),
        ({"paths": __file__}, r".* is a text, not a checkpoint\. Text to translate is given by translate\."),
    ],
)
def test_errors_of_loading_are_one_sentence(path, arguments, sentence):
    with pytest.raises(UsageError, match=f"^{sentence}") as error:
        api.load(**{"paths": path} | arguments)
    assert "--" not in str(error.value)


def test_long_lines(model):
    lines = ["w1 " * 40, "w1"]
    assert model.translate(lines, beam=1, max_len_b=3, on_long="skip")[0] == ""
    ((cut,), _) = model.translate(lines, beam=1, max_len_b=3, on_long="truncate", nbest=1)
    assert len(cut.source_tokens) == 24


def test_documented_examples(path, monkeypatch, capsys):
    """The blocks of docs/python-api.md, one after the other as a reader types them."""
    monkeypatch.chdir(path.parent)
    export.main(["averaged.pt", "--out", "model"])
    (path.parent / "data-bin").mkdir()
    (path.parent / "data-bin/my-corpus").symlink_to(path.parent)
    language_model_checkpoint(path.parent / "lm/checkpoint_best.pt", "rposnet")
    (path.parent / "lm/codes.bpe").write_bytes((path.parent / "codes.bpe").read_bytes())
    (path.parent / "lm/dataset.json").write_text('{"bpe_codes": "codes.bpe"}')
    text = (documents.ROOT / "docs/python-api.md").read_text()
    blocks = [(line, code) for line, language, code in documents.blocks(text) if language == "python"]
    assert blocks
    names = {}
    for line, code in blocks:
        exec(compile("\n" * (line - 1) + code, "docs/python-api.md", "exec"), names)
    assert capsys.readouterr().out


def test_spaces_around_a_line_stand_around_its_translation(model, path, tmp_path, capsys):
    """Whatever the data do with spaces: the model reads none of these."""
    spaces, search = [("  ", ""), ("", " "), ("\t", "\u00a0\u3000"), ("", "")], {"beam": 2, "max_len_b": 9}
    lines = [f"{before}\ufeffw1 w2{after}\u200b" for before, after in spaces]  # invisible characters are dropped
    plain = model.translate("w1 w2", nbest=2, **search)
    for (before, after), found in zip(spaces, model.translate(lines, nbest=2, **search), strict=True):
        expected = [dataclasses.replace(each, text=f"{before}{each.text}{after}") for each in plain]
        assert found == expected
    assert model.translate(" \u00a0") == ""
    known = model.translate("w1 w2", prefix="w3", **search)
    assert model.translate(" w1 w2", prefix=" w3 ", **search) == f" {known}"
    for given in ("w3", " w3\u00a0"):
        scored = model.score(" w1 w2", given)
        assert (scored.text, scored.score) == (given, model.score("w1 w2", "w3").score)
    # The same by the command, in every way.
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in lines), newline="")
    options = [str(path), "--beam", "2", "--max-len-b", "9", "--input", str(tmp_path / "in")]
    expected = [f"{before}{plain[0].text}{after}" for before, after in spaces]
    for more in ([], ["--processes", "2", "--max-tokens", "9"], ["--stream"], ["--json"]):
        translate.main([*options, *more])
        found = capsys.readouterr().out.split("\n")[:-1]
        assert [json.loads(line)["text"] if "--json" in more else line for line in found] == expected


def test_unknown_parts_of_sources_are_noted(path, tmp_path, capsys):
    """Also of a text that another dictionary or other subwords would fit."""
    (tmp_path / "in").write_text("w1 w2\nПривет\n\nw1 </s> w2\n")
    translate.main([str(path), "--beam", "1", "--max-len-b", "3", "--input", str(tmp_path / "in")])
    note = "posnet-translate: lines 2, 4: the model's vocabulary lacks a part, which becomes <unk>"
    assert note in capsys.readouterr().err.split("\n")
    found = api.load(path, pretokenized=True).translate("w1 </s> w2", nbest=1, beam=1, max_len_b=3)
    assert found[0].source_tokens == ("w1", "<unk>", "w2", "</s>")
