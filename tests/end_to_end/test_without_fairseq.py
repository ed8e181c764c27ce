"""Everything but training works where fairseq is not installed."""

import os

import pytest

from support.checkpoints import checkpoint
from support.commands import python
from support.corpus import make_corpus

# Of every Python process: modules that are not there.
SITE = "import sys\nsys.modules |= dict.fromkeys(['fairseq', 'fairseq_cli', 'hydra'])\n"


@pytest.fixture
def run(tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITE)
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site")}

    def run(module, *arguments, code=0):
        program = f"from {module} import main; main({list(map(str, arguments))})"
        done = python(program, cwd=tmp_path, env=environment)
        assert done.returncode == code, done.stderr[-3000:]
        return done.stdout + done.stderr

    return run


@pytest.mark.thorough  # 15 s: the data of the next test are quick
def test_a_checkpoint_is_used(run, tmp_path):
    path, text = checkpoint(tmp_path / "model" / "checkpoint1.pt", "rposnet"), tmp_path / "text.xx"
    text.write_text("a b c\nb a\n")
    checkpoint(tmp_path / "model" / "checkpoint2.pt", "rposnet", updates=2)
    run("posnet_fairseq.cli.average", path.parent, "--num", 2, "--out", "averaged.pt")
    run("posnet_fairseq.cli.precompute", "averaged.pt", "--out", "fast.pt")
    made_of_words = ("--data", path.parent, "--pretokenized")
    run("posnet_fairseq.cli.export", "fast.pt", "--out", "folder", *made_of_words)
    outputs = [
        run("posnet_fairseq.cli.translate", model, "--input", text, "--output", f"{number}.yy", *more)
        and (tmp_path / f"{number}.yy").read_text()
        for number, (model, more) in enumerate({"averaged.pt": made_of_words, "folder": ("--pretokenized",)}.items())
    ]
    assert outputs[0] == outputs[1]
    assert len(outputs[0].splitlines()) == 2
    scored = run("posnet_eval.score", "--reference", text, "--system", "a=0.yy", "--tokenize", "none")
    assert "BLEU" in scored


def test_data_are_prepared_and_training_says_what_it_needs(run, tmp_path):
    make_corpus(tmp_path, train=200, test=10)
    sets = [argument for name in ("train", "test") for argument in (f"--{name}", f"{name}.xx", f"{name}.yy")]
    run("posnet_data_prep.prepare", "corpus", *sets, "--valid-every", 10, "--merges", 60, "--out", "data")
    assert (tmp_path / "data" / "dataset.json").exists()
    options = "corpus --data data --mixer rposnet --size tiny --cpus 1 --updates 20 train"
    said = run("posnet_fairseq.cli.run", *options.split(), code=2)
    assert "fairseq, which is not installed" in said
    assert "Traceback" not in said
    found = run("posnet_fairseq.cli.doctor", code=0)
    assert "not installed: posnet does everything but train" in found
