"""Ends of different origins: a lower end above the upper one is a defect that must show."""

from __future__ import annotations

import pytest

from zetadp.accountants import profile
from zetadp.accountants.between import BetweenProfile, EndsOf
from zetadp.accountants.events import Release
from zetadp.accountants.profile import PrivacyProfile
from zetadp.mechanisms import Gaussian, Sensitivity
from zetadp.mechanisms.errors import ContradictoryBounds


def of(std: float) -> PrivacyProfile:
    return profile(Release(mechanism=Gaussian(std=std, sensitivity=Sensitivity(l2=1.0, adjacency="add_remove", unit="record"))))


def test_both_ends_are_shown() -> None:
    found = BetweenProfile(of(1.0), lambda: [EndsOf(of(3.0)), EndsOf(of(2.0))])
    assert found.epsilon(1e-5).lower == of(2.0).epsilon(1e-5).lower
    assert found.epsilon(1e-5).upper == of(1.0).epsilon(1e-5).upper
    assert found.delta(1.0).log_lower == of(2.0).delta(1.0).log_lower


def test_a_lower_end_above_the_upper_one_is_an_error() -> None:
    found = BetweenProfile(of(1.0), lambda: [EndsOf(of(0.9999))])
    with pytest.raises(ContradictoryBounds, match="epsilon was proved to be at least"):
        found.epsilon(1e-5)
    with pytest.raises(ContradictoryBounds, match="log delta"):
        found.delta(1.0)


def test_rounding_alone_is_no_contradiction() -> None:
    found = BetweenProfile(of(1.0), lambda: [EndsOf(of(1.0 - 1e-12))])
    bound = found.epsilon(1e-5)
    assert bound.lower == bound.upper
