"""posnet-precompute. That its tables change nothing is a law: tests/laws."""

import re

import pytest
import torch

import posnet_fairseq as posnet
from posnet_fairseq.cli import average, precompute
from posnet_fairseq.inference.checkpoints import read_checkpoint
from posnet_fairseq.inference.stored_energies import precompute as precompute_energies
from posnet_fairseq.inference.stored_energies import store
from posnet_fairseq.mixers.bases.context import MixingContext
from posnet_fairseq.registry import get_mixer
from posnet_fairseq.shared.errors import UsageError
from support.building import build_model
from support.checkpoints import checkpoint, fairseqs_model, precomputed
from support.commands import fails


def test_what_made_the_tables_is_dropped(tmp_path, capsys):
    path = checkpoint(tmp_path / "model.pt", "rposnet", cross_mixer="arposnet", length_ratio="1.25")
    weights = read_checkpoint(precomputed(path))["model"]
    assert not [name for name in weights if "query_proj" in name or "key_proj" in name or "positions.norm" in name]
    assert weights["encoder.layers.0.self_attn.energies.0.stored"].shape == (4, 24, 17)
    assert weights["decoder.layers.1.cross_attn.energies.1.stored"].shape == (4, 24, 24)
    before, after = capsys.readouterr().out.strip().split("\n")
    assert before.startswith(f"{path}: {parameters(path):,} parameters, ")
    assert after.startswith(f"{tmp_path / 'fast.pt'}: {parameters(tmp_path / 'fast.pt'):,} parameters, ")


def parameters(path):
    return sum(parameter.numel() for parameter in fairseqs_model(read_checkpoint(path)).parameters())


def test_shared_embeddings_stay_shared_in_half_precision(tmp_path):
    path = checkpoint(tmp_path / "model.pt", "rposnet")
    state = torch.load(path, weights_only=True)
    state["model"] = {name: t.half() if t.is_floating_point() else t for name, t in state["model"].items()}
    torch.save(state, path)
    weights = torch.load(precomputed(path), weights_only=True)["model"]
    assert weights["encoder.embed_tokens.weight"].dtype == torch.float16
    assert weights["encoder.layers.0.self_attn.energies.0.stored"].dtype == torch.float16
    names = ("encoder.embed_tokens.weight", "decoder.output_projection.weight")
    assert len({weights[name].data_ptr() for name in names}) == 1


@pytest.mark.parametrize(("mixer", "changed"), [("rposnet", "clip_distance"), ("aposnet", "num_heads")])
@pytest.mark.parametrize("value", [1, 2, 8])
def test_tables_of_other_mixers_are_refused(mixer, changed, value):
    """As their other weights are, also where they could be read: by another clip distance, or as one head for all."""
    place = {"embed_dim": 16, "num_heads": 4, "max_positions": 9}
    of_four, other = (posnet.build_mixer(mixer, **place | {changed: number}).eval() for number in (4, value))
    for each in (of_four, other):
        positions = each.own_positions.for_mixers(9) if each.own_positions else None
        store(each, 9, 9, MixingContext(positions=positions))
    with pytest.raises(RuntimeError, match=r"size mismatch for energies\.0\.stored"):
        other.load_state_dict(of_four.state_dict())


@pytest.mark.parametrize("mixer", ["linearnet", "translution", "alpha_translution"])
def test_tables_of_a_shorter_length(tmp_path, mixer):
    """Matrices of offsets stay those of their offsets."""
    options = {} if mixer == "linearnet" else {"translution_clip": 12}
    path = checkpoint(tmp_path / "model.pt", mixer, decoder_self_mixer="rposnet", **options)
    state = read_checkpoint(precomputed(path, "--max-length", 9))
    assert state["cfg"]["model"]["max_source_positions"] == state["cfg"]["task"]["max_target_positions"] == 9
    if mixer == "linearnet":
        assert state["model"]["encoder.layers.0.self_attn.weight"].shape == (4, 9, 9)
    assert state["model"]["decoder.positions.weight"].shape == (9, 16)
    tokens = torch.randint(4, 40, (2, 9))
    full, short = fairseqs_model(read_checkpoint(path)), fairseqs_model(state)
    torch.testing.assert_close(short(tokens, None, tokens)[0], full(tokens, None, tokens)[0])
    with pytest.raises(UsageError, match="9 positions of this model"):
        short(torch.randint(4, 40, (2, 10)), None, tokens)


def test_mixers_without_energies_keep_their_positions(monkeypatch):
    """None of posnet's own reads any."""
    monkeypatch.setattr(get_mixer("attention"), "reads_positions", True)
    model = build_model("attention", cross_mixer="rposnet", length_ratio="1.25")
    before = model.encoder.positions.for_mixers(3)
    precompute_energies(model)
    torch.testing.assert_close(model.encoder.positions.for_mixers(3), before)


@pytest.mark.parametrize("mixer", ["attention", "fouriernet", "lightconv"])
def test_nothing_to_precompute(tmp_path, capsys, mixer):
    path, says = checkpoint(tmp_path / "model.pt", mixer), rf"has nothing to precompute: its mixers \(.*{mixer}"
    if mixer == "lightconv":
        path, says = precomputed(path), "is precomputed already"
        capsys.readouterr()
    assert re.search(says, fails(capsys, precompute.main, path, "--out", tmp_path / "again.pt"))
    assert not (tmp_path / "again.pt").exists()
    if mixer == "attention":
        precompute.main([str(path), "--out", str(tmp_path / "copy.pt"), "--or-copy", "--max-length", "9"])
        assert "a copy of it. Its maximum length is unchanged: --max-length 9 limits tables." in capsys.readouterr().out


def test_precomputed_model_is_not_trained(tmp_path):
    model = fairseqs_model(read_checkpoint(precomputed(checkpoint(tmp_path / "model.pt", "gaussiannet"))))
    with pytest.raises(UsageError, match="precomputed for inference"):
        model.train()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--out {0}/fast.pt --data {0}", "--data .* is read to check --max-length. Give that too"),
        ("--out {0}/fast.pt --max-length 0", "give 1 or more, and at most the model's --max-source-positions 24"),
        ("--out {0}/fast.pt --data {0}/none --max-length 9", "none holds no binarized set to translate"),
    ],
)
def test_places_that_are_not_right(tmp_path, capsys, arguments, sentence):
    path = checkpoint(tmp_path / "model.pt", "rposnet")
    assert re.search(sentence, fails(capsys, precompute.main, path, *arguments.format(tmp_path).split()))


def test_missing_data_is_told(tmp_path, capsys):
    precomputed(checkpoint(tmp_path / "model.pt", "rposnet"), "--max-length", 9)
    assert "nothing tells whether 9 tokens are enough" in capsys.readouterr().err


def test_tables_are_not_averaged(tmp_path, capsys):
    path = precomputed(checkpoint(tmp_path / "model.pt", "rposnet"))
    path.rename(tmp_path / "checkpoint_1_20.pt")
    capsys.readouterr()
    line = fails(capsys, average.main, tmp_path, "--num", "1", "--out", tmp_path / "mean.pt")
    assert "is precomputed: the mean of its tables" in line
