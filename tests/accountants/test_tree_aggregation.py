"""Tree aggregation: its sensitivity against every participation pattern, and dp-accounting's tree of one epoch."""

from __future__ import annotations

import itertools
import math

import pytest
from pydantic import ValidationError

from zetadp.accountants import Release, Repeated, profile
from zetadp.accountants.dp_accounting_events import from_dp_accounting
from zetadp.mechanisms.base import Adjacency
from zetadp.mechanisms.declared import TreeAggregation

WHO = {"adjacency": "zero_out", "unit": "record"}


def tree(steps, separation=1, participations=1, std=1.0):
    return TreeAggregation(std=std, l2=1.0, steps=steps, min_separation=separation, max_participations=participations, **WHO)


def square_of(pattern, steps):
    """Of the numbers of participations in every full block."""
    blocks = [(start, start + 2**h) for h in range(steps.bit_length()) for start in range(0, steps - 2**h + 1, 2**h)]
    return sum(sum(first <= step < end for step in pattern) ** 2 for first, end in blocks)


def largest(steps, separation, participations):
    """Over all patterns."""
    patterns = (
        pattern
        for size in range(1, participations + 1)
        for pattern in itertools.combinations(range(steps), size)
        if all(b - a >= separation for a, b in itertools.pairwise(pattern))
    )
    return max(square_of(pattern, steps) for pattern in patterns)


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 8, 11, 12, 16])
@pytest.mark.parametrize("separation", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("participations", [1, 2, 3, 5])
def test_no_pattern_moves_the_tree_further(steps, separation, participations):
    truth, found = largest(steps, separation, participations), tree(steps, separation, participations).tree_sensitivity ** 2
    assert truth <= found <= truth * 1.65
    if participations == 1 or separation >= steps:
        assert found == pytest.approx(truth, rel=1e-9)


@pytest.mark.parametrize(("steps", "participations"), [(8, 8), (16, 4), (16, 2), (8, 1)])
def test_neighbouring_steps_of_a_full_tree_attain_it(steps, participations):
    assert tree(steps, 1, participations).tree_sensitivity ** 2 == pytest.approx(square_of(range(participations), steps), rel=1e-9)


@pytest.mark.parametrize("steps", [1, 2, 7, 8, 1000])
def test_one_participation_is_the_tree_of_one_epoch(steps):
    from dp_accounting import dp_event as library

    theirs = from_dp_accounting(library.SingleEpochTreeAggregationDpEvent(3.0, steps), adjacency=Adjacency.ZERO_OUT, unit="record")
    found = [profile(event).epsilon(1e-5).upper for event in (Release(mechanism=tree(steps, std=3.0)), theirs)]
    assert found[0] == pytest.approx(found[1], rel=1e-9)
    assert found[0] >= found[1]


def test_trees_that_start_again_compose():
    again = profile(Repeated(count=4, event=Release(mechanism=tree(100, std=6.0))))
    assert again.gdp_mu == pytest.approx(math.sqrt(4 * 7) / 6.0, rel=1e-9)


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"std": 0.0}, {"min_separation": 0}, {"max_participations": 0}, {"steps": 10**6 + 1}])
def test_its_fields_are_checked(wrong):
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        TreeAggregation.model_validate({**TreeAggregation.example().model_dump(), **wrong})
