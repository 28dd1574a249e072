"""Decimal strings: bounds lie on the safe side, parameters read back exactly."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from zetadp.app.certificates.facts.decimals import DecimalText, SignedDecimalText, exact, fraction, lower, upper

FINITE = st.floats(min_value=0.0, allow_nan=False, allow_infinity=False)
TEXT = TypeAdapter(DecimalText)


@given(FINITE)
def test_upper_is_never_below_the_float(value: float) -> None:
    assert fraction(upper(value)) >= Fraction(value)


@given(FINITE)
def test_lower_is_never_above_the_float(value: float) -> None:
    assert fraction(lower(value)) <= Fraction(value)


@given(FINITE.filter(lambda value: value > 0.0))
def test_upper_loses_less_than_one_part_in_a_million(value: float) -> None:
    assert fraction(upper(value)) <= Fraction(value) * (1 + Fraction(1, 10**6))


@given(FINITE)
def test_exact_reads_back_as_the_same_float(value: float) -> None:
    assert float(exact(value)) == value


@given(FINITE)
def test_every_text_written_is_accepted_by_the_schema(value: float) -> None:
    for text in (upper(value), lower(value), exact(value)):
        assert TEXT.validate_python(text) == text


def test_upper_of_a_number_just_above_a_short_one_moves_to_the_next() -> None:
    assert upper(math.nextafter(2.0, 3.0)) == "2.000001"


def test_upper_keeps_a_number_that_is_short_already() -> None:
    assert upper(1.5) == "1.5"


@pytest.mark.parametrize("value", [math.inf, math.nan, -1.0])
def test_a_bound_that_is_no_bound_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="must be finite and >= 0, got"):
        upper(value)


def test_a_parameter_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="a parameter in a certificate must be finite, got inf"):
        exact(math.inf)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-1", "1e", "01", ".5", "1,5", "1e+99999", " 1", "1\n", "0x1", "1_0", ""])
def test_text_that_is_no_plain_number_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        TEXT.validate_python(text)


def test_a_signed_text_may_be_negative() -> None:
    assert TypeAdapter(SignedDecimalText).validate_python(exact(-0.25)) == "-0.25"
