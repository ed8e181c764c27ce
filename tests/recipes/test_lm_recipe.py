"""Language models: the mixers that are refused, and the table of perplexities."""

import json
import re

import pytest

from posnet_fairseq.runs.language_models import check_mixers, print_figures
from posnet_fairseq.shared.errors import UsageError
from support.checkpoints import language_model_checkpoint


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


LOG = """2026-01-01 | INFO | train_inner | {"wps": "1000", "num_updates": "20"}
2026-01-01 | INFO | valid | {"valid_ppl": "61.2", "valid_num_updates": "10"}
2026-01-01 | INFO | valid | {"valid_ppl": "60.4", "valid_num_updates": "20"}
"""
EVALUATION = "2026-01-01 | INFO | fairseq_cli.eval_lm | Loss (base 2): 5.8400, Perplexity: 57.28\n"


def test_perplexities_side_by_side(capsys, tmp_path):
    """One is of an earlier version, whose perplexity is in the log."""
    results = {"attention": {}, "alpha_translution": {"result": {"perplexity": 56.04}}}
    for mixer, result in results.items():
        run = tmp_path / f"gpt_a_{mixer}_s1_u20"
        (run / "checkpoints").mkdir(parents=True)
        language_model_checkpoint(run / "checkpoints/checkpoint_best.pt", mixer)
        (run / "train.log").write_text(LOG)
        (run / "eval.log").write_text("$ fairseq-eval-lm\n" + EVALUATION)
        (run / "eval.json").write_text(json.dumps({"settings": {}, "attempts": [result], "finished": True}))
    print_figures(1, sorted(tmp_path.iterdir()))
    output = capsys.readouterr().out
    for shown in (r"gpt_a_attention +0\.\d\dM +1,000 +60\.4 +57\.3", r"gpt_a_alpha_.* 56\.0", "seed 1"):
        assert re.search(shown, output), shown
