import pytest

from support import reference
from support.building import build_mixer
from support.formulas import naive_linearnet


@pytest.mark.parametrize("place", ["encoder", "decoder"])
def test_equals_formula(place):
    reference.assert_equal_to_reference(build_mixer("glinearnet", place, "gelu"), naive_linearnet)
