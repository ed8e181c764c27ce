import pytest

from posnet_fairseq.registry import get_mixer
from support import reference
from support.building import build_mixer, settings
from support.formulas import naive_linearnet


def test_is_gated_by_default():
    assert get_mixer("glinearnet").default_gate == "gelu"
    assert get_mixer("linearnet").default_gate == "none"
    assert get_mixer("glinearnet")(settings("glinearnet", "encoder", "gelu")).gating.kind == "gelu"


@pytest.mark.parametrize("place", ["encoder", "decoder"])
def test_equals_formula(place):
    reference.assert_equal_to_reference(build_mixer("glinearnet", place, "gelu"), naive_linearnet)
