"""posnet-mixers, and the counts it shows."""

import dataclasses

import pytest
import torch

from posnet_fairseq.bench import counting
from posnet_fairseq.cli import mixers
from posnet_fairseq.registry import get_mixer, mixer_names, option_fields
from posnet_fairseq.transformer.sizes import SIZES

every_mixer = pytest.mark.parametrize("name", mixer_names())

# PosNet (Schmidt and Di Gangi, WMT 2023) Table 7, as it stands: training, search.
TABLE_7 = {
    "attention": ("2N²D + 4ND²", "2N²D + 4ND²"),
    "shaw": ("K̂ND + 2N²D + 4ND²", "K̂ND + 2N²D + 4ND²"),
    "linearnet": ("N²D + 2ND²", "N²D + 2ND²"),
    "glinearnet": ("N²D + 3ND²", "N²D + 3ND²"),
    "aposnet": ("2N²D + 5ND²", "N²D + 3ND²"),
    "rposnet": ("K̂ND + N²D + 4ND²", "N²D + 3ND²"),
}


@pytest.mark.parametrize("name", TABLE_7)
def test_operations_are_those_of_the_paper(name):
    counted = tuple(counting.as_text(counting.operations(name, search)) for search in (False, True))
    assert counted == TABLE_7[name]


@every_mixer
def test_operations_of_every_mixer_can_be_counted(name):
    assert counting.operations(name)["ND²"] >= 1  # at least the output


def test_operations_are_found_with_memory_that_is_not_cleared():
    """As in the command itself: the other tests have torch fill new memory."""
    torch.use_deterministic_algorithms(False)
    for name in ("aposnet", "alpha_translution"):
        assert counting.operations(name)["N²D"] >= 1


def test_count_for_a_sentence():
    shape = dataclasses.replace(SIZES["tiny"], embed_dim=8, clip_distance=3)
    count = counting.evaluate({"N²D": 2, "ND²": 4, "K̂ND": 1, "D²": -1}, get_mixer("shaw"), 10, shape)
    assert count == 2 * 800 + 4 * 640 + 7 * 80 - 64
    assert counting.as_text({"N²D": 4, "ND": -1, "D²": -2, "K̂ND": 0.75}) == "4N²D - ND + 0.75K̂ND"


def test_matrices_of_offsets_cost_by_their_reach_and_not_by_the_square_of_the_length():
    """All pairs of tokens meet as in attention, and every offset that is told apart has three products."""
    factors = counting.operations("translution")
    assert factors["K̂ND²"] == 3
    assert "N²D²" not in counting.TERMS
    narrow = counting.operations("alpha_translution")
    assert (narrow["K̂NE²"], narrow["NDE"], narrow["ND²"]) == (3, 4, 4)


def test_overview_has_every_mixer(capsys):
    mixers.main(["--size", "tiny", "--words", "100"])
    shown = capsys.readouterr().out
    for name in mixer_names():
        assert f"{name} " in shown
    assert "Eqs. 13-18" in shown


@every_mixer
def test_options_are_shown_with_defaults_and_equation(name, capsys):
    mixers.main([name, "--options"])
    shown = capsys.readouterr().out
    for option, field in option_fields().items():
        flag = f"--{option.replace('_', '-')} "
        if field.name in get_mixer(name).Config.__dataclass_fields__:
            assert flag in shown
            assert (
                "Eq" in field.metadata["help"]
                or "Section" in field.metadata["help"]
                or "Table" in field.metadata["help"]
            )
        else:
            assert flag not in shown
    assert f"--gate none | gelu | glu   default: {get_mixer(name).default_gate}" in shown


def test_description_has_the_formula(capsys):
    mixers.main(["rposnet"])
    shown = capsys.readouterr().out
    assert "E_rel[clip(⌊γn⌋ - m, ±K)]" in shown
    assert "encoder, decoder, cross" in shown


def test_bad_input(capsys):
    for arguments, sentence in (
        (["rposnt"], "there is no such mixer. Choose one of: aposnet, .* Did you mean rposnet?"),
        (["--options"], "--options: of which mixer?"),
        (["--words", "2"], "--words 2: give 5 or more"),
    ):
        with pytest.raises(SystemExit) as error:
            mixers.main(arguments)
        assert error.value.code == 2
        assert sentence.split(".* ")[-1] in capsys.readouterr().err
