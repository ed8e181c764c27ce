"""Laws against a mixer that breaks them: a law that nothing breaks proves nothing."""

import dataclasses

import laws
import pytest
import torch
from building import build_case

from posnet_fairseq import positions
from posnet_fairseq.errors import UsageError
from posnet_fairseq.mixers import _base, _position_based, attention
from posnet_fairseq.mixers.rposnet import RPosNet
from posnet_fairseq.ops import masking, static_mixing


def _without_padding_mask(monkeypatch):
    monkeypatch.setattr(_position_based, "static_weights", lambda energy, mask: energy.softmax(-1).unsqueeze(0))


def _with_padding_of_the_first_sentence(monkeypatch):
    static_weights = _position_based.static_weights

    def first_for_all(energy, mask):
        return static_weights(energy, None if mask is None else mask[:1].expand_as(mask))

    monkeypatch.setattr(_position_based, "static_weights", first_for_all)


def _seeing_the_future(monkeypatch):
    monkeypatch.setattr(RPosNet, "causal", False)


def _without_reorder(monkeypatch):
    monkeypatch.setattr(_base.TokenMixer, "reorder_incremental_state", lambda *_: None)


def _off_by_one_step(monkeypatch):
    energy = RPosNet._energy

    def late(self, queries, keys, context):
        if context.state is None or context.first == 0:
            return energy(self, queries, keys, context)
        return energy(self, queries, keys, dataclasses.replace(context, first=context.first - 1))

    monkeypatch.setattr(RPosNet, "_energy", late)


def _with_infinite_mask(monkeypatch):
    for module in (_position_based, attention, masking, static_mixing):
        monkeypatch.setattr(module, "masked_energy", lambda dtype: -torch.inf)


def _with_constant_weights(monkeypatch):
    monkeypatch.setattr(RPosNet, "energy", lambda self, q, m: q.new_zeros(self.num_heads, len(q), len(m)))


def _mixing_nothing(monkeypatch):
    mix = _position_based.mix_static
    monkeypatch.setattr(_position_based, "mix_static", lambda weights, value: 0 * mix(weights, value))


def _with_one_position_less(monkeypatch):
    check = positions.Positions.check_length
    monkeypatch.setattr(positions.Positions, "check_length", lambda self, longest: check(self, longest + 1))


def _with_a_number_that_is_not_saved(monkeypatch):
    energy = RPosNet.energy

    def shifted(self, query_positions, memory_positions):
        if not hasattr(self, "unsaved"):
            self.unsaved = torch.randn(len(memory_positions))
        return energy(self, query_positions, memory_positions) + self.unsaved[: len(memory_positions)]

    monkeypatch.setattr(RPosNet, "energy", shifted)


def _saving_and_loading(model):
    laws.saving_and_loading_change_nothing(model, build_case("rposnet", "decoder", "gelu"))


@pytest.mark.parametrize(
    ("place", "breakage", "law"),
    [
        ("encoder", _without_padding_mask, laws.padding_on_either_side_changes_nothing),
        ("encoder", _with_padding_of_the_first_sentence, laws.order_of_the_batch_changes_nothing),
        ("decoder", _seeing_the_future, laws.the_future_changes_nothing),
        ("decoder", _without_reorder, laws.steps_equal_the_full_pass),
        ("decoder", _off_by_one_step, laws.steps_equal_the_full_pass),
        ("encoder", _with_infinite_mask, lambda model: laws.half_precision_stays_finite(model, torch.float16)),
        ("encoder", _with_infinite_mask, lambda model: laws.autocast_stays_finite(model, torch.float16)),
        ("encoder", _with_constant_weights, laws.every_parameter_learns),
        ("encoder", _mixing_nothing, laws.every_token_reaches_every_query),
        ("decoder", _mixing_nothing, laws.every_token_reaches_every_query),
        ("decoder", _with_a_number_that_is_not_saved, _saving_and_loading),
        ("decoder", _with_one_position_less, laws.steps_equal_the_full_pass),
    ],
)
def test_law_fails(monkeypatch, place, breakage, law):
    law(build_case("rposnet", place, "gelu"))
    breakage(monkeypatch)
    with pytest.raises((AssertionError, UsageError)):
        law(build_case("rposnet", place, "gelu"))
