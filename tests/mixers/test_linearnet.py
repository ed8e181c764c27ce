import pytest
import reference
import torch
from building import build_mixer

from posnet_fairseq.mixers.bases.gating import GATES
from posnet_fairseq.mixers.bases.token_mixer import MixingContext

every_place = pytest.mark.parametrize("place", ["encoder", "decoder"])


def naive_linearnet(mixer, x, y):
    """PosNet (Schmidt and Di Gangi, WMT 2023) Eq. 13: no softmax, what may not be seen counts 0."""
    weights = reference.masked(mixer, lambda h, n, m: mixer.weight[h, n, m], len(x), len(y), hidden=0.0)
    return reference.mix_one_sentence(mixer, x, y, weights)


@every_place
@pytest.mark.parametrize("gate", GATES)
def test_equals_formula(place, gate):
    lengths = reference.LENGTHS if gate == "none" else reference.SHORT
    reference.assert_equal_to_reference(build_mixer("linearnet", place, gate), naive_linearnet, lengths)


@every_place
def test_gradcheck(place):
    reference.assert_gradcheck(build_mixer("linearnet", place, "gelu", embed_dim=4))


def test_padding_beyond_the_longest_sentence_is_left_out():
    mixer = build_mixer("linearnet")  # of 64 positions
    x = torch.randn(1, 70, 8, dtype=torch.float64)
    wide, _ = mixer(x, x, MixingContext(padding_mask=torch.arange(70)[None] >= 64))
    exact, _ = mixer(x[:, :64], x[:, :64], MixingContext())
    torch.testing.assert_close(wide[:, :64], exact)
