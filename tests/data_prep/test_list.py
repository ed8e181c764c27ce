"""posnet-prepare --list."""

import pytest
from rich.console import Console

from posnet_data_prep import prepare
from posnet_data_prep.datasets import DATASETS
from posnet_data_prep.sources.archives import WHEELS
from support.commands import modules_of, refused


def test_shows_what_there_is_and_what_is_here(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(prepare, "plain_console", lambda: Console(width=150))
    with open(tmp_path / WHEELS[1].name, "wb") as file:
        file.truncate(WHEELS[1].size)
    (tmp_path / "de-en.tgz").write_bytes(b"of another size")
    prepare.main(["--list", "--downloads", str(tmp_path)])
    rows = {line.split("│")[1].strip(): line for line in capsys.readouterr().out.splitlines() if line.startswith("│")}
    assert set(rows) >= {*DATASETS}
    assert "1 of 3 files" in rows["quickstart.en-fr"]
    assert "0 of 1 file " in rows["iwslt14.de-en"]
    assert "CC BY-NC-ND" in rows["iwslt14.de-en"]
    assert "3,961,179" in rows["wmt14.en-de"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "name a dataset, or give --list"),
        (
            "quickstart.en-de --out data --max-ratio 3",
            "--max-ratio has no meaning with quickstart.en-de, whose pairs are",
        ),
        ("debian.en-de --out data --merges 50", "--merges has no meaning with --subwords sentencepiece"),
        ("multi30k.en-de --out data --valid-every 9", "a validation set comes from one place"),
    ],
)
def test_options_without_meaning(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    assert said in refused(capsys, prepare.main, *arguments.split())


@pytest.mark.parametrize("arguments", ["--list", "wmt14.en-fr --out data --dry-run"])
def test_nothing_heavy_is_imported_to_answer_questions(tmp_path, arguments):
    program = "import sys; from posnet_data_prep.prepare import main; main(sys.argv[1:])"
    loaded = modules_of(program, "--downloads", tmp_path / "downloads", *arguments.split(), cwd=tmp_path)
    assert not {"torch", "fairseq", "fairseq_cli", "hydra", "omegaconf"} & loaded
