"""posnet-score with BLEURT and COMET: a report, and the same one again without any model."""

import json
import shutil
from pathlib import Path

import pytest

from posnet_eval.score import main
from support.scoring import FILES, SIZE, USUAL, refused

ARGUMENTS = (*USUAL, "--metrics", "comet,bleurt,bleu", "--cpu")


@pytest.fixture(autouse=True)
def models(data, comet, encoder, bleurt):
    for name, folder in {"comet": comet, "encoder": encoder, "bleurt": bleurt}.items():
        shutil.copytree(folder, data / name)


MODELS = ("--comet-model", "comet", "--comet-encoder", "encoder", "--bleurt-model", "bleurt")


def test_again_without_models(capsys):
    main([*ARGUMENTS, *MODELS, "--out", "first"])
    first = capsys.readouterr().out
    signatures = Path("first/report.md").read_text()
    assert "COMET: nrefs:1|bs:200|seed:12345|model:comet|id:" in signatures
    assert "|precision:fp32|scale:100" in signatures
    content = json.loads(Path("first/report.json").read_text())["test_sets"][0]
    assert [info["label"] for info in content["metrics"]] == ["COMET", "BLEURT", "BLEU"]
    mean = sum(content["segments"]["comet"]["good"]) / SIZE
    assert content["scores"]["good"]["comet"]["value"] == pytest.approx(mean, abs=1e-3)
    for folder in ("comet", "encoder", "bleurt"):
        Path(folder, "config.json").unlink(missing_ok=True)
        Path(folder, "hparams.yaml").unlink(missing_ok=True)
    main([*ARGUMENTS, *MODELS, "--out", "second", "--cached-only"])
    assert capsys.readouterr().out == first
    for name in FILES:
        assert Path("first", name).read_bytes() == Path("second", name).read_bytes()
    assert "is not a COMET model: there is no hparams.yaml" in refused(capsys, *ARGUMENTS, *MODELS)


def test_what_cannot_run_is_said_before_anything_is_computed(capsys):
    said = refused(capsys, *ARGUMENTS, "--comet-model", "~nobody/at/all", "--bleurt-model", "no/where/else")
    for name in ("~nobody/at/all", "no/where/else"):
        assert f"{name}: there is no such folder" in said
    assert "BLEU " not in said
    for more in ((), ("--cached-only",)):
        said = refused(capsys, *ARGUMENTS, *MODELS, "--reference", "good.txt", *more)
        assert "COMET takes one reference translation, 2 were given" in said
