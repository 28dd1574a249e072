from __future__ import annotations

import pytest
from pydantic import ValidationError

from zetadp.mechanisms import Sensitivity


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "sensitivity must be given as l2 or l1 (or both), got 'neither'"),
        ({"l2": 1.0, "l2_real": 2.0}, "l2_real must be <= l2 = 1.0, got 2.0"),
        ({"l1": 1.0, "l2_imag": 0.5}, "l2 must be given where l2_imag is, got None"),
        ({"l2": 1.0, "l2_real": 0.0, "l2_imag": 0.0}, "l2_real and l2_imag must be not both 0"),
        ({"l2": 1.0, "l2_contribution": 1.0}, "l2_contribution must be absent under add_remove (l2 already covers it), got 1.0"),
        ({"l2": 0.0}, "Input should be greater than or equal to"),
        ({"l2": 1.0, "l3": 1.0}, "Extra inputs are not permitted"),
    ],
)
def test_bad_fields_are_refused_with_what_was_expected(fields, text):
    with pytest.raises(ValidationError) as caught:
        Sensitivity(adjacency="add_remove", unit="record", **fields)
    assert text in str(caught.value)


@pytest.mark.parametrize("missing", ["adjacency", "unit"])
def test_adjacency_and_unit_have_no_default(missing):
    fields = {"l2": 1.0, "adjacency": "add_remove", "unit": "record"}
    del fields[missing]
    with pytest.raises(ValidationError, match=f"(?s){missing}.*Field required"):
        Sensitivity(**fields)


def test_unknown_adjacency_is_refused():
    with pytest.raises(ValidationError, match="'add_remove', 'replace_one' or 'zero_out'"):
        Sensitivity(l2=1.0, adjacency="add-remove", unit="record")


def test_a_contribution_bound_needs_a_bound_on_the_difference_too():
    with pytest.raises(ValidationError, match="l2 must be given where l2_contribution is, got None"):
        Sensitivity(l1=1.0, l2_contribution=1.0, adjacency="replace_one", unit="record")


def test_a_contribution_bound_is_written_only_where_it_is_given():
    without = Sensitivity(l2=2.0, adjacency="replace_one", unit="record")
    given = Sensitivity(l2=2.0, l2_contribution=1.0, adjacency="replace_one", unit="record")
    assert "contribution" not in without.model_dump_json()
    assert Sensitivity.model_validate_json(given.model_dump_json()) == given
