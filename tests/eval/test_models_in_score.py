"""posnet-score with BLEURT and COMET: a report, and the same one again without any model."""

import json
import shutil
from pathlib import Path

import pytest

from posnet_eval.score import main
from support.scoring import FILES, SIZE, USUAL, refused, write

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


def test_lines_that_are_longer_than_models_read_are_remarked(capsys):
    """Of any of the texts, once for all systems; also when the scores are cached, and no model is there."""
    main([*ARGUMENTS, *MODELS])
    assert "longer than" not in capsys.readouterr().out
    for name, numbers in {"good.txt": (4, 9), "test.en": (9, 20), "test.de": (31,)}.items():
        lines = Path(name).read_text().splitlines()
        for number in numbers:
            lines[number - 1] = "the cat sat on the old bridge " * 60
        write(Path(name), lines)
    main([*ARGUMENTS, *MODELS])
    found = capsys.readouterr()
    of = "test: {} than {} reads: the end of a {} does not count ({})\n"
    comet = of.format("4 lines are longer", "COMET", "source, reference or translation", "4, 9, 20, 31")
    bleurt = of.format("3 lines are longer", "BLEURT", "reference or translation", "4, 9, 31")
    assert f"note: {comet}" in found.out
    assert f"note: {bleurt}" in found.out
    assert found.out.count(" reads: the end of ") == 2
    assert "Token indices" not in found.err
    Path("comet", "hparams.yaml").unlink()
    main([*ARGUMENTS, *MODELS, "--cached-only"])
    assert capsys.readouterr().out == found.out


def test_what_cannot_run_is_said_before_anything_is_computed(capsys):
    said = refused(capsys, *ARGUMENTS, "--comet-model", "~nobody/at/all", "--bleurt-model", "no/where/else")
    for name in ("~nobody/at/all", "no/where/else"):
        assert f"{name}: there is no such folder" in said
    assert "BLEU " not in said
    for more in ((), ("--cached-only",)):
        said = refused(capsys, *ARGUMENTS, *MODELS, "--reference", "good.txt", *more)
        assert "COMET takes one reference translation, 2 were given" in said
