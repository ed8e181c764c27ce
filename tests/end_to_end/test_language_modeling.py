"""Language models from text to perplexity, with fairseq's commands."""

import random

import pytest

from posnet_data_prep import prepare
from posnet_fairseq.cli import average, generate, plot, precompute
from posnet_fairseq.inference.checkpoints import read_checkpoint
from posnet_fairseq.runs.command_stage import CommandStage, do, last_attempt
from posnet_fairseq.runs.evaluation import evaluating
from support import commands

BLOCKS = "--task language_modeling --tokens-per-sample 24 --batch-size 16 --required-batch-size-multiple 1".split()
SMALL_MODEL = (
    "--decoder-layers 1 --decoder-embed-dim 48 --decoder-ffn-embed-dim 96 --decoder-attention-heads 3 --dropout 0"
).split()
TRAINING = (
    "--cpu --seed 1 --optimizer adam --lr 0.01 --lr-scheduler inverse_sqrt --warmup-updates 20 --criterion "
    "cross_entropy --no-progress-bar --log-format json --num-workers 0 --no-epoch-checkpoints"
).split()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Lines that count upwards from a random number: every word but the first can be predicted."""
    folder = tmp_path_factory.mktemp("text")
    generator = random.Random(1)
    starts = [generator.randrange(20) for _ in range(400)]
    lines = [" ".join(chr(97 + (start + i) % 20) for i in range(7)) for start in starts]
    (folder / "text.txt").write_text("".join(f"{line}\n" for line in lines))
    prepare.main(["text", "--train", str(folder / "text.txt"), "--pieces", "44", "--out", str(folder / "data")])
    return folder / "data"


def train(monkeypatch, data, run, mixer, updates, *more):
    arguments = [data, "--arch", f"gpt_a_{mixer}", *BLOCKS, *SMALL_MODEL, *TRAINING, "--max-update", updates]
    commands.call(monkeypatch, "train", *arguments, "--save-dir", run, *more)


@pytest.mark.parametrize("mixer", ["attention", "translution"])
@pytest.mark.quick_cases(1)
def test_text_to_perplexity(monkeypatch, data, tmp_path, mixer):
    """As posnet-run evaluates it, in a process of its own."""
    train(monkeypatch, data, tmp_path, mixer, 100)
    arguments = [data, "--user-dir", commands.USER_DIR, *BLOCKS, "--cpu", "--gen-subset", "test"]
    command = evaluating([*map(str, arguments), "--path", str(tmp_path / "checkpoint_last.pt")])
    stage = CommandStage(tmp_path / "run", "eval", command)
    do(stage)
    perplexity = stage.record.content["attempts"][-1]["result"]["perplexity"]
    # One of eight tokens is one of twenty, the others follow: 20 ** (1 / 8) = 1.45. Without the past it would be 21.
    assert 1.4 < perplexity < 1.9
    assert f"Perplexity: {perplexity:.2f}" in last_attempt(stage.log)


def test_posnet_generate_continues_texts(monkeypatch, capsys, data, tmp_path):
    """Plain texts, split as the card of the data says."""
    train(monkeypatch, data, tmp_path, "rposnet", 100)
    precompute.main([str(tmp_path / "checkpoint_last.pt"), "--out", str(tmp_path / "fast.pt")])
    (tmp_path / "begin").write_text("c d e\nk\nm n o p\n")
    for model in ("checkpoint_last.pt", "fast.pt"):
        for options in ([], ["--beam", "3"]):
            capsys.readouterr()
            generate.main([str(tmp_path / model), "--input", str(tmp_path / "begin"), *options])
            assert capsys.readouterr().out == "c d e f g h i\nk l m n o p q\nm n o p q r s\n"


@pytest.mark.thorough  # 6 s
def test_hydra(data, tmp_path):
    (tmp_path / "counting.yaml").write_text(
        f"""# @package _global_
common: {{user_dir: {commands.USER_DIR}, cpu: true, seed: 1}}
task: {{_name: language_modeling, data: {data}, tokens_per_sample: 24}}
model: {{_name: gpt_a_translution, decoder_layers: 1, translution_clip: 5}}
criterion: {{_name: cross_entropy}}
optimizer: {{_name: adam, adam_betas: "(0.9, 0.95)"}}
lr_scheduler: {{_name: fixed}}
optimization: {{max_update: 2, lr: [0.001]}}
dataset: {{batch_size: 16, num_workers: 0, disable_validation: true}}
checkpoint: {{save_dir: {tmp_path}/run}}
"""
    )
    commands.hydra_train(tmp_path, "counting")
    state = read_checkpoint(tmp_path / "run/checkpoint_last.pt")
    assert state["cfg"]["model"]["max_target_positions"] == 24
    assert state["model"]["decoder.layers.0.self_attn.matrices.keys"].shape == (6, 192, 192)


def test_averages_and_is_drawn(monkeypatch, data, tmp_path):
    train(monkeypatch, data, tmp_path, "attention", 4, "--save-interval-updates", 2)
    average.main([str(tmp_path), "--num", "2", "--out", str(tmp_path / "averaged.pt")])
    plot.main(["weights", str(tmp_path / "averaged.pt"), "--sentence", "c d e", "--out", str(tmp_path / "figures")])
    assert '"▁c", "▁d", "▁e"]' in (tmp_path / "figures" / "weights.html").read_text()
