"""Decoder-only language models."""

from argparse import Namespace

import pytest
import torch
from fairseq.data import MonolingualDataset, TokenBlockDataset

from posnet_fairseq.costs import counting
from posnet_fairseq.models.mixer_language_model import MixerLanguageModel
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text import synthetic
from posnet_fairseq.transformer.architectures import apply_gpt_arch, gpt_archs
from support.building import MAX_POSITIONS, WORDS, build_language_model, pad, sentences

# Translution (Fan et al., 2025) Table 7: millions of parameters with 50,257 words and sequences of 160.
TABLE_7 = {
    ("a", "attention"): 22.0,
    ("a", "alpha_translution"): 23.7,
    ("a", "translution"): 127.5,
    ("b", "attention"): 24.7,
    ("b", "alpha_translution"): 28.2,
    ("c", "attention"): 60.0,
    ("c", "alpha_translution"): 74.0,
}


def options(mixer, size="a", **given):
    cfg = Namespace(**given)
    apply_gpt_arch(cfg, mixer, size)
    return cfg


@pytest.mark.parametrize(("size", "mixer"), TABLE_7)
def test_parameters_of_the_paper(size, mixer):
    cfg = options(mixer, size, tokens_per_sample=160)
    with torch.device("meta"):
        model = MixerLanguageModel.build_model(cfg, synthetic.task(50257))
    assert counting.parameter_count(model) / 1e6 == pytest.approx(TABLE_7[size, mixer], abs=0.1)


def test_projections_to_queries_keys_and_values_have_no_biases():
    for mixer in ("attention", "alpha_translution", "translution"):
        names = [name for name, _ in build_language_model(mixer).named_parameters() if "proj.bias" in name]
        assert all(name.endswith("out_proj.bias") for name in names), names


def test_positions_are_those_of_the_paper():
    assert build_language_model("attention").decoder.positions.learned
    assert build_language_model("translution").decoder.positions.weight is None
    assert build_language_model("alpha_translution").decoder.positions.weight is None


def test_too_long_a_block_is_refused():
    with pytest.raises(UsageError, match=r"25 tokens .* 24 positions .* --tokens-per-sample"):
        build_language_model("translution")(pad(sentences(MAX_POSITIONS + 1)))


def test_architectures():
    assert {f"gpt_{size}_{mixer}" for size, mixer in TABLE_7} | {"gpt_c_translution"} <= set(gpt_archs())
    assert not [name for name in gpt_archs() if "fouriernet" in name]


def test_bad_options_are_refused():
    for message, given in {
        r"--decoder-self-mixer fouriernet: this mixer cannot stand there": {"decoder_self_mixer": "fouriernet"},
        r"--tokens-per-sample 0: give 1 or more": {"tokens_per_sample": 0},
        r"--arch gpt_a_attention is a language model, which --task translation cannot train": {
            "task": "translation",
            "tokens_per_sample": None,
        },
    }.items():
        with pytest.raises(UsageError, match=message):
            options("attention", **({"tokens_per_sample": 160} | given))
    with pytest.raises(UsageError, match="family of all language models"):
        MixerLanguageModel.build_model(Namespace(decoder_self_mixer=None), synthetic.task(WORDS))


def test_a_first_symbol_makes_blocks_one_longer():
    """Also sentences of --sample-break-mode eos, whose length fairseq counts without it."""
    assert options("attention", tokens_per_sample=24, add_bos_token=True).max_target_positions == 25
    model = build_language_model("rposnet", add_bos_token=True)
    sentence = MonolingualDataset(
        TokenBlockDataset([*sentences(model.max_positions())], [model.max_positions()], 1, 1, 2, "eos", True),
        [model.max_positions()],
        synthetic.dictionary(WORDS),
        targets=["future"],
        add_bos_token=True,
    )[0]
    assert len(sentence["source"]) == MAX_POSITIONS
    model(sentence["source"][None])
