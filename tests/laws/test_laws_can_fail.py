"""Laws against a mixer that breaks them: a law that nothing breaks proves nothing."""

import dataclasses

import pytest
import torch

from posnet_fairseq.inference import stored_energies
from posnet_fairseq.mixers.bases import banded, context, decoding_state, position_based, positions
from posnet_fairseq.mixers.rposnet import RelativeEnergy, RPosNet
from posnet_fairseq.ops import static_mixing
from posnet_fairseq.ops.static_mixing import mix_all
from posnet_fairseq.shared.errors import UsageError
from support import laws
from support.building import MAX_POSITIONS, Case, build_case


def _without_padding_mask(monkeypatch):
    monkeypatch.setattr(position_based, "mix_real", lambda weights, value, *_: mix_all(weights, value))


def _with_padding_of_the_first_sentence(monkeypatch):
    mix_real = position_based.mix_real

    def first_for_all(weights, value, part):
        return mix_real(weights, value, part[:1].expand_as(part))

    monkeypatch.setattr(position_based, "mix_real", first_for_all)


def _seeing_the_future(monkeypatch):
    monkeypatch.setattr(RPosNet, "causal", False)


def _without_reorder(monkeypatch):
    monkeypatch.setattr(decoding_state.DecodingState, "reorder", lambda *_: None)


def _off_by_one_step(monkeypatch):
    step = RPosNet.step

    def late(self, query, state, *arguments):
        true = state.position
        state.position = max(0, true - 1)
        result = step(self, query, state, *arguments)
        state.position = true + 1
        return result

    monkeypatch.setattr(RPosNet, "step", late)


def _forgetting_what_is_far(monkeypatch):
    append = banded.append

    def into_an_empty_sum(slots, *arguments):
        return append(slots.index_fill(2, torch.tensor([slots.size(2) - 1]), 0), *arguments)

    monkeypatch.setattr(banded, "append", into_an_empty_sum)


def _dividing_by_nothing(monkeypatch):
    """0 / 0 where a sentence has no real token."""

    def divided(weights, value, part):
        return (mix_all(weights, value) / part[..., None]).to(value.dtype)

    monkeypatch.setattr(position_based, "mix_real", divided)
    monkeypatch.setattr(position_based, "is_exact", lambda *_: True)


def _with_constant_weights(monkeypatch):
    forward = RelativeEnergy.forward
    monkeypatch.setattr(RelativeEnergy, "forward", lambda *arguments: torch.zeros_like(forward(*arguments)))


def _mixing_nothing(monkeypatch):
    monkeypatch.setattr(position_based, "mix_all", lambda weights, value: 0 * mix_all(weights, value))
    monkeypatch.setattr(static_mixing, "mix_all", lambda weights, value: 0 * mix_all(weights, value))


def _with_one_position_less(monkeypatch):
    check = positions.Positions.check_length
    monkeypatch.setattr(positions.Positions, "check_length", lambda self, longest: check(self, longest + 1))


def _with_a_number_that_is_not_saved(monkeypatch):
    forward = RelativeEnergy.forward

    def shifted(self, offsets, *arguments):
        if not hasattr(self, "unsaved"):
            self.unsaved = torch.randn(MAX_POSITIONS)
        return forward(self, offsets, *arguments) + self.unsaved[: offsets.size(1)]

    monkeypatch.setattr(RelativeEnergy, "forward", shifted)


def _with_a_length_ratio_of_one_in_steps(monkeypatch):
    offsets = context.MixingContext.offsets

    def forgetful(self, *arguments):
        return offsets(self if self.state is None else dataclasses.replace(self, length_ratio=(1, 1)), *arguments)

    monkeypatch.setattr(context.MixingContext, "offsets", forgetful)


def _compiled_to_something_else(monkeypatch):
    compiled = torch.compile

    def wrong(model, **options):
        traced = compiled(model, **options)
        return lambda *arguments: (1.1 * traced(*arguments)[0],)

    monkeypatch.setattr(torch, "compile", wrong)


def _storing_another_table(monkeypatch):
    where = stored_energies._where

    def shifted(*arguments):
        queries, keys, context = where(*arguments)
        return queries, keys, dataclasses.replace(context, positions=context.positions.roll(1, dims=0))

    monkeypatch.setattr(stored_energies, "_where", shifted)


def build(place):
    return build_case(Case("rposnet", place, "gelu"), encoder_layers=1, decoder_layers=1)


def _storing(model):
    laws.storing_energies_changes_nothing(model, build("decoder"))


def _saving_and_loading(model):
    laws.saving_and_loading_change_nothing(model, build("decoder"))


@pytest.mark.parametrize(
    ("place", "breakage", "law"),
    [
        ("cross", _without_padding_mask, laws.padding_on_either_side_changes_nothing),
        ("cross", _with_a_length_ratio_of_one_in_steps, laws.steps_equal_the_full_pass),
        ("cross", _mixing_nothing, laws.every_token_reaches_every_query),
        ("encoder", _without_padding_mask, laws.padding_on_either_side_changes_nothing),
        ("encoder", _with_padding_of_the_first_sentence, laws.padding_on_either_side_changes_nothing),
        ("decoder", _seeing_the_future, laws.steps_equal_the_full_pass),
        ("decoder", _without_reorder, laws.steps_equal_the_full_pass),
        ("decoder", _off_by_one_step, laws.steps_equal_the_full_pass),
        ("decoder", _forgetting_what_is_far, laws.steps_equal_the_full_pass),
        ("encoder", _compiled_to_something_else, laws.compiling_changes_nothing),
        ("encoder", _dividing_by_nothing, lambda model: laws.half_precision_stays_finite(model, torch.float16)),
        ("encoder", _dividing_by_nothing, lambda model: laws.autocast_stays_finite(model, torch.float16)),
        ("encoder", _with_constant_weights, laws.every_parameter_learns),
        ("encoder", _mixing_nothing, laws.every_token_reaches_every_query),
        ("decoder", _mixing_nothing, laws.every_token_reaches_every_query),
        ("decoder", _with_a_number_that_is_not_saved, _saving_and_loading),
        ("decoder", _storing_another_table, _storing),
        ("decoder", _with_one_position_less, laws.steps_equal_the_full_pass),
    ],
)
@pytest.mark.quick_cases(6)
def test_law_fails(monkeypatch, place, breakage, law):
    law(build(place))
    breakage(monkeypatch)
    with pytest.raises((AssertionError, UsageError)):
        law(build(place))
