"""The Python API, with models that were not trained. That it translates as posnet-translate: tests/end_to_end."""

import dataclasses
import json
import math
import re
import threading
from concurrent.futures import ThreadPoolExecutor
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
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
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


@pytest.mark.parametrize("options", [{}, {"fast": True}, {"dtype": "bf16"}, {"dtype": "int8"}], ids=str)
@pytest.mark.parametrize("mixers", [{}, {"cross_mixer": "rposnet", "length_ratio": "1.25"}, {"mixer": "shaw"}], ids=str)
def test_weights_are_those_of_the_search(tmp_path, monkeypatch, options, mixers):
    """Of every step, layer and head; the translation is found, or given."""
    seen, step = {}, TokenMixer.step

    def watched(self, query, state, positions=None, rows=None, need_weights=False):
        mixed, weights = step(self, query, state, positions, rows, need_weights=True)
        seen.setdefault(self, []).append(weights[0, :, 0].float())
        return (mixed, weights) if need_weights else mixed

    averaged = checkpoint(tmp_path / "model.pt", **{"mixer": "rposnet", **mixers})
    model = api.load(averaged, pretokenized=True, **options)
    model.recorded_search.update(beam=1, max_len_b=9)
    monkeypatch.setattr(TokenMixer, "step", watched)
    (best,) = model.translate("w1 w2 w30", nbest=1, attention=True)
    monkeypatch.undo()
    own = model.weights("w1 w2 w30")
    given = model.weights("w1 w2 w30", best.text)
    assert list(own) == [f"{place}.{layer}" for place in ("encoder", "decoder", "cross") for layer in (1, 2)]
    tolerance = {"atol": 1e-5 if options.get("dtype") is None else 0.02, "rtol": 0}
    for name, mixing in own.items():
        assert (mixing.queries, mixing.keys) == (given[name].queries, given[name].keys)
        assert torch.equal(mixing.weights, given[name].weights)
        assert mixing.weights.dtype == torch.float32
        if mixing.place != "encoder":
            part = "cross_attn" if mixing.place == "cross" else "self_attn"
            rows = seen[getattr(model._models[0].decoder.layers[mixing.layer - 1], part)]
            assert len(rows) == len(best.tokens)
            for n, row in enumerate(rows):
                torch.testing.assert_close(mixing.weights[:, n, : row.size(1)], row, **tolerance)
    assert own["cross.1"].queries == list(best.tokens) == [*own["decoder.1"].keys[1:], best.tokens[-1]]
    assert own["cross.1"].keys == own["encoder.2"].queries == list(best.source_tokens)
    torch.testing.assert_close(own["cross.2"].weights.mean(dim=0), best.attention.float(), **tolerance)


def test_weights_while_another_thread_translates(tmp_path):
    model = api.load(checkpoint(tmp_path / "model.pt", "shaw"), pretokenized=True)
    alone = model.weights("w1 w2", "w3")
    with ThreadPoolExecutor(1) as pool:

        def others(*_):
            if threading.current_thread() is threading.main_thread():
                pool.submit(model.translate, "w7 w8 w9", max_len_b=3).result()

        for layer in model._models[0].decoder.layers:
            layer.cross_attn.register_forward_pre_hook(others)
            layer.self_attn.register_forward_pre_hook(others)
        found = model.weights("w1 w2", "w3")
    for name, mixing in alone.items():
        assert torch.equal(mixing.weights, found[name].weights)
        assert torch.equal(mixing.energies.nan_to_num(9), found[name].energies.nan_to_num(9))


def test_weights_of_a_language_model(tmp_path):
    model = load_language_model(language_model_checkpoint(tmp_path / "lm.pt", "shaw"), pretokenized=True)
    found = model.weights("w3 w4")
    assert list(found) == ["decoder.1", "decoder.2"]
    assert found["decoder.2"].keys == ["</s>", "w3", "w4"]
    torch.testing.assert_close(found["decoder.2"].weights.sum(dim=2), torch.ones(4, 3))
    with pytest.raises(UsageError, match=r"^text has 1 token \(its end symbol counted\)\. Give text with words in it"):
        model.weights(" ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([["w1"]], r"^source is \['w1'\], not text: give a str\."),
        (["w1", 5], r"^target is 5, not text: give a str\."),
        (["w1", "\ud800"], r"^target 1 has half of a surrogate pair"),
        (["", "w1"], r"^source has 1 token \(its end symbol counted\)\. Give text with words in it, and 24 tokens"),
        (["w1", "w1 " * 300], r"^target has 301 tokens"),
    ],
)
def test_weights_of_no_pair_of_texts(path, arguments, says):
    model = api.load(path, pretokenized=True)
    with pytest.raises(UsageError, match=says):
        model.weights(*arguments)
    with pytest.raises(UsageError, match=r"^weights are those of one model"):
        api.load([path, path]).weights("w1")


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


def test_a_translation_contains_the_terms_of_its_line(model):
    lines, search = ["w1 w2 w3 w10", "", "w1", "w11 w12 w11"], {"beam": 3, "max_len_b": 9}
    terms = {"w2 w3": "w12", "w11": "Eine", "w2": "w10", "w9": "w1"}
    free = model.translate(lines, **search)
    found = model.translate(lines, terms=terms, nbest=3, **search)
    assert ["w12" in one.text.split() for one in found[0]] == [True] * len(found[0])
    assert [one.text.split().count("Eine") for one in found[3]] == [2] * len(found[3])
    assert {one.unmet for several in found for one in several} == {()}
    assert (found[1][0].text, found[2][0].text) == (free[1], free[2])
    assert model.translate(lines, terms={"w9": "w1"}, **search) == free
    assert model.translate(lines, nbest=1, **search)[0][0].unmet is None
    wanted = [["w12"], [], [], ["Eine", "Eine"]]
    assert model.translate(lines, constraints=wanted, nbest=3, **search) == found
    assert model.translate(lines[0], constraints=["w12"], **search) == found[0][0].text
    (short,) = model.translate(lines[3], terms=terms, nbest=1, beam=3, max_len_b=5)  # 4 subwords each
    assert short.unmet == ("Eine",)
    assert short.to_dict()["unmet"] == ("Eine",)
    begun = model.translate(lines, terms=terms, prefix="w1 Eine", **search)
    assert begun[0].startswith("w1 Eine ")
    assert "w12" in begun[0].split()
    sentences = model.translate("W2. W1 w2 w3. W11 w11.", terms=terms, split_sentences=True, **search)
    assert {"w12", "Eine"} <= set(sentences.split())
    assert sentences.split().count("w12") >= 1
    across = model.translate("W2 W9. W11 w11.", terms={"W9. W11": "w12"}, split_sentences=True, **search)
    assert "w12" in across.split()


def test_a_line_without_a_token_is_blank(model, monkeypatch):
    """As "▁" is with sentencepiece's own tokenizer."""
    monkeypatch.setattr(model._pipeline, "encode", lambda line: line.replace("▁", ""))
    assert model.translate(["w1", "▁", ""])[1:] == ["", ""]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            {"terms": {"w1": "☃ w1"}},
            "the model's vocabulary lacks a part of '☃ w1', which translations must contain. L",
        ),
        ({"terms": {"w1": "\ud83d"}}, "terms has half of a surrogate pair, .*, which UTF-8 does not have"),
        ({"terms": ["w1"]}, r"terms \['w1'\]: give a dict with a target term, a str, for each source term"),
        ({"terms": {"w1": "w2"}, "constraints": ["w3"]}, "terms with constraints: both say what a translation must"),
        ({"terms": {"w1": "w2"}, "sampling": True}, "terms with sampling: samples are drawn without looking for"),
        ({"constraints": ["w1"], "no_repeat_ngram_size": 2}, "constraints with no_repeat_ngram_size: terms may need"),
        ({"constraints": "w1"}, "constraints 'w1': give a list of texts for a line, and for several lines a list of"),
        ({"constraints": [2]}, "constraint 1 is 2, not text"),
        ({"constraints": [["w1"]]}, r"constraint 1 is \['w1'\], not text"),
        ({"lines": ["w1", "w2"], "constraints": [["w1"]]}, "constraints: 1 list for 2 lines. Give one for each"),
        ({"lines": ["w1"], "constraints": ["w1"]}, r"constraints \['w1'\]: give a list of texts for a line"),
        ({"constraints": ["w1"], "split_sentences": True}, "split_sentences with constraints: a line has several"),
    ],
)
def test_errors_of_terms_are_one_sentence(model, arguments, sentence):
    with pytest.raises(UsageError, match=f"^{sentence}"):
        model.translate(**{"lines": "w1 w2", **arguments})


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
    ((skipped,), (other,), (blank,)) = model.translate([*lines, ""], beam=1, max_len_b=3, on_long="skip", nbest=1)
    assert (math.isnan(skipped.score), other.score < 0, blank.score) == (True, True, 0)
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
