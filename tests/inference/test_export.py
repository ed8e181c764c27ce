"""posnet-export: a model folder, which translates as its checkpoint does; and its graphs in onnxruntime."""

import itertools
import json
import os
import random
import shutil
import stat

import onnx
import pytest
import torch
from safetensors.torch import load_file
from subword_nmt.learn_bpe import learn_bpe

from posnet_fairseq import api
from posnet_fairseq.cli import export as command
from posnet_fairseq.cli import translate
from posnet_fairseq.inference import exporting, onnx_export
from posnet_fairseq.inference.checkpoints import read_checkpoint
from posnet_fairseq.inference.model_folder import read_model, write_config
from posnet_fairseq.inference.model_loading import build_model, load_models
from posnet_fairseq.inference.onnx_model import OnnxModel
from posnet_fairseq.inference.search.beam import BeamSearch
from posnet_fairseq.inference.search.search_settings import SearchSettings
from posnet_fairseq.inference.stored_energies import precompute
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text import synthetic
from support.building import MAX_POSITIONS, WORDS, pad, sentences
from support.building import build_language_model as fairseq_language_model
from support.building import build_model as fairseq_model
from support.checkpoints import checkpoint, language_model_checkpoint, precomputed
from support.commands import fails
from support.searching import assert_same
from support.tiny_models import sentencepiece_model

LINES = ["w1 w2 w3", "", "w10 w11", "w12"]
SEARCH = {"beam": 3, "max_len_b": 9}


@pytest.fixture
def data(tmp_path):
    """A folder of data with a card that names BPE codes, one file for both languages."""
    folder = tmp_path / "data"
    folder.mkdir()
    with open(folder / "codes.bpe", "w") as file:
        learn_bpe(["w1 w2 w3 w10 w11 w12"] * 5, file, 10)
    write_card(folder, bpe_codes="codes.bpe")
    return folder


def write_card(folder, **entries):
    card = {
        "dataset": "toy",
        "sentences": {"train": 1234},
        "archives": {"toy.tar": {"digest": "sha256:0", "licence": "CC-BY-4.0"}},
        "source_lang": "xx",
        "target_lang": "yy",
        "words": {language: {"tokenizer": "moses", "lowercase": language == "xx"} for language in ("xx", "yy")},
    }
    (folder / "dataset.json").write_text(json.dumps(card | entries))


def exported(path, *arguments, name="model"):
    """The folder of a checkpoint, whose data are taken away."""
    folder = path.parents[1] / name
    command.main([str(path), "--out", str(folder), *map(str, arguments)])
    return folder


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_folder_translates_without_the_data(data):
    path = checkpoint(data / "averaged.pt", "rposnet", cross_mixer="arposnet", length_ratio="1.25")
    expected = api.load(path).translate(LINES, **SEARCH, nbest=2)
    folder = exported(path)
    shutil.rmtree(data)
    rest = ["codes.bpe", "config.json", "dataset.json", "dict.xx.txt", "dict.yy.txt", "model.safetensors"]
    assert names(folder) == ["README.md", *rest]
    found = api.load(folder).translate(LINES, **SEARCH, nbest=2)
    for ours, theirs in zip(itertools.chain(*found), itertools.chain(*expected), strict=True):
        assert (ours.text, ours.tokens) == (theirs.text, theirs.tokens)
        assert ours.score == pytest.approx(theirs.score, abs=1e-5)


@pytest.mark.parametrize("options", [{}, {"share_all_embeddings": False, "share_decoder_input_output_embed": True}])
@torch.no_grad()
def test_shared_weights_are_stored_once(data, options):
    path = checkpoint(data / "averaged.pt", "attention", **options)
    folder = exported(path)
    stored = load_file(folder / "model.safetensors")
    assert "decoder.output_projection.weight" not in stored
    assert ("decoder.embed_tokens.weight" in stored) == bool(options)
    sources, targets = pad(sentences(5, 9)), pad(sentences(7, 3))
    ours, theirs = build_model(read_model(folder)), build_model(read_checkpoint(path))
    assert torch.equal(ours(sources, targets), theirs(sources, targets))
    assert ours.decoder.output_projection.weight is ours.decoder.embed_tokens.weight


def test_ensembles_of_folders_and_checkpoints(data):
    one, other = (checkpoint(data / f"{mixer}.pt", mixer) for mixer in ("rposnet", "attention"))
    expected = api.load([one, other]).translate(LINES, **SEARCH)
    first, second = exported(one), exported(other, name="other")
    assert api.load([first, second]).translate(LINES, **SEARCH) == expected
    assert api.load([first, other]).translate(LINES, **SEARCH) == expected
    assert api.load([one, second]).translate(LINES, **SEARCH) == expected
    lines = (second / "dict.yy.txt").read_text().splitlines()
    (second / "dict.yy.txt").write_text("\n".join(reversed(lines)) + "\n")
    write_config(second, json.loads((second / "config.json").read_text()))
    with pytest.raises(UsageError, match=r"was trained with the dictionary .*other/dict\.yy\.txt, which differs"):
        api.load([first, second])


def test_data_that_are_given_win(data, tmp_path):
    path = checkpoint(data / "averaged.pt", "rposnet")
    folder = exported(path, "--pretokenized")
    assert "dataset.json" not in names(folder)
    with pytest.raises(UsageError, match=r"model has no dataset\.json, which says how its text was split"):
        api.load(folder)
    assert api.load(folder, data=data).translate(LINES, **SEARCH) == api.load(path).translate(LINES, **SEARCH)
    (best,) = api.load(folder, pretokenized=True).translate("w1 x", nbest=1, **SEARCH)
    assert best.source_tokens == ("w1", "<unk>", "</s>")


@pytest.mark.parametrize("given", ["codes of each language", "a model of both", "--bpe-codes", "--sentencepiece-model"])
def test_subwords(data, tmp_path, given):
    pieces = data / "p.model"
    pieces.write_bytes(sentencepiece_model())
    arguments = []
    if given == "codes of each language":
        (data / "codes.xx").write_bytes((data / "codes.bpe").read_bytes())
        (data / "codes.yy").write_text("#version: 0.2\nw 1</w>\n")
        write_card(data, bpe_codes={"xx": "codes.xx", "yy": "codes.yy"})
    elif given == "a model of both":
        write_card(data, sentencepiece_model="p.model")
    else:
        arguments = [given, str({"--bpe-codes": data / "codes.bpe"}.get(given, pieces))]
        if given == "--sentencepiece-model":  # the card would tell of other subwords
            (data / "dataset.json").unlink()
    path = checkpoint(data / "averaged.pt", "rposnet")
    text = {arguments[0][2:].replace("-", "_"): arguments[1]} if arguments else {}
    before = api.load(path, **text).translate("W1 w2-w3", nbest=1, **SEARCH)
    folder = exported(path, *arguments)
    shutil.rmtree(data)
    (after,) = api.load(folder).translate("W1 w2-w3", nbest=1, **SEARCH)
    assert (after.source_tokens, after.text) == (before[0].source_tokens, before[0].text)
    kept = {"codes of each language": ["codes.xx.bpe", "codes.yy.bpe"], "--bpe-codes": ["codes.bpe"]}
    assert set(kept.get(given, ["sentencepiece.model"])) < set(names(folder))


def test_the_readme_has_the_number_of_parameters(data):
    path = checkpoint(data / "averaged.pt", "shaw", cross_mixer="rposnet", length_ratio="1.25")
    model = build_model(read_checkpoint(precomputed(path)))
    text = (exported(path) / "README.md").read_text()
    assert f"{sum(parameter.numel() for parameter in model.parameters()):,}, float32" in text


def test_energies_are_stored_unless_they_are_large(data, capsys):
    path = checkpoint(data / "averaged.pt", "rposnet", clip_distance=4)
    stored = load_file(exported(path) / "model.safetensors")
    assert stored["encoder.layers.0.self_attn.energies.0.stored"].shape == (4, MAX_POSITIONS, 9)
    assert "stored as tables, so the model cannot be trained" in (data.parent / "model/README.md").read_text()
    large = checkpoint(data / "large.pt", "aposnet", max_source_positions=100, max_target_positions=100)
    capsys.readouterr()
    stored = load_file(exported(large, name="large") / "model.safetensors")
    assert not [name for name in stored if name.endswith(".stored")]
    assert "Energies are not stored: tables for its longest sentences would make it" in capsys.readouterr().out
    stored = load_file(exported(precomputed(large, "--max-length", 9), name="short") / "model.safetensors")
    assert stored["encoder.layers.0.self_attn.energies.0.stored"].shape == (4, 9, 9)


def test_a_folder_can_be_exported_again(data):
    folder = exported(checkpoint(data / "averaged.pt", "rposnet", clip_distance=4))
    again = folder.parent / "again"
    command.main([str(folder), "--out", str(again)])
    assert names(again) == names(folder)
    for name in set(names(folder)) - {"README.md"}:
        assert (again / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.parametrize("mixer", ["attention", "rposnet"])
@torch.no_grad()
def test_language_models(tmp_path, mixer):
    model = fairseq_language_model(mixer)
    path = language_model_checkpoint(tmp_path / "data/model.pt", mixer, model)
    folder = exported(path, "--pretokenized")
    shutil.rmtree(tmp_path / "data")
    assert names(folder) == ["README.md", "config.json", "dict.txt", "model.safetensors"]
    (loaded,), vocabulary, place, _ = load_models([folder], generates=True)
    tokens = pad(sentences(9, 4, 1))
    torch.testing.assert_close(loaded(tokens), model(tokens)[0], rtol=1e-5, atol=1e-5)
    assert (len(vocabulary.target_dictionary), place) == (40, folder)
    with pytest.raises(UsageError, match=f"model: a checkpoint of gpt_a_{mixer} was given, a language model"):
        api.load(folder)
    with pytest.raises(UsageError, match="rposnet_tiny was given, a translation model"):
        load_models([checkpoint(tmp_path / "data/other.pt", "rposnet")], generates=True)


def test_the_readme_says_what_is_known_and_no_more(data):
    path = checkpoint(data / "averaged.pt", "rposnet")
    text = (exported(path) / "README.md").read_text()
    for part in ("rposnet_tiny, xx-yy", "toy, 1,234 sentences", "CC-BY-4.0", "posnet-translate model --input text.xx"):
        assert part in text
    assert "Scores" not in text
    record = {"settings": {"--beam": "12", "--lenpen": "1"}, "attempts": [], "finished": True}
    for stage in ("translate", "score"):
        (data / f"{stage}.json").write_text(json.dumps(record))
    metric = {"name": "bleu", "label": "BLEU", "signature": "nrefs:1|case:mixed"}
    report = {"test_sets": [{"size": 1216, "metrics": [metric], "scores": {"run": {"bleu": {"value": 25.917}}}}]}
    (data / "report").mkdir()
    (data / "report/report.json").write_text(json.dumps(report))
    text = (exported(path, name="scored") / "README.md").read_text()
    assert "Test set of the data, 1,216 sentences; beam 12, lenpen 1." in text
    assert "- BLEU 25.92 (`nrefs:1|case:mixed`)" in text
    (data / "score.json").write_text(json.dumps(record | {"finished": False}))
    assert "Scores" not in (exported(path, name="unscored") / "README.md").read_text()


def test_a_folder_is_written_whole_or_not_at_all(data, capsys, monkeypatch):
    path = checkpoint(data / "averaged.pt", "rposnet")

    def fails_late(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exporting, "write_model", fails_late)
    line = fails(capsys, command.main, path, "--out", data.parent / "model")
    assert "cannot write" in line
    assert "the disk is full" in line
    assert names(data.parent) == ["data"]


@pytest.mark.parametrize(
    "options",
    [
        {"mixer": "aposnet", "cross_mixer": "arposnet", "length_ratio": "1.25"},
        {
            "mixer": "attention",
            "encoder_self_mixer": "lightconv,attention",
            "decoder_self_mixer": "lightconv,gated_deltanet",
            "lightconv_global_context": True,
            "position_embedding": "none",
        },
        {
            "mixer": "attention",
            "decoder_self_mixer": "linear_attention,rposnet",
            "cross_mixer": "rposnet,attention",
            "length_ratio": "1.25",
        },
        {"mixer": "attention", "decoder_self_mixer": "retention,ssru"},
    ],
    ids=lambda options: options.get("decoder_self_mixer", options["mixer"]),
)
@torch.no_grad()
@pytest.mark.thorough  # 11 s each: traces a model
def test_graphs_translate_as_the_model(tmp_path, options):
    model = fairseq_model(**options)
    precompute(model)
    onnx_export.write_graphs(model, tmp_path)
    graphs = OnnxModel(tmp_path)
    for lengths in ((5, 9, 1), (MAX_POSITIONS,), (2, 2)):
        sources = sentences(*lengths)
        for settings in (SearchSettings(beam=1), SearchSettings(beam=3, max_len_b=9), SearchSettings(sampling=True)):
            expected, found = (
                BeamSearch([each], synthetic.dictionary(WORDS), settings, settings.beam)(sources)
                for each in (model, graphs)
            )
            assert_same(found, expected)


@pytest.mark.thorough  # 20 s: traces a model twice
def test_graphs_in_the_folder(data, capsys):
    path = checkpoint(
        data / "averaged.pt", "rposnet", clip_distance=4, words=1000
    )  # small ones are transposed beforehand
    mask = os.umask(0o027)
    try:
        folder = exported(path, "--onnx")
    finally:
        os.umask(mask)
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o640}
    assert "8 random sentences are translated the same by onnxruntime" in capsys.readouterr().out
    damage_graphs(folder)
    graphs = [f"{part}{end}.onnx" for part in ("encoder", "step") for end in ("", ".int8")]
    assert {*graphs, "graphs.json", "model.safetensors"} < set(names(folder))
    step = onnx.load(folder / "step.int8.onnx").graph
    shapes = {weight.name: list(weight.dims) for weight in step.initializer}
    products = [shapes.get(node.input[1]) for node in step.node if node.op_type == "MatMulInteger"]
    assert [16, 1000] in products, "the output projection is no product with an 8-bit weight as it is stored"
    model, graphs = api.load(folder), api.load(folder, onnx=True)
    assert model.translate(LINES, **SEARCH) == api.load(path).translate(LINES, **SEARCH)
    random.seed(1)
    lines = [" ".join(random.choices("w1 w2 w3 w10 w11 w12".split(), k=random.randrange(1, 9))) for _ in range(300)]
    for settings in ({"beam": 1}, {"beam": 5, "lenpen": 0.6}):
        assert graphs.translate(lines, **settings, max_len_b=10) == model.translate(lines, **settings, max_len_b=10)
    assert graphs.translate(lines[0], prefix="w3", max_len_b=10).startswith("w3")
    scored, expected = graphs.score(lines, lines[::-1]), model.score(lines, lines[::-1])
    assert [each.score for each in scored] == pytest.approx([each.score for each in expected], abs=1e-4)
    with pytest.raises(UsageError, match="attention: the graphs of onnx give no weights"):
        graphs.translate(lines[0], nbest=1, attention=True)
    (folder / "model.safetensors").rename(folder / "not read")
    int8 = api.load(folder, onnx=True, dtype="int8")
    (folder / "not read").rename(folder / "model.safetensors")
    assert repr(int8) == "TranslationModel(rposnet_tiny, xx-yy, int8 by onnxruntime on cpu, beam 12)"
    assert repr(int8._models[0]) == "OnnxModel(int8, at most 24 source and 24 target tokens)"
    assert len(int8.translate(lines, beam=2, max_len_b=10)) == 300
    for options, says in (
        ({"paths": [folder, folder]}, "onnx True: it takes one folder, on the CPU, without fast"),
        ({"fast": True}, "onnx True: it takes one folder"),
        ({"dtype": "bf16"}, "onnx True and dtype bf16: the graphs have float32 and int8"),
        ({"paths": path}, "graphs.json: there is no such file"),
    ):
        with pytest.raises(UsageError, match=says):
            api.load(**{"paths": folder, "onnx": True} | options)


def damage_graphs(folder):
    """Everything that can be wrong with graphs is one sentence."""
    facts, encoder = folder / "graphs.json", folder / "encoder.onnx"
    whole = {path: path.read_bytes() for path in (facts, encoder)}
    old = {name: fact for name, fact in json.loads(whole[facts]).items() if name not in ("files", "sha256")}
    for change, says in (
        (lambda: encoder.write_bytes(b"x"), "encoder.onnx is not the file that graphs.json was written with. Copy"),
        (lambda: facts.write_text(json.dumps(old | {"files": {}})), r"wrote \(it was changed\)"),
        (lambda: facts.write_text(json.dumps(old | {"eos": -1})), "-1.* are no sizes"),
        (lambda: facts.write_text(json.dumps(old | {"longest": {}})), r"wrote \('source'\)"),
        (lambda: [encoder.write_bytes(b"x"), facts.write_text(json.dumps(old))], "encoder.onnx is damaged or no graph"),
    ):
        change()
        with pytest.raises(UsageError, match=says):
            OnnxModel(folder)
        for path, content in whole.items():
            path.write_bytes(content)
    OnnxModel(folder, int8=True)


def test_graphs_that_differ_are_not_kept(data, capsys, monkeypatch):
    path = checkpoint(data / "averaged.pt", "rposnet", clip_distance=4)
    monkeypatch.setattr(onnx_export, "greedy", lambda model, *_: [[isinstance(model, OnnxModel)]] * 8)
    for name in ("write_graphs", "write_int8"):
        monkeypatch.setattr(onnx_export, name, lambda model, folder: None)
    monkeypatch.setattr(onnx_export, "OnnxModel", lambda folder, int8: OnnxModel.__new__(OnnxModel))
    line = fails(capsys, command.main, path, "--out", data.parent / "model", "--onnx")
    assert "translated otherwise by onnxruntime" in line
    assert names(data.parent) == ["data"]


@pytest.mark.parametrize(
    ("mixer", "options", "sentence"),
    [
        ("shaw", {"encoder_self_mixer": "rposnet"}, "its decoder has the mixer shaw"),
        ("fouriernet", {"decoder_self_mixer": "rposnet"}, "its encoder has the mixer fouriernet"),
        ("aposnet", {"max_source_positions": 99, "max_target_positions": 99}, "not precomputed. Run posnet-precompute"),
    ],
)
def test_what_has_no_graphs(data, capsys, mixer, options, sentence):
    path = checkpoint(data / "model.pt", mixer, **options)
    assert sentence in fails(capsys, command.main, path, "--out", data.parent / "model", "--onnx")


@pytest.mark.parametrize(
    ("usual", "said"),
    [
        ({"xx": 4, "yy": 1}, "line 2: longer than 99.9% of the training lines, which have at most 4 tokens (the end"),
        ({"xx": 3, "yy": 9}, "lines 1, 2: longer than 99.9% of the training lines, which have at most 3 tokens"),
        ({"xx": 9, "yy": 1}, None),
        (None, None),  # a card of an earlier version
    ],
)
def test_lines_that_are_longer_than_those_in_training_are_noted(data, capsys, usual, said):
    """By the card of the data and that of a model folder."""
    write_card(data, bpe_codes="codes.bpe", **({} if usual is None else {"usual_length": usual}))
    path = checkpoint(data / "averaged.pt", "rposnet")
    (data / "in").write_text("w1 w2 w3\nw1 w2 w3 w10\n\n")
    for model in (path, exported(path)):
        capsys.readouterr()
        translate.main([str(model), "--cpu", "--beam", "1", "--max-len-b", "3", "--input", str(data / "in")])
        notes = [line for line in capsys.readouterr().err.splitlines() if "longer than" in line]
        assert len(notes) == bool(said)
        assert all(note.startswith(f"posnet-translate: {said}") for note in notes)
