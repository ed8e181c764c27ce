from posnet_fairseq.runs.training_log import records


def test_reads_records_and_skips_all_else(tmp_path):
    log = tmp_path / "train.log"
    log.write_text(
        "2026-01-01 | INFO | fairseq_cli.train | something {}\n"
        '2026-01-01 | INFO | train_inner | {"epoch": 1, "wps": "3262.5", "num_updates": "20", "note": "text"}\n'
        '2026-01-01 | INFO | valid | {"epoch": 1, "valid_ppl": "15.2", "valid_num_updates": "20"}\n'
        '2026-01-01 | INFO | train_inner | {"epoch": 1, "wps": "32'
    )
    (train, valid) = records(log)
    assert train == ("train_inner", {"epoch": 1.0, "wps": 3262.5, "num_updates": 20.0, "note": "text"})
    assert valid[1]["valid_ppl"] == 15.2
    assert list(records(tmp_path / "missing")) == []
