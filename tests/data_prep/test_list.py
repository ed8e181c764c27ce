"""posnet-prepare --list."""

import pytest
from rich.console import Console

from posnet_data_prep import prepare
from posnet_data_prep.datasets import DATASETS, QUICKSTART, WHEELS


def test_shows_what_there_is_and_what_is_here(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(prepare, "Console", lambda **options: Console(width=150, **options))
    with open(tmp_path / WHEELS[1].name, "wb") as file:
        file.truncate(WHEELS[1].size)
    (tmp_path / "de-en.tgz").write_bytes(b"of another size")
    prepare.main(["--list", "--downloads", str(tmp_path)])
    rows = {line.split("│")[1].strip(): line for line in capsys.readouterr().out.splitlines() if line.startswith("│")}
    assert set(rows) >= {*DATASETS, *QUICKSTART}
    assert "1 of 3 files" in rows["quickstart.en-fr"]
    assert "0 of 1 files" in rows["iwslt14.de-en"]
    assert "CC BY-NC-ND" in rows["iwslt14.de-en"]
    assert "3,961,179" in rows["wmt14.en-de"]


def test_without_a_dataset(capsys):
    with pytest.raises(SystemExit):
        prepare.main([])
    assert "name a dataset, or --list" in capsys.readouterr().err
