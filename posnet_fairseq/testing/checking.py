"""All laws for one mixer."""

from typing import Any

import torch

from posnet_fairseq.mixers.bases.building import build_mixer
from posnet_fairseq.mixers.bases.gating import GATES
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.registry import get_mixer
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.testing import gradient_laws, mixer_laws, refusals, step_laws

LAWS = (
    mixer_laws.padding_changes_nothing,
    mixer_laws.the_future_changes_nothing,
    step_laws.steps_equal_the_full_pass,
    step_laws.steps_equal_the_full_pass_to_the_last_position,
    step_laws.hypotheses_that_move_keep_their_past,
    step_laws.positions_of_its_own_serve_both_ways,
    mixer_laws.storing_energies_changes_nothing,
    mixer_laws.saving_and_loading_change_nothing,
    mixer_laws.half_precision_stays_finite,
    mixer_laws.every_length_works,
    mixer_laws.tokens_without_positions_are_refused,
    mixer_laws.asking_for_weights_changes_nothing,
    mixer_laws.retained_dropout_is_that_of_training,
    mixer_laws.hypotheses_drop_weights_of_their_own,
    refusals.a_prompt_is_refused,
    refusals.padding_before_tokens_is_refused,
    refusals.arguments_that_do_not_fit_are_refused,
    mixer_laws.arguments_and_states_are_left_alone,
    mixer_laws.a_copy_is_the_same_mixer_with_a_state_of_its_own,
    mixer_laws.other_precisions_round_and_nothing_else,
    gradient_laws.gradients_are_those_of_the_call,
    gradient_laws.transforms_are_right_or_refused,
    gradient_laws.layout_in_memory_changes_nothing,
    gradient_laws.what_needs_no_gradient_changes_no_other,
    gradient_laws.dropout_of_the_backward_pass_is_that_of_the_forward_pass,
    gradient_laws.second_derivatives_are_right_or_refused,
)


def check_mixer(name: str, **options: Any) -> None:
    """Run all laws for a registered mixer, in every place where it may stand and with every gate that it takes.

    Its formula is not among them: compare it with a slow reference in a test of your own.

    Args:
        name: what it was registered as.
        options: its own options, as for :func:`posnet_fairseq.build_mixer`.

    Raises:
        AssertionError: a law is broken; the text names it, the place and the gate.
        UsageError: there is no such mixer, or it does not take these options with any gate.
    """
    for place in get_mixer(name).places:
        built = 0
        for gate in GATES:
            try:
                _build(name, place, gate, options)
            except UsageError:
                if gate == GATES[-1] and not built:
                    raise
                continue
            built += 1
            for law in LAWS:
                torch.manual_seed(1)
                try:
                    law(_build(name, place, gate, options))
                except Exception as error:
                    raise AssertionError(f"{name}, {place}, gate {gate}: {law.__name__}: {error}") from error


def _build(name: str, place: str, gate: str, options: dict[str, Any]) -> TokenMixer:
    """A small mixer in float64, with weights away from where they start: unit norms would hide mistakes."""
    where = {"decoder": {"causal": True}, "cross": {"cross_attention": True}}.get(place, {})
    mixer = build_mixer(name, 8, 2, 64, gate=gate, position_embedding="none", **where, **options).double().eval()
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return mixer
