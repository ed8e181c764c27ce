"""A mixer that is built without a model: what no mixer can be is refused, with what is allowed."""

import dataclasses

import pytest
import torch

from posnet_fairseq.ops import chunks
from posnet_fairseq.registry import get_mixer, mixer_names
from posnet_fairseq.shared.errors import UsageError
from support.building import build_mixer, settings


def test_every_mixer_refuses_a_place_where_it_cannot_stand():
    for name in mixer_names():
        for place in {"encoder", "decoder", "cross"} - set(get_mixer(name).places):
            with pytest.raises(
                UsageError, match=rf"-mixer {name}: this mixer cannot stand there. Choose one of: .*attention"
            ):
                settings(name, place)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"place": "decoder_self"}, "place decoder_self: choose one of encoder, decoder, cross"),
        ({"gate": "sigmoid"}, "--gate sigmoid: choose one of none, gelu, glu"),
        ({"gate": None}, "--gate None: choose one of"),
        ({"embed_dim": 0}, "--encoder-embed-dim 0: give 1 or more"),
        ({"embed_dim": 7}, r"--encoder-attention-heads 2 must divide --encoder-embed-dim 7\."),
        ({"embed_dim": 8.0}, r"--encoder-embed-dim 8\.0: give a whole number"),
        ({"num_heads": 0}, "--encoder-attention-heads 0: give 1 or more"),
        ({"num_heads": -2}, "--encoder-attention-heads -2"),
        ({"memory_dim": 0}, "--memory-dim 0"),
        ({"memory_dim": 6}, "memory_dim 6: self-attention mixes its queries, so give embed_dim, 8"),
        ({"max_positions": 0}, "--max-source-positions 0"),
        ({"dropout": 1.0}, r"--attention-dropout 1\.0: give 0 or more and less than 1"),
        ({"dropout": -0.1}, r"--attention-dropout -0\.1"),
        ({"dropout": float("nan")}, "--attention-dropout nan"),
    ],
    ids=str,
)
def test_settings_of_no_mixer_are_refused(change, sentence):
    with pytest.raises(UsageError, match=sentence):
        dataclasses.replace(settings("rposnet", "encoder"), **change)


def test_options_of_another_mixer_are_refused():
    with pytest.raises(UsageError, match=r"options of the type Config: .* RPosNet\.Config\(\)"):
        settings("rposnet", "encoder", options=get_mixer("irpe").Config())


def test_a_mixer_by_itself_is_checked_as_in_a_model():
    with pytest.raises(UsageError, match="--max-source-positions 5000: linearnet"):
        settings("linearnet", "encoder", max_positions=5000)
    with pytest.raises(UsageError, match="cannot be turned in pairs"):
        settings("rope", "encoder", embed_dim=6)


ABSURD = [
    ("shaw", {"clip_distance": 65537}, "--clip-distance 65537: give 1 or more, and at most 65,536"),
    ("irpe", {"irpe_beta": 10**9}, "--irpe-beta 1000000000: give 1 or more, and at most 65,536"),
    ("alpha_translution", {"alpha_dim": 60_000}, "--translution-clip left out: .* more than 2147483648 numbers"),
]


@pytest.mark.parametrize(("name", "options", "sentence"), ABSURD, ids=str)
def test_distances_that_fill_the_memory_are_refused_before_they_do(name, options, sentence):
    with pytest.raises(UsageError, match=sentence):
        build_mixer(name, **options)


def test_all_offsets_of_sentences_that_have_too_many_are_refused():
    with pytest.raises(UsageError, match="--translution-clip left out: 1999999 matrices"):
        settings("translution", "encoder", embed_dim=192, max_positions=10**6)


def test_parameters_that_change_before_the_backward_pass_are_refused(monkeypatch):
    """As autograd does where nothing is made again."""
    monkeypatch.setattr(chunks, "CPU_LIMIT", 1)
    mixer = build_mixer("shaw")
    monkeypatch.setattr(mixer, "should_recompute", lambda keys: True)
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    output = mixer(x, x)
    with torch.no_grad():
        mixer.relative_key.add_(1)
    with pytest.raises(RuntimeError, match="relative_key of Shaw has been modified by an inplace operation"):
        output.sum().backward()
