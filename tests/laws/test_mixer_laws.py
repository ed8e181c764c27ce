"""The laws of a mixer by itself, for every registered one in every place, with every choice of its options."""

import mixer_laws
import pytest
from building import build_mixer, mixer_cases

from posnet_fairseq.mixers._base import TokenMixer
from posnet_fairseq.ops import band, chunks
from posnet_fairseq.registry import get_mixer

CASES = [case for case in mixer_cases() if case.options or case.gate == get_mixer(case.mixer).default_gate]
STEPPING = [case for case in CASES if case.place != "encoder"]

PLAIN = [
    mixer_laws.retained_dropout_is_that_of_training,
    mixer_laws.transforms_are_right_or_refused,
    mixer_laws.padding_before_tokens_is_refused,
    mixer_laws.arguments_that_do_not_fit_are_refused,
    mixer_laws.arguments_and_states_are_left_alone,
    mixer_laws.layout_in_memory_changes_nothing,
    mixer_laws.what_needs_no_gradient_changes_no_other,
    mixer_laws.a_copy_is_the_same_mixer_with_a_state_of_its_own,
    mixer_laws.other_precisions_round_and_nothing_else,
]
# Of what is done otherwise for long sentences.
LONG = [
    mixer_laws.second_derivatives_are_right,
    mixer_laws.gradients_are_those_of_the_call,
    mixer_laws.transforms_are_right_or_refused,
    mixer_laws.dropout_of_the_backward_pass_is_that_of_the_forward_pass,
    mixer_laws.layout_in_memory_changes_nothing,
    mixer_laws.what_needs_no_gradient_changes_no_other,
]
IN_STEPS = [
    mixer_laws.a_prompt_is_refused_or_right,
    mixer_laws.a_step_that_was_left_out_is_refused_or_right,
]


def build(case):
    return build_mixer(case.mixer, case.place, case.gate, **dict(case.options))


def as_for_long_sentences(monkeypatch):
    """Bands, and a sentence at a time whose energies are made again in the backward pass."""
    monkeypatch.setattr(band, "FEWEST_BLOCKS", 0)
    monkeypatch.setattr(band, "SMALLEST_BLOCK", 2)
    monkeypatch.setattr(chunks, "CPU_LIMIT", 1)
    monkeypatch.setattr(TokenMixer, "outweighs", lambda *_: True)


def named(law):
    return law.__name__


@pytest.mark.parametrize("law", PLAIN, ids=named)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_law(case, law):
    law(build(case))


@pytest.mark.parametrize("law", LONG, ids=named)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_law_in_the_form_for_long_sentences(monkeypatch, case, law):
    as_for_long_sentences(monkeypatch)
    law(build(case))


@pytest.mark.parametrize("law", IN_STEPS, ids=named)
@pytest.mark.parametrize("case", STEPPING, ids=str)
def test_law_of_steps(case, law):
    law(build(case))


@pytest.mark.parametrize("case", [case for case in CASES if case.place == "cross"], ids=str)
def test_hypotheses_drop_weights_of_their_own(case):
    mixer_laws.hypotheses_drop_weights_of_their_own(build(case))
