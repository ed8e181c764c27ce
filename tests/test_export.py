"""posnet-export, and its graphs in onnxruntime."""

import pytest
import torch

from posnet_fairseq.cli import export as command
from posnet_fairseq.inference.onnx import write
from posnet_fairseq.inference.onnx_export import greedy
from posnet_fairseq.inference.onnx_translator import OnnxTranslator
from posnet_fairseq.inference.precompute import precompute
from support.building import MAX_POSITIONS, build_model, pad, sentences
from support.checkpoints import checkpoint, precomputed
from support.commands import fails


@pytest.mark.parametrize(
    "options",
    [
        {"mixer": "rposnet"},
        {"mixer": "aposnet", "cross_mixer": "arposnet", "length_ratio": "1.25"},
        {"mixer": "lightconv", "lightconv_global_context": True, "position_embedding": "none"},
        pytest.param({"mixer": "gaussiannet", "decoder_self_mixer": "arposnet"}, marks=pytest.mark.slow),
        pytest.param({"mixer": "attention"}, marks=pytest.mark.slow),
    ],
    ids=lambda options: options["mixer"],
)
@torch.no_grad()
def test_graphs_translate_as_the_model(tmp_path, options):
    model = build_model(**options)
    precompute(model)
    write(model, tmp_path)
    graphs = OnnxTranslator(tmp_path)
    for lengths in ((5, 9, 1), (MAX_POSITIONS,), (2, 2)):
        sources = pad(sentences(*lengths))
        assert graphs.translate(sources.numpy(), MAX_POSITIONS) == greedy(model, sources)


def test_command(tmp_path, capsys):
    path = precomputed(checkpoint(tmp_path / "model.pt", "rposnet"))
    capsys.readouterr()
    command.main([str(path), "--onnx", str(tmp_path / "graphs")])
    assert "8 random sentences are translated the same" in capsys.readouterr().out
    assert sorted(file.name for file in (tmp_path / "graphs").iterdir()) == ["encoder.onnx", "model.json", "step.onnx"]
    assert "is there already" in fails(capsys, command.main, path, "--onnx", tmp_path / "graphs")


def test_graphs_that_differ_are_not_kept(tmp_path, capsys, monkeypatch):
    path = precomputed(checkpoint(tmp_path / "model.pt", "rposnet"))
    capsys.readouterr()
    monkeypatch.setattr(command, "_greedy", lambda *_: [[2]] * 8)
    assert "translated otherwise by onnxruntime" in fails(capsys, command.main, path, "--onnx", tmp_path / "graphs")
    assert not (tmp_path / "graphs").exists()


@pytest.mark.parametrize(
    ("mixer", "options", "sentence"),
    [
        ("rposnet", {}, "is not precomputed. Run posnet-precompute"),
        ("rposnet", {"max_source_positions": 4}, "takes sentences of less than 5 tokens"),
        ("shaw", {"encoder_self_mixer": "rposnet"}, "its decoder has the mixer shaw"),
        ("fouriernet", {"decoder_self_mixer": "rposnet"}, "its encoder has the mixer fouriernet"),
    ],
)
def test_what_cannot_be_exported(tmp_path, capsys, mixer, options, sentence):
    path = checkpoint(tmp_path / "model.pt", mixer, **options)
    if options:
        path = precomputed(path)
        capsys.readouterr()
    assert sentence in fails(capsys, command.main, path, "--onnx", tmp_path / "graphs")
