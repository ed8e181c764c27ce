"""What is no grid, and calls that do not fit one: one sentence each."""

import pytest
import torch

import posnet_fairseq as posnet
from posnet_fairseq.mixers.bases import Energy
from posnet_fairseq.registry import get_mixer, mixer_names
from posnet_fairseq.shared.errors import UsageError
from support import grids

ON_GRIDS = set(mixer_names(on_grids=True))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"grid": None, "extra_tokens": 1}, "extra_tokens 1: only a grid has tokens without a place. Give grid too"),
        ({"grid": 4}, r"grid 4: give rows and columns, such as \(14, 14\)"),
        ({"grid": (2, 3, 4)}, r"grid \(2, 3, 4\): give rows and columns"),
        ({"grid": ("3", "4")}, "grid .*3.*: give "),
        ({"grid": (0, 4)}, "grid 0: give 1 or more"),
        ({"grid": (10**6, 10**6)}, r"grid \(1000000, 1000000\)|max_positions"),
        ({"extra_tokens": -1}, "extra_tokens -1: give 0 or more"),
        ({"extra_tokens": 1.5}, r"extra_tokens 1\.5: give a whole number"),
        ({"max_positions": 64}, "max_positions 64: 1 extra token and 3 × 4 cells are 13 tokens. Leave it out"),
        ({"causal": True}, r"grid \(3, 4\): decoding and causal mixers need tokens in a line"),
        ({"cross_attention": True}, r"grid \(3, 4\): cross-attention needs tokens in a line"),
        ({"irpe_method": "polar"}, "irpe_method polar: choose one of product, cross, euclidean, quantization"),
        ({"irpe_beta": float("nan")}, "irpe_beta nan: give 1 or more"),
        ({"irpe_mode": "bias", "irpe_on": "k"}, "irpe_on k: the scalars of irpe_mode bias are on none of them"),
        ({"irpe_undirected": True}, "irpe_undirected True: irpe reads it in sentences only. Leave it out"),
    ],
    ids=str,
)
def test_what_is_no_grid_is_refused(options, sentence):
    with pytest.raises(UsageError, match=sentence):
        posnet.build_mixer("irpe", 8, 2, **{"grid": (3, 4), "extra_tokens": 1} | options)


class OfSentences(Energy):
    """It does not know the grid."""

    def table(self, at, keys, positions, memory_positions):
        return torch.zeros(1, len(at), keys)


def test_an_energy_must_know_the_grid():
    mixer = posnet.build_mixer("rposnet", 8, 2, grid=(3, 4))
    mixer.energies.append(OfSentences())
    with pytest.raises(NotImplementedError, match=r"OfSentences has no cells: set self\.cells = settings\.cells"):
        mixer(torch.zeros(1, 12, 8))


def test_options_of_grids_are_no_options_of_sentences():
    with pytest.raises(UsageError, match="irpe_method product: irpe reads it on grids only"):
        posnet.build_mixer("irpe", 8, 2, 64, irpe_method="product")
    with pytest.raises(UsageError, match="max_positions is missing: give the most tokens"):
        posnet.build_mixer("irpe", 8, 2)


@pytest.mark.parametrize("name", [name for name in mixer_names() if name not in ON_GRIDS])
def test_mixers_without_a_form_on_grids_are_refused(name):
    with pytest.raises(UsageError, match=rf"grid \(3, 4\): {name} has no form on grids\. Choose one of: .*irpe"):
        posnet.build_mixer(name, 8, 2, grid=(3, 4))


@pytest.mark.parametrize("name", [name for name in sorted(ON_GRIDS) if not get_mixer(name).places])
def test_mixers_of_grids_alone_are_refused_without_one(name):
    with pytest.raises(UsageError, match=rf"name {name}: this is a mixer of grids alone\. Give grid"):
        posnet.build_mixer(name, 8, 2, 64)


@pytest.mark.parametrize("name", sorted(ON_GRIDS))
def test_calls_that_do_not_fit_are_refused(name):
    mixer = grids.build_mixer(name)
    tokens = mixer.max_positions
    x = torch.randn(2, tokens, 8, dtype=torch.float64)
    for other in (tokens - 1, tokens + 1, tokens - grids.EXTRA):
        wrong = torch.randn(2, other, 8, dtype=torch.float64)
        with pytest.raises(UsageError, match=rf"query of {other} tokens: the 2 extra tokens and 3 × 5 cells .* are 17"):
            mixer(wrong)
    mask = torch.zeros(2, tokens, dtype=torch.bool)
    for wrong in (mask[:1], mask[:, :1], mask.byte()):
        with pytest.raises(UsageError, match="padding_mask"):
            mixer(x, padding_mask=wrong)
    with pytest.raises(UsageError, match="self-attention mixes the queries themselves"):
        mixer(x, x.clone())
    with pytest.raises(UsageError, match="a mixer on a grid cannot decode"):
        mixer.init_state(2)
