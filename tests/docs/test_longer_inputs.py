"""docs/mixers/index.md: what mixers do at positions that did not occur in training."""

import dataclasses
import re

import pytest
import torch

from posnet_fairseq import build_mixer
from posnet_fairseq.registry import get_mixer, mixer_names
from support.commands import ROOT

_, SECTION = (ROOT / "docs/mixers/index.md").read_text().split("## Inputs longer than in training")
ROWS = [
    (re.findall(r"`(\w+)`", mixers), text)
    for mixers, text in re.findall(r"^\| (`\w+`.*?) \| (.*?) \|$", SECTION, re.MULTILINE)
]
TRAINED, LONGER = 12, 40


def those(*words):
    """The mixers of the rows that have one of the words."""
    return {name for mixers, text in ROWS if any(word in text for word in words) for name in mixers}


def with_gradients(mixer, length):
    """Which numbers of a mixer's parameters a sentence of some length trains."""
    x = torch.randn(1, length, 16, dtype=torch.float64)
    gradients = torch.autograd.grad(mixer(x).pow(2).sum(), [*mixer.parameters()], materialize_grads=True)
    return [gradient.abs() > 1e-12 for gradient in gradients]


def has_untrained(name, clip):
    """Whether longer sentences use numbers that those of the training do not."""
    torch.manual_seed(1)
    clipped = [each.name for each in dataclasses.fields(get_mixer(name).Config) if each.metadata.get("reach")]
    mixer = build_mixer(name, embed_dim=16, num_heads=2, max_positions=64, **dict.fromkeys(clipped, clip)).double()
    if not [*mixer.parameters()]:
        return False
    short, long = with_gradients(mixer, TRAINED), with_gradients(mixer, LONGER)
    return any(bool((after & ~before).any()) for before, after in zip(short, long, strict=True))


def test_every_mixer_is_in_one_row():
    assert sorted(name for mixers, _ in ROWS for name in mixers) == mixer_names()


@pytest.mark.parametrize("name", mixer_names())
def test_what_is_random_was_not_trained(name):
    """With a clip distance that training reaches, and with one that it does not."""
    assert has_untrained(name, clip=4) == (name in those("are random:", "vectors are random"))
    assert has_untrained(name, clip=16) == (name in those("are random", "fixed size") - {"gaussiannet"})


def test_sinusoids_are_added_to_words_by_default_but_for_these():
    listed = re.findall(r"`(\w+)`", SECTION.split("by default, except with")[1].split(".")[0])
    assert set(listed) == {name for name in mixer_names() if get_mixer(name).position_embedding != "sinusoidal"}
    assert those("vectors are random") == {
        name for name in mixer_names() if get_mixer(name).position_embedding == "learned"
    }
