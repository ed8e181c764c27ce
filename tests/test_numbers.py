"""Ranges of numbers on a command line."""

import math
from argparse import Namespace

import pytest

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.numbers import check_numbers


@pytest.mark.parametrize("number", [1, 1000, 2.5, [1, 1000]])
def test_numbers_in_range(number):
    check_numbers(Namespace(max_length=number), max_length=(1, 1000))


@pytest.mark.parametrize(
    ("number", "shown"), [(0, "0"), (1001, "1001"), (math.nan, "nan"), (math.inf, "inf"), ([5, -3], "-3")]
)
def test_a_number_out_of_range_is_named(number, shown):
    with pytest.raises(UsageError, match=rf"^--max-length {shown}: give 1 or more, and at most 1,000\.$"):
        check_numbers(Namespace(max_length=number), max_length=(1, 1000))
