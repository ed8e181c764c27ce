"""posnet-export --ctranslate2: models that CTranslate2 translates as posnet does, and those that it cannot have."""

import importlib.util

import ctranslate2
import pytest
import torch

from posnet_fairseq import api
from posnet_fairseq.cli import export as command
from posnet_fairseq.inference import ctranslate2_export
from posnet_fairseq.text.dictionary import Vocabulary
from support.building import model_options, sentences
from support.checkpoints import checkpoint, language_model_checkpoint
from support.commands import fails
from support.searching import DICTIONARY, search, trained_model


def words(tokens):
    """Words of token ids with the end symbol behind them, without it."""
    return [DICTIONARY[token] for token in tokens.tolist()[:-1]]


@pytest.mark.parametrize(
    "options",
    [{}, {"position_embedding": "learned", "activation_fn": "gelu", "share_all_embeddings": False}],
    ids=["as they are", "learned positions, GELU, two embeddings"],
)
@pytest.mark.quick_cases(1)
def test_translations_are_those_of_posnets_search(tmp_path, options):
    model, _ = trained_model("attention", 300, **options)
    folder = tmp_path / "a folder"
    folder.mkdir()
    cfg = model_options("attention", **options)
    ctranslate2_export.check_model(cfg, "model")
    ctranslate2_export.write(model, cfg, Vocabulary("xx", "yy", DICTIONARY, DICTIONARY), folder)
    sources = sentences(*range(3, 10))
    translator = ctranslate2.Translator(str(folder))
    for beam in (1, 5):
        found = translator.translate_batch([words(each) for each in sources], beam_size=beam, max_decoding_length=15)
        expected = search([model], sources, beam=beam)
        assert [each.hypotheses[0] for each in found] == [words(best.tokens) for best, *_ in expected]


def test_the_command_writes_a_folder_beside_posnets_own_files(tmp_path):
    torch.manual_seed(3)
    path = checkpoint(tmp_path / "data" / "averaged.pt", "attention")
    command.main([str(path), "--out", str(tmp_path / "model"), "--pretokenized", "--ctranslate2"])
    translator = ctranslate2.Translator(str(tmp_path / "model" / "ctranslate2"))
    (found,) = translator.translate_batch([["w1", "w2"]], beam_size=1, max_decoding_length=5)
    (best,) = api.load(tmp_path / "model", pretokenized=True).translate("w1 w2", beam=1, max_len_b=5, nbest=1)
    assert [token for token in best.tokens if token != "</s>"] == found.hypotheses[0]


@pytest.mark.parametrize(
    ("mixer", "options", "reason"),
    [
        ("rposnet", {}, "its encoder mixer is rposnet"),
        ("attention", {"gate": "gelu"}, "its encoder mixer has the gate gelu"),
        ("attention", {"cross_mixer": "shaw"}, "its cross mixer is shaw"),
        ("attention", {"position_embedding": "none"}, "its encoder has no positions"),
        ("attention", {"activation_fn": "linear"}, "its activation is linear"),
    ],
)
def test_other_models_are_refused_with_the_reason(tmp_path, capsys, mixer, options, reason):
    path = checkpoint(tmp_path / "data" / "averaged.pt", mixer, **options)
    said = fails(capsys, command.main, path, "--out", tmp_path / "model", "--pretokenized", "--ctranslate2")
    assert f"cannot be converted, because {reason}. CTranslate2 knows" in said
    assert not (tmp_path / "model").exists()


def test_language_models_and_a_missing_package_are_refused(tmp_path, capsys, monkeypatch):
    path = language_model_checkpoint(tmp_path / "lm.pt", "attention")
    assert "is a language model" in fails(capsys, command.main, path, "--out", tmp_path / "model", "--ctranslate2")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "[bench]" in fails(capsys, command.main, path, "--out", tmp_path / "model", "--ctranslate2")
