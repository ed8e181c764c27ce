"""Training that is interrupted, distributed over processes, or started through hydra."""

import functools

import pytest
import torch

from posnet_fairseq.cli import average
from support import commands
from support.checkpoints import assert_same_weights, weights

SHORT = "--save-interval-updates 4 --no-epoch-checkpoints --max-update".split()


@pytest.fixture(scope="module")
def plain(data, tmp_path_factory):
    """The last checkpoint of a training of 8 updates."""
    run = tmp_path_factory.mktemp("plain")
    commands.call(pytest.MonkeyPatch(), "train", *commands.train_arguments(data, run, *SHORT, "8"))
    return run / "checkpoint_last.pt"


@pytest.fixture
def in_parts(monkeypatch, data, tmp_path):
    """A function: the last checkpoint of such a training in two parts, with more options for each."""

    def train(first, second):
        for updates, more in (("4", first), ("8", second)):
            commands.call(monkeypatch, "train", *commands.train_arguments(data, tmp_path, *SHORT, updates, *more))
        return tmp_path / "checkpoint_last.pt"

    return train


@pytest.mark.parametrize(
    ("first", "again", "updates"),
    [
        (["4"], ["4"], 4),
        (["4"], ["3"], 4),
        (["4"], ["8"], 8),
        (["8", "--lr", "1e-9", "--patience", "1", "--save-interval-updates", "2"], [], 4),
        (["8", "--stop-time-hours", "1e-9"], [], 1),
    ],
    ids=["the same", "shorter", "longer", "patience", "time"],
)
@pytest.mark.quick_cases(1)
def test_a_finished_training_that_is_started_again_stays_as_it_is(monkeypatch, data, tmp_path, first, again, updates):
    """As by a queue that starts jobs again. One that is to be longer goes on."""
    for more in (first, again or first):
        before = {path: path.read_bytes() for path in tmp_path.iterdir()}
        commands.call(monkeypatch, "train", *commands.train_arguments(data, tmp_path, *SHORT, *more))
    is_longer = again == ["8"]
    assert ({path: path.read_bytes() for path in tmp_path.iterdir()} == before) is not is_longer
    last = torch.load(tmp_path / "checkpoint_last.pt", weights_only=False)
    assert last["optimizer_history"][-1]["num_updates"] == updates


CHUNKED = ("--criterion", "chunked_label_smoothed_cross_entropy")
FUSED = ("--optimizer", "fused_adam")


@pytest.mark.parametrize("parts", [((), CHUNKED + FUSED), (CHUNKED + FUSED, ())], ids=["there", "back"])
@pytest.mark.quick_cases(1)
def test_a_training_goes_on_with_posnets_loss_and_optimizer_and_back(plain, in_parts, parts):
    """Checkpoints name the classes of both, and fairseq refuses to go on with others."""
    assert_same_weights(plain, in_parts(*parts), rtol=1e-4, atol=1e-4)


def test_bf16_trains_on_cpus(monkeypatch, data, plain, in_parts, tmp_path):
    """Weights, rounded to 8 bits, differ little from those of float32; the training goes on; its model translates."""
    rounded = in_parts(["--bf16"], ["--bf16"])
    assert_same_weights(plain, rounded, rtol=2**-8, atol=1e-3)
    assert all(torch.equal(each, each.bfloat16().to(each.dtype)) for each in weights(rounded).values())
    assert len(commands.generate(monkeypatch, data, rounded, tmp_path / "out", "--beam", "1")) == 61


@pytest.mark.thorough  # 20 s: traces layers; quick: tests/transformer/test_compile.py
def test_compiled_layers_train_alike_and_resume(monkeypatch, data, plain, in_parts, tmp_path):
    """The backend runs graphs as they are. Validation and translation are as without --compile."""
    graphs = []
    monkeypatch.setattr(
        torch, "compile", functools.partial(torch.compile, backend=lambda g, _: graphs.append(g) or g.forward)
    )
    compiled = in_parts(["--compile"], ["--compile"])
    assert len(graphs) >= 3  # a trial, encoder layers, decoder layers
    assert_same_weights(plain, compiled, rtol=1e-3, atol=1e-4)
    before = len(graphs)
    assert len(commands.generate(monkeypatch, data, compiled, tmp_path / "out", "--beam", "1")) == 61
    assert len(graphs) == before


@pytest.mark.thorough  # 8 s
def test_hydra(data, tmp_path):
    """A hydra configuration gives the model that a command line gives."""
    (tmp_path / "reversal.yaml").write_text(
        f"""# @package _global_
common: {{user_dir: {commands.USER_DIR}, cpu: true, seed: 1}}
task: {{_name: translation, data: {data}, source_lang: xx, target_lang: yy, max_source_positions: 32}}
model: {{_name: rposnet_tiny, encoder_layers: 1, share_all_embeddings: true, clip_distance: 5}}
criterion: {{_name: label_smoothed_cross_entropy, label_smoothing: 0.1}}
optimizer: {{_name: adam, adam_betas: "(0.9, 0.98)"}}
lr_scheduler: {{_name: fixed}}
optimization: {{max_update: 2, lr: [0.001]}}
dataset: {{batch_size: 1000, num_workers: 0, disable_validation: true}}
checkpoint: {{save_dir: {tmp_path}/run, save_interval_updates: 2, no_epoch_checkpoints: true}}
"""
    )
    commands.hydra_train(tmp_path, "reversal")
    assert (tmp_path / "run/checkpoint_1_2.pt").exists()  # the end of an epoch
    state = torch.load(tmp_path / "run/checkpoint_last.pt", weights_only=True)
    assert state["cfg"]["model"]["encoder_self_mixer"] == "rposnet"
    assert state["model"]["encoder.layers.0.self_attn.energies.0.relative"].shape == (11, 192)
    assert "encoder.layers.1.self_attn.energies.0.relative" not in state["model"]


@pytest.mark.parametrize(
    "options",
    ["--eval-bleu --best-checkpoint-metric bleu --maximize-best-checkpoint-metric", "--optimizer adafactor"],
)
@pytest.mark.thorough  # trainings that go on are quick
def test_checkpoints_with_more_than_weights_are_loaded_as_data(monkeypatch, data, tmp_path, options):
    """--eval-bleu keeps numpy arrays in a checkpoint, adafactor its options."""
    short = "--save-interval-updates 2 --no-epoch-checkpoints".split() + options.split()
    for updates in ("2", "4"):  # the second run resumes
        arguments = commands.train_arguments(data, tmp_path, "--max-update", updates, *short)
        commands.call(monkeypatch, "train", *arguments)
    averaged = tmp_path / "averaged.pt"
    average.main([str(tmp_path), "--num", "2", "--out", str(averaged)])
    test = "--cpu --num-workers 0 --max-len-b 5 --beam 1".split()
    commands.call(monkeypatch, "generate", data, "--path", averaged, *test)
    commands.call(monkeypatch, "generate", data, "--path", tmp_path / "checkpoint_last.pt", *test)


def test_moving_average_of_fairseq(monkeypatch, data, tmp_path):
    """fairseq averages all tensors of a checkpoint, integers too, except those whose name contains "version"."""
    ema = "--max-update 4 --no-epoch-checkpoints --disable-validation --store-ema --ema-decay 0.5 --ema-fp32".split()
    arguments = commands.train_arguments(data, tmp_path, *ema, "--cross-mixer", "rposnet")
    commands.call(monkeypatch, "train", *arguments)
    state = torch.load(tmp_path / "checkpoint_last.pt", weights_only=True)
    model, averaged = state["model"], state["extra_state"]["ema"]
    names = {name for name in model if name.endswith("_version")}
    assert "decoder.length_ratio_version" in names
    assert all(torch.equal(model[name], averaged[name]) for name in names & averaged.keys())
    assert not torch.equal(
        model["encoder.layers.0.self_attn.out_proj.weight"], averaged["encoder.layers.0.self_attn.out_proj.weight"]
    )
