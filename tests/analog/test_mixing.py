"""Models with parts on crossbars: the laws of all mixers hold, and mixing weights are what the formula says."""

import copy

import pytest
import torch

from posnet_fairseq.analog.convert import StoredMixing, put_on_crossbars
from posnet_fairseq.analog.experiment import program
from posnet_fairseq.analog.hardware import PARTS, Hardware
from posnet_fairseq.inference.stored_energies import precompute
from posnet_fairseq.mixers.bases.context import MixingContext
from posnet_fairseq.registry import get_mixer, mixer_names
from support import laws
from support.building import MAX_POSITIONS, POSITION_BASED, Case, build_case, build_mixer, pad, sentences, usual_gate

IDEAL = Hardware(noise="none", dac_bits=24, adc_bits=24, tile_size=16)
CASES = [Case(name, place, "none") for name in mixer_names() for place in get_mixer(name).places]
CASES = [Case(case.mixer, case.place, usual_gate(case)) for case in CASES]


def on_ideal_crossbars(case, renormalize=False):
    """A model with everything on crossbars that can be there, and its digital twin."""
    digital = build_case(case)
    precompute(digital)
    model = copy.deepcopy(digital)
    parts = [part for part in PARTS if part != "mixing" or case.mixer in POSITION_BASED]
    longest = (MAX_POSITIONS, MAX_POSITIONS)
    assert all(put_on_crossbars(model, parts, IDEAL.configuration(), longest, renormalize).values())
    return model, digital


@pytest.mark.parametrize("case", [case for case in CASES if case.mixer in (*POSITION_BASED, "attention")], ids=str)
@pytest.mark.parametrize(
    "law",
    [laws.padding_on_either_side_changes_nothing, laws.steps_equal_the_full_pass],
    ids=lambda law: law.__name__,
)
@pytest.mark.thorough  # 20 s; quick: test_without_noise_and_with_enough_bits_a_model_is_the_digital_one
def test_law(case, law, monkeypatch):
    monkeypatch.setattr(laws, "TOLERANCE", {"rtol": 0, "atol": 1e-4})
    model, _ = on_ideal_crossbars(case)
    with torch.no_grad():
        law(model)


@pytest.mark.quick_cases(12)
@pytest.mark.parametrize(
    ("case", "renormalize"),
    [(case, again) for case in CASES for again in (False, True) if not again or case.mixer in POSITION_BASED],
)
def test_without_noise_and_with_enough_bits_a_model_is_the_digital_one(case, renormalize):
    model, digital = on_ideal_crossbars(case, renormalize)
    source, target = pad(sentences(9, 4)), pad(sentences(8, 5))
    with torch.no_grad():
        expected, found = (laws.decode(each, source, target) for each in (digital, model))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("renormalize", [False, True])
@pytest.mark.parametrize("place", ["encoder", "decoder"])
@pytest.mark.parametrize("name", POSITION_BASED)
def test_mixed_values_are_sums_of_programmed_weights(name, place, renormalize):
    """With noisy conductances and exact converters: Σ_m w_nm v_m, divided by the sum of exact or programmed weights."""
    queries = keys = 7
    mixer = build_mixer(name, place)
    positions = torch.randn(64, 8, dtype=torch.float64)
    context = MixingContext(positions=positions)
    configuration = Hardware(noise="pcm", dac_bits=24, adc_bits=24).configuration()
    configuration.forward.out_noise = 0.0
    with torch.no_grad():
        stored = StoredMixing(mixer, 9, 9, context, configuration, renormalize)
        program(stored, 1, 1)
        value = torch.randn(1, 2, keys, 4)
        mixed = stored.mix(value, 0, queries, None, mixer.causal)
        assert mixed.shape == value.shape
        weights = mixer.energy(context.offsets(9, 9), positions, positions)
        hidden = mixer.hidden(context.offsets(9, 9))
        for h in range(2):
            programmed = stored.heads[h].layer.get_weights()[0]
            for n in range(queries):
                seen = range(n + 1) if mixer.causal else range(keys)
                total = sum(programmed[n, m] * value[0, h, m] for m in seen)
                if mixer.softmax:
                    shown = [m for m in range(9) if hidden is None or not hidden[n, m]]
                    largest = max(weights[h, n, m] for m in shown)
                    exact = sum(torch.exp(weights[h, n, m] - largest) for m in seen if m in shown)
                    total = total / (sum(programmed[n, m] for m in seen) if renormalize else exact.float())
                torch.testing.assert_close(mixed[0, h, n], total, rtol=1e-3, atol=1e-4)


def test_weights_of_a_short_sentence_may_be_small_beside_those_of_longer_ones():
    """A head that looks at the next token, of the last token."""
    mixer = build_mixer("lightconv", "encoder")
    context, value = MixingContext(), torch.randn(1, 2, 5, 4)
    with torch.no_grad():
        mixer.energies[0].weight.zero_()
        mixer.energies[0].weight[:, mixer.energies[0].reach - 1] = 9.0
        stored = StoredMixing(mixer, 9, 9, context, IDEAL.configuration())
        found = stored.mix(value, 0, 5, None, False)
        expected = mixer.masked_energies(5, 5, context).softmax(-1).float() @ value
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-2)


def test_padding_that_sees_no_token_adds_no_noise():
    mixer = build_mixer("lightconv", "encoder")
    tokens, length = 5, 5 + mixer.energies[0].reach + 3
    mask = torch.arange(length)[None] >= tokens
    with torch.no_grad():
        stored = StoredMixing(mixer, length, length, MixingContext(), Hardware(noise="pcm").configuration())
        program(stored, 1, 1)
        mixed = stored.mix(torch.randn(1, 2, length, 4), 0, length, mask, False)
    assert mixed.abs().max() < 10
    assert not mixed[:, :, tokens + mixer.energies[0].reach :].any()


def test_what_is_on_crossbars_is_counted():
    model = build_case(Case("attention", "encoder", "none"))
    size = model.decoder.embed_tokens.weight.numel()
    assert put_on_crossbars(model, ["output"], IDEAL.configuration(), (9, 9)) == {"output": size}
