"""Every architecture trains and translates under fairseq's own commands."""

import pytest
import torch

from posnet_fairseq.cli import length_ratio, translate
from posnet_fairseq.registry import get_mixer, mixer_names
from support import commands

CROSS = [name for name in mixer_names() if "cross" in get_mixer(name).places]


def generated(monkeypatch, data, run, capsys):
    """The translations of fairseq-generate, in the order of the test set."""
    settings = "--beam 2 --max-len-b 7".split()
    found = commands.generate(monkeypatch, data, run / "checkpoint_last.pt", run, *settings)
    capsys.readouterr()
    return [found[index] for index in range(61)]


def train_and_translate(monkeypatch, capsys, data, run, arch, *more, updates=("2", "4")):
    """The state of a training in parts."""
    short = "--save-interval-updates 2 --no-epoch-checkpoints --disable-validation --weight-decay 0.01".split()
    for number in updates:
        arguments = commands.train_arguments(data, run, "--max-update", number, *short, *more, arch=arch)
        commands.call(monkeypatch, "train", *arguments)
    capsys.readouterr()
    arguments = "--pretokenized --beam 2 --max-len-a 0 --max-len-b 7".split()
    translate.main([str(run / "checkpoint_last.pt"), *arguments, "--input", str(data / "test.xx")])
    ours = capsys.readouterr().out.split("\n")[:-1]
    assert ours == generated(monkeypatch, data, run, capsys)
    return torch.load(run / "checkpoint_last.pt", weights_only=True)


@pytest.mark.parametrize("name", mixer_names())
@pytest.mark.thorough  # 60 s; quick: the trained model of test_translation
def test_arch_trains_and_translates(monkeypatch, capsys, data, tmp_path, name):
    arch = f"{get_mixer(name).arch}_tiny"
    state = train_and_translate(monkeypatch, capsys, data, tmp_path, arch, updates=("2",))
    assert state["cfg"]["model"]["encoder_self_mixer"] == name


@pytest.mark.thorough  # 4 s
def test_layers_that_differ(monkeypatch, capsys, data, tmp_path):
    """With some left out and computed again in training, which resumes."""
    mixers = {"encoder-self": "fouriernet,lightconv,attention", "decoder-self": "attention,rposnet,translution"}
    mixers["cross"] = "attention,rposnet,attention"
    options = [word for place, names in mixers.items() for word in (f"--{place}-mixer", names)]
    options += "--encoder-layers 3 --decoder-layers 3 --encoder-layerdrop 0.2 --decoder-layerdrop 0.2".split()
    options += "--checkpoint-activations --encoder-gate none".split()
    state = train_and_translate(monkeypatch, capsys, data, tmp_path, "transformer_pos_tiny", *options)
    assert state["cfg"]["model"]["cross_mixer"] == "attention,rposnet,attention"
    assert state["optimizer_history"][-1]["num_updates"] == 4


@pytest.mark.parametrize("name", CROSS)
@pytest.mark.thorough  # 11 s
def test_cross_mixer_measures_the_length_ratio_and_keeps_it(monkeypatch, capsys, data, tmp_path, name):
    parts = ("2", "4") if get_mixer(name).reads_length_ratio else ("2",)  # the second training resumes
    more = ("--cross-mixer", name)
    state = train_and_translate(monkeypatch, capsys, data, tmp_path, "rposnet_tiny", *more, updates=parts)
    stored = state["model"].get("decoder.length_ratio_version")
    if not get_mixer(name).reads_length_ratio:
        assert stored is None
        return
    length_ratio.main([str(data)])
    source, target = stored.tolist()
    assert capsys.readouterr().out == f"1.000000 ({source:,} source tokens / {target:,} target tokens)\n"
    text = (data / "train.size").read_text()
    assert str(source) == text
