"""Groups of sampled units in compositions: routes that compute in different ways agree."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from tests.accountants.events import replace_one_gaussian
from tests.selection import thinned
from zetadp import accountants
from zetadp.accountants import Grouped, PoissonSampled, Repeated, leaves
from zetadp.accountants.dominating import pair_of
from zetadp.accountants.grids.hockey_stick import calls


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


def _tail(x):
    return mpmath.erfc(x / mpmath.sqrt(2)) / 2


def exact_profile(size, probability, std, epsilon):
    with mpmath.workdps(40):
        q, c, g = mpmath.mpf(probability), 1 / mpmath.mpf(std), mpmath.exp(mpmath.mpf(epsilon))
        weights = [mpmath.binomial(size, j) * q**j * (1 - q) ** (size - j) for j in range(size + 1)]

        def half(sign, x, of):
            return sum(w * of(x - sign * j * c) for j, w in enumerate(weights))

        low, high = mpmath.mpf(-60), mpmath.mpf(60)
        for _ in range(140):
            x = (low + high) / 2
            low, high = (x, high) if half(1, x, mpmath.npdf) < g * half(-1, x, mpmath.npdf) else (low, x)
        return half(1, low, _tail) - g * half(-1, low, _tail)


@pytest.mark.parametrize("epsilon", thinned([0.0, 1e-6, 0.1, 1.0, 4.0, 12.0], every=3))
@pytest.mark.parametrize(("size", "probability", "std"), thinned([(2, 1e-6, 1.0), (5, 0.3, 2.0), (12, 0.02, 0.5)], every=2))
def test_a_replaced_groups_exact_profile_lies_within_the_bracket(size, probability, std, epsilon):
    found = calls(pair_of(next(iter(leaves(replaced(size, probability, std, 1))))), np.array([epsilon]))
    truth = exact_profile(size, probability, std, epsilon)
    with mpmath.workdps(40):
        # Weights above 0 are rounded up, by a unit in the last place.
        assert found.lower[0] * (1 - mpmath.mpf(1e-15)) <= truth <= found.upper[0]
    assert found.upper[0] - found.lower[0] <= 1e-9 * float(truth) + 1e-290


@pytest.mark.parametrize("epsilon", thinned([0.0, 0.5, 3.0, 10.0], every=2))
@pytest.mark.parametrize(("size", "probability", "std"), [(20, 0.5, 6.0), (7, 0.8, 3.0)])
def test_a_replaced_group_that_is_hardly_ever_left_out_has_its_exact_profile(size, probability, std, epsilon):
    found = calls(pair_of(next(iter(leaves(replaced(size, probability, std, 1))))), np.array([epsilon]))
    truth = float(exact_profile(size, probability, std, epsilon))
    # In both orders: the pair is its own mirror image. That none of the group is sampled is rounded to some 1e-16.
    assert found.lower[0] * (1.0 - 1e-9) <= truth <= found.upper[0] <= truth * (1.0 + 1e-9)


@pytest.mark.parametrize(("size", "probability", "std", "count"), [(20, 0.5, 20.0, 30), (13, 0.6, 8.0, 100)])
def test_two_routes_agree_about_a_replaced_group_that_is_hardly_ever_left_out(size, probability, std, count):
    event = replaced(size, probability, std, count)
    contour, fft = (accountants.profile(event, name).epsilon(1e-5) for name in ("contour", "fft"))
    assert fft.lower <= contour.lower <= contour.upper <= fft.upper <= contour.lower * (1 + 1e-5)
