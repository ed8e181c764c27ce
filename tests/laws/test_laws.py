"""The laws for every registered mixer, in every place where it may stand."""

import pytest
import torch

from posnet_fairseq.inference.stored_energies import precompute
from posnet_fairseq.mixers.bases.recurrent import RecurrentMixer
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.ops import chunks
from posnet_fairseq.registry import get_mixer
from posnet_fairseq.shared.errors import UsageError
from support import laws
from support.building import (
    EXAMPLES,
    MAX_POSITIONS,
    POSITION_BASED,
    USUAL,
    build_case,
    few_offsets,
    mixer_cases,
    pad,
    sentences,
    usual_gate,
)

every_case = pytest.mark.parametrize("case", list(mixer_cases()), ids=str)
every_mixer = pytest.mark.parametrize("case", USUAL, ids=str)
# What does not depend on how a mixer mixes is tested for one of each base class.
one_of_each_base = pytest.mark.parametrize("case", EXAMPLES, ids=str)
# Encoders take no steps.
STEPPING = [case for case in USUAL if case.place != "encoder"]


@every_case
@pytest.mark.parametrize(
    "law", [laws.every_token_reaches_every_query, laws.every_parameter_learns], ids=lambda law: law.__name__
)
def test_law(case, law):
    law(build_case(case))


@every_mixer
def test_padding_on_either_side(case):
    laws.padding_on_either_side_changes_nothing(build_case(case))


@pytest.mark.parametrize("case", STEPPING, ids=str)
def test_steps(case):
    model = build_case(case)
    # A head of few features that nearly cancel is divided by its small norm, and so is the rounding of float32.
    laws.steps_equal_the_full_pass(model.double() if issubclass(get_mixer(case.mixer), RecurrentMixer) else model)


def compiled_cases():
    """Each mixer and each of its options in one place; tracing takes seconds, so those with options are slow tests.

    The first of each mixer has its usual offsets, the others have few.
    """
    seen = set()
    for case in mixer_cases():
        if (case.options or case.gate == usual_gate(case)) and (case.mixer, case.options) not in seen:
            marks = [pytest.mark.slow] if case.options else []
            yield pytest.param(few_offsets(case) if case.options else case, marks=marks, id=str(case))
            seen.add((case.mixer, case.options))


@pytest.mark.parametrize("case", compiled_cases())
@pytest.mark.thorough  # a minute; quick: one mixer compiled by itself, in test_banded
def test_compiling_changes_nothing(case):
    laws.compiling_changes_nothing(build_case(case, encoder_layers=1, decoder_layers=1))


@one_of_each_base
def test_saving_and_loading(case):
    laws.saving_and_loading_change_nothing(build_case(case), build_case(case))


@pytest.mark.parametrize("case", [case for case in USUAL if case.mixer in POSITION_BASED], ids=str)
def test_storing_energies(case):
    laws.storing_energies_changes_nothing(build_case(case), build_case(case))


@every_mixer
def test_half_precision(case):
    laws.half_precision_stays_finite(build_case(case), torch.float16)


@every_mixer
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
def test_autocast(case, dtype):
    laws.autocast_stays_finite(build_case(case), dtype)


@every_mixer
def test_a_few_sentences_at_a_time_change_nothing(monkeypatch, case):
    """As energies of long sentences are computed, also within activation checkpointing."""
    source, target = pad(sentences(5, 8, 3), left=True), pad(sentences(6, 9, 4))
    at_once, in_chunks = build_case(case), build_case(case, checkpoint_activations=True)
    in_chunks.load_state_dict(at_once.state_dict())
    expected = laws.decode(at_once, source, target)
    expected.logsumexp(-1).mean().backward()
    monkeypatch.setattr(chunks, "CPU_LIMIT", 1)
    monkeypatch.setattr(TokenMixer, "should_recompute", lambda *_: True)
    scores = laws.decode(in_chunks.train(), source, target)
    scores.logsumexp(-1).mean().backward()
    torch.testing.assert_close(scores, expected, **laws.TOLERANCE)
    for (name, a), b in zip(at_once.named_parameters(), in_chunks.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, msg=lambda m, name=name: f"{name}: {m}")


@one_of_each_base
def test_too_long_sentence_is_refused(case):
    model = build_case(case)
    with pytest.raises(UsageError, match=r"25 tokens .* 24 positions .* --max-source-positions"):
        laws.decode(model, pad(sentences(MAX_POSITIONS + 1)), pad(sentences(3)))
    with pytest.raises(UsageError, match="--max-target-positions"):
        laws.decode(model, pad(sentences(3)), pad(sentences(MAX_POSITIONS + 1)))


@every_mixer
def test_padding_beyond_the_longest_sentence_is_no_sentence(case):
    """fairseq pads batches to a multiple of 8, also beyond the model's limit and what is stored."""
    model, sources, targets = build_case(case), sentences(24, 3), sentences(5, 24)
    expected = laws.decode(model, pad(sources), pad(targets))
    for left in (False, True, False):
        wider = laws.decode(model, pad(sources, left=left, width=32), pad(targets, width=32))
        torch.testing.assert_close(wider[1], torch.cat([expected[1], wider[1, 24:]]), **laws.TOLERANCE)
        precompute(model)
