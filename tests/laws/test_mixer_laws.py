"""The laws of a mixer by itself, for every registered one in every place, with every choice of its options."""

import dataclasses
import functools

import pytest
import torch
from torch.autograd.function import once_differentiable

from posnet_fairseq.mixers.aposnet import APosNet
from posnet_fairseq.mixers.bases import position_based, token_mixer
from posnet_fairseq.mixers.bases.content_based import ContentBasedMixer
from posnet_fairseq.mixers.bases.decoding_state import DecodingState
from posnet_fairseq.mixers.bases.position_based import PositionBasedMixer
from posnet_fairseq.mixers.bases.recurrent import RecurrentMixer
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.mixers.lightconv import Kernel
from posnet_fairseq.mixers.shaw import Shaw
from posnet_fairseq.ops import beam_backpointers, chunks, decayed_products
from posnet_fairseq.ops.short_convolution import ShortConvolution
from posnet_fairseq.ops.static_mixing import mix_all
from posnet_fairseq.registry import get_mixer
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.testing import LAWS, gradient_laws
from support import laws
from support.building import (
    MAX_POSITIONS,
    USUAL,
    build_case,
    build_mixer,
    build_model,
    mixer_cases,
    pad,
    sentences,
    usual_gate,
)

CASES = [case for case in mixer_cases() if case.options or case.gate == usual_gate(case)]
# What is done otherwise for long sentences are derivatives. Of transforms torch says that it does not know them there.
DERIVATIVES = [law for law in LAWS if law.__module__ == gradient_laws.__name__]
DERIVATIVES.remove(gradient_laws.transforms_are_right_or_refused)
OTHERS = [law for law in LAWS if law not in DERIVATIVES]


def build(case):
    """With more positions than two sizes of tables that steps share: 16 and 32."""
    return build_mixer(case.mixer, case.place, case.gate, max_positions=40, **dict(case.options))


def as_for_long_sentences(monkeypatch):
    """A sentence at a time, whose energies are made again in the backward pass."""
    monkeypatch.setattr(chunks, "CPU_LIMIT", 1)
    monkeypatch.setattr(TokenMixer, "should_recompute", lambda *_: True)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_laws(case):
    for law in OTHERS:
        torch.manual_seed(1)
        law(build(case))


@pytest.mark.parametrize("case", USUAL, ids=str)
def test_laws_of_derivatives_in_the_form_for_long_sentences(monkeypatch, case):
    as_for_long_sentences(monkeypatch)
    for law in DERIVATIVES:
        torch.manual_seed(1)
        law(build(case))


# K, β or the like beyond the longest sentence: every offset has a row of its own, and some rows are never read.
BEYOND = [
    (case, option.name)
    for case in USUAL
    for option in dataclasses.fields(get_mixer(case.mixer).Config)
    if option.metadata.get("reach")
]


@pytest.mark.parametrize(("case", "option"), BEYOND, ids=str)
def test_laws_with_more_offsets_than_positions(case, option):
    case = dataclasses.replace(case, options=(*case.options, (option, MAX_POSITIONS + 7)))
    laws.padding_on_either_side_changes_nothing(build_case(case))
    laws.steps_equal_the_full_pass(build_case(case))
    if get_mixer(case.mixer).static:
        laws.storing_energies_changes_nothing(build_case(case), build_case(case))


def test_models_retain_the_dropout_of_all_their_mixers():
    """As fairseq-generate asks for it."""
    model = build_model("attention", attention_dropout=0.5)
    model.make_generation_fast_(retain_dropout=True, retain_dropout_modules=["Attention"])
    source, target = pad(sentences(5)), pad(sentences(6))
    first, second = (laws.decode(model, source, target) for _ in range(2))
    assert not torch.equal(first, second)
    for mixer in (model.encoder.layers[0].self_attn, model.decoder.layers[0].self_attn):
        assert mixer.drop_probability == 0.5
    model = build_model("attention", dropout=0.5)
    model.make_generation_fast_(retain_dropout=True, retain_dropout_modules=["DecoderLayer"])
    layers = model.encoder.layers[0], model.decoder.layers[0]
    assert [layer.dropout.retained for layer in layers] == [False, True]


class Breakage:
    """Mixers that break the laws: each takes monkeypatch."""

    @staticmethod
    def dropping_in_training_only(monkeypatch):
        probability = TokenMixer.drop_probability.fget
        monkeypatch.setattr(
            TokenMixer, "drop_probability", property(lambda self: probability(self) if self.training else 0.0)
        )

    @staticmethod
    def differentiable_once(monkeypatch):
        products = decayed_products._Products
        monkeypatch.setattr(products, "backward", staticmethod(once_differentiable(products.backward.__wrapped__)))

    @staticmethod
    def reading_the_tensors_of_later(monkeypatch):
        monkeypatch.setattr(chunks, "_bound_to_current_tensors", lambda module, function: function)

    @staticmethod
    def without_checks(monkeypatch):
        for check in ("check_call", "check_step", "check_vectors", "check_length_ratio", "refuse_other_dtype"):
            monkeypatch.setattr(token_mixer, check, lambda *_, **__: None)

    @staticmethod
    def with_a_table_of_one_dimension_less(monkeypatch):
        table = Kernel.table
        monkeypatch.setattr(Kernel, "table", lambda *arguments: table(*arguments)[:, 0])

    @staticmethod
    def without_energies(monkeypatch):
        monkeypatch.setattr(torch.nn.ModuleList, "append", lambda self, module: self)

    @staticmethod
    def declaring_no_length_ratio(monkeypatch):
        monkeypatch.setattr(Shaw, "reads_length_ratio", False)

    @staticmethod
    def losing_gradients_of_nothing(monkeypatch):
        monkeypatch.setattr(TokenMixer, "_mix_nothing", lambda self, query, *_: (torch.zeros(query.shape), None))

    @staticmethod
    def taking_the_nearest_hypothesis(monkeypatch):
        reorder = DecodingState.reorder
        monkeypatch.setattr(DecodingState, "reorder", lambda self, order: reorder(self, order.clamp(0, 1)))

    @staticmethod
    def with_memory_of_any_length(monkeypatch):
        monkeypatch.setattr(TokenMixer, "max_memory", lambda _: None)

    @staticmethod
    def shifting_its_input(monkeypatch):
        value = TokenMixer.project_values
        monkeypatch.setattr(TokenMixer, "project_values", lambda self, memory: value(self, memory.data.add_(1)))

    @staticmethod
    def reading_rows_for_columns(monkeypatch):
        value = TokenMixer.project_values
        monkeypatch.setattr(TokenMixer, "project_values", lambda self, x: value(self, _as_if_contiguous(x)))

    @staticmethod
    def detaching_tokens(monkeypatch):
        value = TokenMixer.project_values

        def detached(self, memory):
            return value(self, memory if self.gating.value_proj.weight.requires_grad else memory.detach())

        monkeypatch.setattr(TokenMixer, "project_values", detached)

    @staticmethod
    def sharing_its_weights_with_no_copy(monkeypatch):
        def forget(self, state):
            torch.nn.Module.__setstate__(self, state)
            self.relative_key = torch.nn.Parameter(torch.randn_like(self.relative_key))

        monkeypatch.setattr(TokenMixer, "__setstate__", forget, raising=False)

    @staticmethod
    def mixing_up_ancestors(monkeypatch):
        write = beam_backpointers.write

        def wrong(memory, rows, new, position):
            write(memory, rows, new, position)
            rows[:, position % rows.size(1)] = 0

        monkeypatch.setattr(beam_backpointers, "write", wrong)

    @staticmethod
    def forgetting_old_tokens(monkeypatch):
        append = DecodingState.append

        def forgetful(self, name, new):
            return append(self, name, new).masked_fill(torch.arange(self.position + 1)[:, None] < self.position - 20, 0)

        monkeypatch.setattr(DecodingState, "append", forgetful)

    @staticmethod
    def seeing_the_far_future(monkeypatch):
        weights = ContentBasedMixer.weights

        def seeing(self, q, k, index, padding_mask, future):
            far = None if future is None else future.triu(40)
            return weights(self, q, k, index, padding_mask, None if future is None else future & ~far)

        monkeypatch.setattr(ContentBasedMixer, "weights", seeing)

    @staticmethod
    def with_values(monkeypatch, change):
        """`change` is a function of the mixer, the tokens and the values."""
        value = TokenMixer.project_values
        monkeypatch.setattr(TokenMixer, "project_values", lambda self, x: change(self, x, value(self, x)))

    @staticmethod
    def mixing_padding(monkeypatch):
        monkeypatch.setattr(position_based, "mix_real", lambda weights, value, *_: mix_all(weights, value))

    @staticmethod
    def with_a_number_that_is_not_saved(monkeypatch):
        def shifted(self, _, values):
            if not hasattr(self, "unsaved"):
                self.unsaved = torch.randn(1, dtype=values.dtype)
            return values + self.unsaved

        Breakage.with_values(monkeypatch, shifted)

    @staticmethod
    def storing_another_table(monkeypatch):
        store = PositionBasedMixer.store
        other = lambda self, index, table: store(self, index, table + torch.randn_like(table))  # noqa: E731
        monkeypatch.setattr(PositionBasedMixer, "store", other)

    @staticmethod
    def overflowing_in_half_precision(monkeypatch):
        Breakage.with_values(monkeypatch, lambda self, _, values: values * 1e5)

    @staticmethod
    def dividing_by_the_other_tokens(monkeypatch):
        Breakage.with_values(monkeypatch, lambda self, x, values: values / (x.size(1) - 1))

    @staticmethod
    def changing_with_the_weights_that_are_asked_for(monkeypatch):
        forward = TokenMixer.forward

        def asked(self, *arguments, need_weights=False, **named):
            found = forward(self, *arguments, need_weights=need_weights, **named)
            return (found[0] + 1, found[1]) if need_weights else found

        monkeypatch.setattr(TokenMixer, "forward", asked)

    @staticmethod
    def without_reorder(monkeypatch):
        monkeypatch.setattr(DecodingState, "reorder", lambda *_: None)

    @staticmethod
    def with_other_positions_of_its_own_in_steps(monkeypatch):
        step = TokenMixer.step

        def shifted(self, query, state, positions=None):
            return step(self, query, state, positions) + (positions is None)

        monkeypatch.setattr(TokenMixer, "step", shifted)

    @staticmethod
    def dropping_anew_in_the_backward_pass(monkeypatch):
        monkeypatch.setattr(chunks, "checkpoint", functools.partial(chunks.checkpoint, preserve_rng_state=False))

    @staticmethod
    def crashing_in_transforms(monkeypatch):
        value = TokenMixer.project_values

        def crash(self, memory):
            if torch._C._functorch.peek_interpreter_stack() is not None:
                raise RuntimeError("a mistake of the mixer")
            return value(self, memory)

        monkeypatch.setattr(TokenMixer, "project_values", crash)

    @staticmethod
    def rounding_to_few_digits(monkeypatch):
        value = TokenMixer.project_values
        monkeypatch.setattr(TokenMixer, "project_values", lambda self, x: _rounded(value(self, x)))

    @staticmethod
    def declaring_no_vectors(monkeypatch):
        monkeypatch.setattr(APosNet, "reads_positions", False)

    @staticmethod
    def declaring_no_vectors_of_the_memory(monkeypatch):
        monkeypatch.setattr(APosNet, "reads_memory_positions", False)

    @staticmethod
    def ignoring_hidden_pairs(monkeypatch):
        forward = TokenMixer.forward

        def see_all(self, *arguments, attn_mask=None, **others):
            return forward(self, *arguments, **others)

        monkeypatch.setattr(TokenMixer, "forward", see_all)

    @staticmethod
    def claiming_a_state_of_constant_size(monkeypatch):
        monkeypatch.setattr(Shaw, "constant_state", True)

    @staticmethod
    def reading_padding(monkeypatch):
        monkeypatch.setattr(RecurrentMixer, "_unpadded", staticmethod(lambda terms, padding: terms))

    @staticmethod
    def forgetting_the_last_inputs(monkeypatch):
        step = ShortConvolution.step

        def forgetful(self, x, last):
            return step(self, x, last)[0], torch.zeros_like(last)

        monkeypatch.setattr(ShortConvolution, "step", forgetful)


def _as_if_contiguous(x):
    return x.as_strided(x.shape, torch.empty(x.shape, device="meta").stride())


def _rounded(x):
    return x.bfloat16().to(x.dtype) if x.dtype == torch.float32 else x


BROKEN = [
    ("lightconv", "encoder", "with_a_table_of_one_dimension_less", "energies_have_tables_of_their_shape"),
    ("lightconv", "decoder", "without_energies", "energies_have_tables_of_their_shape"),
    ("shaw", "cross", "declaring_no_length_ratio", "the_length_ratio_is_read_as_declared"),
    ("aposnet", "encoder", "declaring_no_vectors", "vectors_are_read_as_declared"),
    ("aposnet", "cross", "declaring_no_vectors_of_the_memory", "vectors_are_read_as_declared"),
    ("shaw", "decoder", "ignoring_hidden_pairs", "hidden_pairs_are_not_mixed"),
    ("attention", "encoder", "dropping_in_training_only", "retained_dropout_is_that_of_training"),
    ("attention", "cross", "dropping_in_training_only", "hypotheses_drop_weights_of_their_own"),
    ("gla", "encoder", "differentiable_once", "second_derivatives_are_right_or_refused"),
    ("shaw", "encoder", "reading_the_tensors_of_later", "gradients_are_those_of_the_call"),
    ("rposnet", "encoder", "crashing_in_transforms", "transforms_are_right_or_refused"),
    ("aposnet", "encoder", "mixing_padding", "padding_changes_nothing"),
    ("rposnet", "encoder", "with_a_number_that_is_not_saved", "saving_and_loading_change_nothing"),
    ("rposnet", "encoder", "storing_another_table", "storing_energies_changes_nothing"),
    ("rposnet", "encoder", "overflowing_in_half_precision", "half_precision_stays_finite"),
    ("rposnet", "encoder", "dividing_by_the_other_tokens", "every_length_works"),
    ("shaw", "encoder", "changing_with_the_weights_that_are_asked_for", "asking_for_weights_changes_nothing"),
    ("shaw", "decoder", "without_reorder", "steps_equal_the_full_pass"),
    ("rposnet", "decoder", "with_other_positions_of_its_own_in_steps", "positions_of_its_own_serve_both_ways"),
    (
        "shaw",
        "encoder",
        "dropping_anew_in_the_backward_pass",
        "dropout_of_the_backward_pass_is_that_of_the_forward_pass",
    ),
    ("shaw", "decoder", "without_checks", "a_prompt_is_refused"),
    ("shaw", "decoder", "forgetting_old_tokens", "steps_equal_the_full_pass_to_the_last_position"),
    ("rposnet", "decoder", "mixing_up_ancestors", "hypotheses_that_move_keep_their_past"),
    ("shaw", "decoder", "seeing_the_far_future", "the_future_changes_nothing"),
    ("rposnet", "encoder", "without_checks", "padding_before_tokens_is_refused"),
    ("linearnet", "encoder", "without_checks", "tokens_without_positions_are_refused"),
    ("arposnet", "cross", "with_memory_of_any_length", "tokens_without_positions_are_refused"),
    ("rposnet", "encoder", "without_checks", "arguments_that_do_not_fit_are_refused"),
    ("rposnet", "encoder", "without_checks", "another_type_is_refused"),
    ("shaw", "encoder", "losing_gradients_of_nothing", "nothing_gives_nothing"),
    ("shaw", "decoder", "taking_the_nearest_hypothesis", "an_order_of_other_hypotheses_is_refused"),
    ("rposnet", "encoder", "shifting_its_input", "arguments_and_states_are_left_alone"),
    ("rposnet", "encoder", "reading_rows_for_columns", "layout_in_memory_changes_nothing"),
    ("rposnet", "encoder", "detaching_tokens", "what_needs_no_gradient_changes_no_other"),
    ("shaw", "decoder", "sharing_its_weights_with_no_copy", "a_copy_is_the_same_mixer_with_a_state_of_its_own"),
    ("shaw", "encoder", "rounding_to_few_digits", "other_precisions_round_and_nothing_else"),
    ("shaw", "decoder", "claiming_a_state_of_constant_size", "the_state_has_the_size_that_is_declared"),
    ("mamba2", "encoder", "reading_padding", "padding_changes_nothing"),
    ("gated_deltanet", "decoder", "forgetting_the_last_inputs", "steps_equal_the_full_pass"),
    ("mamba2", "decoder", "forgetting_the_last_inputs", "hypotheses_that_move_keep_their_past"),
]


def test_every_law_can_fail():
    assert {law.__name__ for law in LAWS} == {law for *_, law in BROKEN}


@pytest.mark.parametrize(("mixer", "place", "breakage", "law"), BROKEN)
def test_law_fails(monkeypatch, mixer, place, breakage, law):
    """A law that nothing breaks proves nothing."""
    as_for_long_sentences(monkeypatch)
    law = next(each for each in LAWS if each.__name__ == law)
    law(build_mixer(mixer, place))
    getattr(Breakage, breakage)(monkeypatch)
    with pytest.raises((AssertionError, UsageError, RuntimeError)):
        law(build_mixer(mixer, place))
