"""posnet-score with BLEURT and COMET: a report, and the same one again without any model."""

import json
import shutil
from pathlib import Path

import pytest

from posnet_eval.score import main
from support.scoring import refused
from support.tiny_models import TEXT, corpus

ARGUMENTS = (
    "--source s.en --reference r.de --system a=a.de b=b.de --metrics comet,bleurt,bleu --cpu --resamples 100".split()
)
FILES = ("report.html", "report.md", "report.tex", "report.csv", "report.json")


@pytest.fixture
def data(tmp_path, monkeypatch, comet, encoder, bleurt):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lines = corpus(20)
    texts = {"s.en": lines, "r.de": lines[::-1], "a.de": lines[::-1][:10] + lines[:10], "b.de": [*TEXT, *lines[12:]]}
    for name, text in texts.items():
        Path(name).write_text("\n".join(text) + "\n")
    for name, folder in {"comet": comet, "encoder": encoder, "bleurt": bleurt}.items():
        shutil.copytree(folder, tmp_path / name)
    return tmp_path


MODELS = ("--comet-model", "comet", "--comet-encoder", "encoder", "--bleurt-model", "bleurt")


def test_again_without_models(data, capsys):
    main([*ARGUMENTS, *MODELS, "--out", "first"])
    first = capsys.readouterr().out
    signatures = Path("first/report.md").read_text()
    assert "COMET: nrefs:1|bs:100|seed:12345|model:comet|id:" in signatures
    assert "|precision:fp32|scale:100" in signatures
    content = json.loads(Path("first/report.json").read_text())["test_sets"][0]
    assert [info["label"] for info in content["metrics"]] == ["COMET", "BLEURT", "BLEU"]
    mean = sum(content["segments"]["comet"]["a"]) / 20
    assert content["scores"]["a"]["comet"]["value"] == pytest.approx(mean, abs=1e-3)
    for folder in ("comet", "encoder", "bleurt"):
        Path(folder, "config.json").unlink(missing_ok=True)
        Path(folder, "hparams.yaml").unlink(missing_ok=True)
    main([*ARGUMENTS, *MODELS, "--out", "second", "--cached-only"])
    assert capsys.readouterr().out == first
    for name in FILES:
        assert Path("first", name).read_bytes() == Path("second", name).read_bytes()
    assert "is not a COMET model: there is no hparams.yaml" in refused(capsys, *ARGUMENTS, *MODELS)


def test_what_cannot_run_is_said_before_anything_is_computed(data, capsys):
    said = refused(capsys, *ARGUMENTS, "--comet-model", "nowhere/at/all", "--bleurt-model", "no/where/else")
    for name in ("nowhere/at/all", "no/where/else"):
        assert f"{name}: there is no such folder" in said
    assert "BLEU " not in said
    said = refused(capsys, *ARGUMENTS[2:], *MODELS)
    assert "COMET reads the source, of which r has none. Give --source" in said
    said = refused(capsys, *ARGUMENTS, *MODELS, "--reference", "a.de")
    assert "COMET takes one reference translation, 2 were given" in said
