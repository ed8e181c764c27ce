"""``posnet_fairseq.testing.check_mixer``: the laws for a mixer of one's own."""

import dataclasses

import pytest
import torch

from posnet_fairseq import registry
from posnet_fairseq.mixers.attention import Attention
from posnet_fairseq.mixers.bases import (
    Energy,
    Options,
    PositionBasedMixer,
    RecurrentMixer,
    TokenMixer,
    enough,
    option,
)
from posnet_fairseq.mixers.bases.mixer_settings import check_head_dim
from posnet_fairseq.ops.recurrence import Terms
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.testing import check_mixer


@pytest.fixture
def register(monkeypatch):
    """Register mixers for one test."""
    monkeypatch.setattr(registry, "_MIXERS", dict(registry._MIXERS))
    return registry.register_mixer


def test_laws_hold_for_a_window_that_ends_within_padding():
    check_mixer("lightconv", clip_distance=3)


class Mine(PositionBasedMixer):
    """It overrides `energy`, so that there is nothing to store, and has an option that is a text."""

    reads_positions = True

    @dataclasses.dataclass
    class Config(Options):
        function: str = option("what energies are made by", default="tanh")

    def energy(self, offsets, positions, memory_positions):
        queries, keys = (enough(positions, length, "positions")[:length] for length in offsets.shape)
        return getattr(torch, self.settings.options.function)(queries @ keys.T).expand(self.num_heads, -1, -1)


def test_laws_hold_for_energies_that_cannot_be_stored(register):
    register("mine")(Mine)
    check_mixer("mine", function="sin")


def test_laws_are_not_said_to_hold_where_there_are_none():
    with pytest.raises(UsageError, match="sasa mixes grids only"):
        check_mixer("sasa")


class Wide(Attention):
    """It has wider heads than those of check_mixer."""

    places = ("encoder",)

    @classmethod
    def check(cls, settings):
        check_head_dim(settings, 8, "are too narrow")


def test_laws_hold_for_a_mixer_that_needs_another_width(register):
    register("wide")(Wide)
    with pytest.raises(UsageError, match="num_heads 2: heads of 4 features are too narrow"):
        check_mixer("wide")
    check_mixer("wide", embed_dim=16)
    check_mixer("wide", num_heads=1)
    with pytest.raises(UsageError, match=r"^causal: check_mixer tries all places and gates\. Leave it out\.$"):
        check_mixer("wide", causal=True)


def test_laws_say_what_a_mixer_does_not_define(register):
    def broken(base, sentence, **attributes):
        register("unfinished")(type("Unfinished", (base,), {"places": ("encoder",), **attributes}))
        with pytest.raises(AssertionError, match=f"^unfinished, encoder, gate none: .*: {sentence}"):
            check_mixer("unfinished")

    def with_empty_energy(self, settings):
        PositionBasedMixer.__init__(self, settings)
        self.energies.append(Energy())

    def with_projections(self, settings):
        RecurrentMixer.__init__(self, settings, inputs=3 * settings.embed_dim, values=settings.embed_dim)

    def of_heads(self, x, context):
        return [self.heads(features) for features in self.in_proj(x).chunk(3, dim=-1)]

    broken(TokenMixer, "Unfinished does not define mix")
    broken(PositionBasedMixer, "Energy does not define table", __init__=with_empty_energy)
    defined = {"__init__": with_projections}
    broken(RecurrentMixer, "Unfinished does not define project", **defined)
    broken(RecurrentMixer, "Unfinished does not define terms", **(defined := defined | {"project": of_heads}))
    broken(
        RecurrentMixer,
        "Unfinished does not define finish",
        **defined,
        terms=lambda _, projected, *__: Terms(*projected),
    )
    same = {"hides_pairs": False, "mix": lambda self, query, memory, context: (self.project_values(memory), None)}
    broken(TokenMixer, "no weights are dropped: drop them with drop_probability, or set drops_weights = False", **same)
