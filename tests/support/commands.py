"""fairseq's and posnet's commands, in this process (each would take seconds to start) or in one of their own."""

import json
import logging
import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from fairseq import checkpoint_utils

import posnet_fairseq
import posnet_fairseq.models  # registers the types of checkpoints for torch's safe loader
from posnet_fairseq.fairseq_plugin import optional_types
from support import documents
from support.signals import PATIENCE

ROOT = Path(__file__).parents[2]
USER_DIR = str(Path(posnet_fairseq.__file__).parent)
# The names of posnet's commands.
COMMANDS = sorted(script.name for script in entry_points(group="console_scripts") if script.name.startswith("posnet-"))

# Small and quick to train. The tests of a size are elsewhere.
SMALL_MODEL = (
    "--encoder-layers 2 --decoder-layers 2 --encoder-embed-dim 64 --decoder-embed-dim 64 --encoder-ffn-embed-dim 128 "
    "--decoder-ffn-embed-dim 128 --max-source-positions 32 --max-target-positions 32 --share-all-embeddings --dropout 0"
).split()
# Smaller still, where nearly all the time goes into starting programs.
NARROW = f"{documents.ONE_LAYER} {documents.NARROW}"
TRAINING = (
    "--cpu --seed 1 --optimizer adam --lr 0.003 --lr-scheduler inverse_sqrt --warmup-updates 100 "
    "--criterion label_smoothed_cross_entropy --label-smoothing 0.1 --required-batch-size-multiple 1 --batch-size 64 "
    "--no-progress-bar --log-format json --log-interval 50 --num-workers 0"
).split()
# posnet-bench, of each kind, in seconds.
SMALL_BENCH = {
    "decode": "--beams 2 --lengths 4 --size tiny --words 50 --sentences 2 --rounds 1",
    "layers": "--mixers rposnet --lengths 4 --size tiny --tokens 8 --rounds 1",
    "grid": "--grid 2x3 --batch 2 --embed-dim 8 --heads 2 --rounds 1",
    "models": "--mixers rposnet --size tiny --length 3 --sentences 2 --rounds 1 --beam 2",
}


def program(name):
    """The function of the console script of one of posnet's or fairseq's commands; None if there is no such script."""
    for script in entry_points(group="console_scripts", name=name):
        return script.load()


def run_program(monkeypatch, name, *arguments):
    """Run a command of posnet's or fairseq's in this process."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", [name, *map(str, arguments)])
        program(name)()


def call(monkeypatch, command, *arguments):
    """Run ``fairseq-COMMAND`` in this process."""
    vars(checkpoint_utils.save_checkpoint).pop("best", None)  # of an earlier training in this process
    run_program(monkeypatch, f"fairseq-{command}", *arguments, "--user-dir", USER_DIR)


def train_arguments(data, save_dir, *more, arch="rposnet_tiny"):
    return [data, "--arch", arch, *SMALL_MODEL, *TRAINING, "--save-dir", save_dir, *more]


def generate(monkeypatch, data, checkpoint, results, *settings):
    """Translations of the test set by ``fairseq-generate``, a dict from the number of a sentence to its text."""
    loading = "--cpu --required-batch-size-multiple 1 --num-workers 0 --results-path".split()
    call(monkeypatch, "generate", data, "--path", checkpoint, *loading, results, *settings)
    output = (Path(results) / "generate-test.txt").read_text().split("\n")
    return {int(line.split("\t")[0][2:]): line.split("\t")[2] for line in output if line.startswith("D-")}


def fairseq(command, *arguments):
    """``fairseq-COMMAND`` in a process of its own, with what it printed on both channels as its output."""
    # In the form that runs on every Python.
    argv = [sys.executable, "-P", optional_types.__file__, f"fairseq-{command}", *map(str, arguments)]
    channels = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.run(argv, **channels, env=os.environ | {"OMP_NUM_THREADS": "1"}, cwd=ROOT, timeout=PATIENCE)


def python(program, *arguments, **options):
    """Run a program of Python in a process of its own; what it printed and its exit code."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **options)


def modules_of(program, *arguments, **options):
    """The names of the modules that a program of Python has loaded when it ends, in a process of its own."""
    program = f"{program}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = python(program, *arguments, **options)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def hydra_train(folder, name):
    """``fairseq-hydra-train`` with the configuration `name` of a folder."""
    done = fairseq("hydra-train", "--config-dir", folder, "--config-name", name, f"hydra.run.dir={folder}/hydra")
    assert done.returncode == 0, done.stdout


def fairseq_fails(command, *arguments):
    """The last line that a fairseq command prints when it refuses its input, without a traceback."""
    done = fairseq(command, *arguments, "--user-dir", USER_DIR)
    assert done.returncode == 2, done.stdout
    assert "Traceback" not in done.stdout, done.stdout
    # A warning of Python 3.14 that ends the process with torch 2.15: leaked semaphores.
    output = re.sub(r"\S+ \w+Warning: .*\n +warnings.warn\(\n", "", done.stdout)
    return output.strip().split("\n")[-1]


def fails(capsys, main, *arguments):
    """The one line that a command prints when it refuses its input."""
    (line,) = refused(capsys, main, *arguments).strip().split("\n")
    return line


def refused(capsys, main, *arguments):
    """All that a command prints when it refuses its input."""
    logging.disable(logging.WARNING)  # which fairseq's commands of other tests have switched on
    try:
        with pytest.raises(SystemExit) as error:
            main([str(argument) for argument in arguments])
    finally:
        logging.disable(logging.NOTSET)
    assert error.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err
