import pytest
import torch

from support import reference
from support.building import build_mixer
from support.formulas import naive_linearnet


@pytest.mark.parametrize("place", ["encoder", "decoder"])
def test_equals_formula(place):
    reference.assert_equal_to_reference(build_mixer("linearnet", place), naive_linearnet)


def test_padding_beyond_the_longest_sentence_is_left_out():
    mixer = build_mixer("linearnet")  # of 64 positions
    x = torch.randn(1, 70, 8, dtype=torch.float64)
    wide = mixer(x, x, padding_mask=torch.arange(70)[None] >= 64)
    exact = mixer(x[:, :64])
    torch.testing.assert_close(wide[:, :64], exact)
