import quickstart_table
from test_bad_input import checkpoint

LOG = '2026-01-01 | INFO | train_inner | {"wps": "1000", "num_updates": "20"}\n'


def test_table_shows_every_system_and_samples(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "test.en").write_text("Open the front door now\nClose the other door\nA third line is here\n")
    (tmp_path / "test.de").write_text("Öffne jetzt die Vordertür\nSchließe die andere Tür\nEine dritte Zeile ist da\n")
    runs = []
    for name in ("transformer_pos_tiny", "rposnet_tiny"):
        runs.append(tmp_path / f"{name}_s1_u20")
        checkpoint(runs[-1] / "averaged.pt", mixer="rposnet" if "rpos" in name else "attention")
        (runs[-1] / "train.log").write_text(LOG)
        (runs[-1] / "translate.log").write_text(
            "posnet-translate: 3 sentences in 1.5 s, 2.0 sentences and 9.0 tokens a second\n"
        )
        (runs[-1] / "test.de").write_text(f"Öffne {name}\nSchließe die andere Tür\nEine dritte Zeile ist da\n")
    quickstart_table.main([str(path) for path in (tmp_path, *runs)])
    out = capsys.readouterr().out
    for shown in ("source copied", "1,000", "2.0", "0.01M", "nrefs:1|bs:1000|seed:12345", "Öffne rposnet_tiny"):
        assert shown in out, shown
    assert "rposnet_tiny" in (tmp_path / "report" / "report.html").read_text()
