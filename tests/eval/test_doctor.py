import json
import shlex
import sys

import pytest
import yaml

from posnet_eval.metrics.bleurt import Bleurt
from posnet_eval.metrics.comet import Comet
from posnet_fairseq import __version__
from posnet_fairseq.cli import doctor
from support.tiny_models import in_hub_cache

pytestmark = pytest.mark.usefixtures("no_hub")


def found():
    """What posnet-doctor says of COMET and BLEURT, neither of which it needs."""
    findings = {finding.what: finding for finding in doctor.examine()}
    assert not findings["COMET"].needed
    assert not findings["BLEURT"].needed
    return findings["COMET"], findings["BLEURT"]


def test_a_clone_of_fairseq_in_the_working_directory_is_not_installed(tmp_path, monkeypatch):
    (tmp_path / "fairseq").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "fairseq", raising=False)
    findings = {finding.what: finding for finding in doctor.examine()}
    assert "not installed" in findings["fairseq"].says
    assert findings["posnet"].works


def test_models_that_are_not_there():
    comet, bleurt = found()
    assert not comet.works
    assert comet.says == "Unbabel/wmt20-comet-da is neither a local folder nor complete in the Hugging Face cache"
    assert "here; for its encoder, run huggingface-cli download xlm-roberta-large" in comet.fix
    assert not bleurt.works
    assert bleurt.says == "lucadiliello/BLEURT-20 is neither a local folder nor complete in the Hugging Face cache"
    assert "downloaded at first use" in bleurt.fix


def test_models_that_are_there(copy, encoder, bleurt, tmp_path):
    settings = yaml.safe_load((copy / "hparams.yaml").read_text()) | {"pretrained_model": "xlm-roberta-large"}
    (copy / "hparams.yaml").write_text(yaml.safe_dump(settings))
    in_hub_cache(tmp_path / "cache", "Unbabel/wmt20-comet-da", copy)
    in_hub_cache(tmp_path / "cache", "xlm-roberta-large", encoder)
    in_hub_cache(tmp_path / "cache", "lucadiliello/BLEURT-20", bleurt)
    comet, bleurt = found()
    assert (comet.works, comet.says) == (True, "can run, with wmt20-comet-da")
    assert (bleurt.works, bleurt.says) == (True, "can run, with BLEURT-20")


def test_packages_that_are_not_there(monkeypatch):
    for metric in (Comet, Bleurt):
        monkeypatch.setattr(metric, "package", "not-there")
    comet, bleurt = found()
    assert (comet.works, bleurt.works) == (False, False)
    assert "which is not installed" in comet.says
    python = shlex.quote(sys.executable)
    assert comet.fix == f"Run {python} -m pip install -e '.[comet]' in the posnet folder."
    assert bleurt.fix == f"Run {python} -m pip install -e '.[bleurt]' in the posnet folder."


def test_lines_are_copied_whole(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "30")
    path = "/a" * 100
    findings = [
        doctor.Finding("posnet", True, f"--user-dir {path}"),
        doctor.Finding("[x]", False, "no", "pip install x"),
    ]
    monkeypatch.setattr(doctor, "examine", lambda: findings)
    with pytest.raises(SystemExit) as end:
        doctor.main([])
    assert end.value.code == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(f"posnet           --user-dir {path}")
    assert [line.split() for line in lines[1:3]] == [["MISSING", "[x]", "no"], "fix: pip install x".split()]
    assert f"posnet {__version__}" in lines[3]
    monkeypatch.setattr(doctor, "examine", lambda: findings[:1])
    doctor.main(["--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["installed"]["posnet"] == __version__
    assert report["findings"][0]["says"] == f"--user-dir {path}"
