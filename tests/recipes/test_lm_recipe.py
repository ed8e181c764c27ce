"""Language models: the mixers that are refused, and the table of perplexities."""

import pytest

from posnet_fairseq.runs.language_models import check_mixers, print_figures
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.failures import explain


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["attention", "rposnt"], "--mixers rposnt: there is no such mixer.*Did you mean rposnet"),
        (["fouriernet"], "--mixers fouriernet: it cannot stand in a decoder"),
    ],
)
def test_mixers_that_make_no_language_model_are_refused(names, sentence):
    with pytest.raises(UsageError, match=sentence):
        check_mixers(names)
    check_mixers(["attention", "rposnet"])


LOG = """2026-01-01 | INFO | fairseq_cli.train | num. shared model params: 22,001,000 (num. trained: 22,001,000)
2026-01-01 | INFO | train_inner | {"wps": "1000", "num_updates": "20"}
2026-01-01 | INFO | valid | {"valid_ppl": "61.2", "valid_num_updates": "10"}
2026-01-01 | INFO | valid | {"valid_ppl": "60.4", "valid_num_updates": "20"}
"""
EVALUATION = "2026-01-01 | INFO | fairseq_cli.eval_lm | Loss (base 2): 5.8400, Perplexity: 57.28\n"


def test_perplexities_side_by_side(capsys, tmp_path):
    runs = [tmp_path / f"gpt_a_{mixer}_s1_u20" for mixer in ("attention", "alpha_translution")]
    for run in runs:
        run.mkdir()
        (run / "train.log").write_text(LOG)
        (run / "eval.log").write_text("$ fairseq-eval-lm\n" + EVALUATION)
    print_figures(1, runs)
    output = capsys.readouterr().out
    for shown in ("gpt_a_alpha_translution", "22.00M", "1,000", "60.4", "57.3", "seed 1"):
        assert shown in output, shown


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("eval.log", f"1 samples have invalid sizes and will be skipped\n{EVALUATION}", "has left out blocks"),
        ("train.log", "".join(LOG.splitlines(True)[1:]), "train.log or eval.log lacks figures"),
        ("train.log", LOG.replace("| valid |", "x"), "train.log lacks validation perplexities: it may have been cut"),
        ("train.log", None, "train.log: Is a directory"),
    ],
)
def test_log_that_was_cut_is_one_sentence(tmp_path, name, text, sentence):
    (tmp_path / "train.log").write_text(LOG)
    (tmp_path / "eval.log").write_text(EVALUATION)
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir() if text is None else (tmp_path / name).write_text(text)
    with pytest.raises((UsageError, IsADirectoryError)) as raised:
        print_figures(1, [tmp_path])
    assert sentence in explain(raised.value)
