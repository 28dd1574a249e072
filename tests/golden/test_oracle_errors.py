"""Every group of oracles is answered by our own functions, to the accuracy each is owed. ``pytest -s`` prints the table."""

from __future__ import annotations

import sys

import pytest

from tests.golden import oracle_errors
from tests.golden.oracles import FILE

pytestmark = pytest.mark.skipif(not FILE.exists(), reason=f"the oracle values are not on this machine ({FILE.name})")


def test_every_group_is_answered_and_no_other():
    assert {row["group"] for row in oracle_errors.rows()} == set(oracle_errors.EVALUATED)


def test_every_value_of_every_row_is_within_what_its_group_is_owed():
    found = list(oracle_errors.errors())
    assert sum(each.rows for each in found) == len(oracle_errors.rows())
    sys.stdout.write("\n" + "\n".join(oracle_errors.table()) + "\n")
    assert {each.group: each.largest for each in found if not each.largest <= each.allowed} == {}


def test_nothing_is_owed_less_than_the_stated_accuracies():
    assert {each.allowed for each in oracle_errors.errors() if each.group not in oracle_errors.OPTIMA} == {oracle_errors.RELATIVE}


def test_sampled_renyi_divergences_are_never_below_the_truth():
    for row in oracle_errors.rows():
        if row["group"] == "subsampled_gaussian_rdp_integer":
            assert oracle_errors.EVALUATED[row["group"]](row["inputs"])[oracle_errors.ALONE] >= float(row["value"])


def test_an_error_is_relative_and_absolute_where_the_truth_is_zero():
    assert oracle_errors.error_of(1.1, "1") == pytest.approx(0.1)
    assert oracle_errors.error_of(1e-300, "0.0") == pytest.approx(1e-300)
    assert oracle_errors.error_of(2e-200, "1e-200") == pytest.approx(1.0)
