"""Groups of sampled units in compositions: routes that compute in different ways agree."""

from __future__ import annotations

import pytest

from tests.accountants.events import replace_one_gaussian
from zetadp import accountants
from zetadp.accountants import Grouped, PoissonSampled, Repeated


def replaced(size, probability=0.01, std=2.0, count=300):
    sampled = PoissonSampled(probability=probability, event=replace_one_gaussian(std))
    return Grouped(size=size, unit="user", event=Repeated(count=count, event=sampled))


@pytest.mark.parametrize("size", [2, 6])
def test_contour_and_fft_agree_about_a_replaced_group(size):
    contour, fft = (accountants.profile(replaced(size), name).epsilon(1e-5) for name in ("contour", "fft"))
    assert fft.lower <= contour.lower <= contour.upper <= fft.upper <= contour.lower * (1 + 1e-5)


def test_a_larger_replaced_group_has_a_larger_epsilon():
    found = [accountants.profile(replaced(size)).epsilon(1e-5) for size in (1, 2, 3)]
    assert found[0].upper < found[1].lower
    assert found[1].upper < found[2].lower
