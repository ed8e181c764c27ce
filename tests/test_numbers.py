"""The form of numbers, and their ranges on a command line."""

import math
from argparse import Namespace
from fractions import Fraction

import pytest

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.numbers import check_numbers, decimal


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.05", Fraction(21, 20)), ("7e-4", Fraction(7, 10000)), ("-.5", Fraction(-1, 2)), ("2.", 2), ("1E+2", 100),
        ("1e999999999", None), ("1e100", None), ("9" * 41, None), ("1/3", None), ("1_0", None), ("\u0661", None),
        (" 1", None), ("", None), (".", None), ("nan", None), ("inf", None),
    ],
)  # fmt: skip
def test_decimal_numbers_are_exact_and_of_bounded_length(text, value):
    if value is not None:
        assert decimal(text) == value
        return
    with pytest.raises(ValueError, match="is no decimal number"):
        decimal(text)


@pytest.mark.parametrize("number", [1, 1000, 2.5, [1, 1000]])
def test_numbers_in_range(number):
    check_numbers(Namespace(max_length=number), max_length=(1, 1000))


@pytest.mark.parametrize(
    ("number", "shown"), [(0, "0"), (1001, "1001"), (math.nan, "nan"), (math.inf, "inf"), ([5, -3], "-3")]
)
def test_a_number_out_of_range_is_named(number, shown):
    with pytest.raises(UsageError, match=rf"^--max-length {shown}: give 1 or more, and at most 1,000\.$"):
        check_numbers(Namespace(max_length=number), max_length=(1, 1000))
