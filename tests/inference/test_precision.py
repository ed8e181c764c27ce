"""Which precision --dtype auto takes, and model folders whose configuration tells more than is read."""

import json

import pytest
import torch

from posnet_fairseq import api
from posnet_fairseq.cli import export, translate
from posnet_fairseq.inference.model_folder import write_config
from posnet_fairseq.inference.precision import resolve_dtype
from support.checkpoints import checkpoint


@pytest.mark.parametrize(
    ("device", "supported", "chosen"),
    [("cpu", True, "float32"), ("cuda", True, "bf16"), ("cuda", False, "float32"), ("meta", True, "float32")],
)
def test_auto_is_bf16_on_gpus_that_have_it(monkeypatch, device, supported, chosen):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: supported)
    assert resolve_dtype("auto", device) == chosen


def test_auto_is_said_and_used(tmp_path, capsys):
    path = checkpoint(tmp_path / "averaged.pt", "rposnet")
    (tmp_path / "lines").write_text("w1 w2\nw3\n")
    arguments = f"--pretokenized --cpu --input {tmp_path / 'lines'} --nbest 1 --max-len-b 5 --dtype".split()
    translate.main([str(path), *arguments, "auto"])
    automatic = capsys.readouterr()
    assert "posnet-translate: --dtype auto is float32\n" in automatic.err
    translate.main([str(path), *arguments, "float32"])
    assert capsys.readouterr().out == automatic.out
    model = api.load(path, pretokenized=True, dtype="auto", device="cpu")
    assert model.options.dtype == "float32"


def test_folders_that_tell_how_far_precisions_are_from_float32_are_read(tmp_path):
    """Those of posnet 0.2 do."""
    path, folder = checkpoint(tmp_path / "averaged.pt", "rposnet"), tmp_path / "model"
    export.main([str(path), "--pretokenized", "--out", str(folder)])
    config = json.loads((folder / "config.json").read_text())
    assert "divergence" not in config
    write_config(folder, config | {"divergence": {"int8": 0.0003}})
    expected = api.load(path, pretokenized=True).translate("w1 w2 w3", max_len_b=5)
    assert api.load(folder, pretokenized=True).translate("w1 w2 w3", max_len_b=5) == expected
