r"""Deltas next to 1, by the inversion of 1 - delta: against sums over whole grids, other tilts of the same integral, and closed forms."""

from __future__ import annotations

import math
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr

from zetadp.accountants import profile
from zetadp.accountants.densities import GAUSSIAN, LAPLACE
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.densities.transforms import TransformUnavailable
from zetadp.accountants.events import PoissonSampled, Release, Repeated
from zetadp.accountants.pairs import Pair
from zetadp.accountants.routes.contour import complement
from zetadp.mechanisms import Gaussian, Sensitivity
from zetadp.mechanisms.numerics.gdp import gdp_log_delta

NULL = Mixture((1.0,), (0.0,))


def sampled(q: float, distance: float, *, removed: bool) -> Pair:
    """A Poisson sample of normal noise, in one of its two directions."""
    mixture = Mixture((1.0 - q, q), (0.0, distance))
    return Pair(GAUSSIAN, mixture, NULL) if removed else Pair(GAUSSIAN, NULL, mixture.mirrored)


def whole(mu: float) -> Pair:
    return Pair(GAUSSIAN, Mixture((1.0,), (mu,)), NULL)


def log_kappa_of_two(q: float, distance: float, mu: float, epsilon: float) -> float:
    """Of two samples and a whole release: a sum over a grid of both samples' outputs, in closed form for the whole release."""
    x = np.arange(-12.0, distance + 12.0, 1.0 / 64.0)
    ratio = np.log1p(q * np.expm1(distance * x - 0.5 * distance**2))
    weight = np.exp(ratio - 0.5 * x**2) / math.sqrt(2.0 * math.pi) / 64.0
    rest = epsilon - (ratio[:, None] + ratio)
    above, below = rest / mu - 0.5 * mu, -rest / mu - 0.5 * mu
    kappa = np.exp(log_ndtr(above)) + np.exp(rest + log_ndtr(below))
    return math.log(weight @ kappa @ weight)


@pytest.mark.parametrize(("q", "distance", "mu", "epsilon"), [(0.3, 2.0, 8.0, 2.0), (0.5, 4.0, 9.0, 0.5), (0.02, 3.0, 7.0, 1.0)])
def test_two_samples_and_a_whole_release(q: float, distance: float, mu: float, epsilon: float) -> None:
    truth = log_kappa_of_two(q, distance, mu, epsilon)
    assert truth < -4.0
    low, high = complement.epsilon([(sampled(q, distance, removed=True), 2), (whole(mu), 1)], math.log1p(-math.exp(truth)))
    assert low * (1.0 - 1e-9) <= epsilon <= high * (1.0 + 1e-9)
    assert high - low <= 1e-6


@pytest.mark.parametrize(("mu", "kappa"), [(10.0, "1e-6"), (20.0, "1e-12"), (40.0, "1e-15")])
def test_whole_releases_agree_with_their_closed_form(mu: float, kappa: str) -> None:
    given_delta = 1.0 - float(kappa)
    with mpmath.workdps(40):
        goal = 1 - mpmath.mpf(given_delta)

        def excess(e: mpmath.mpf) -> mpmath.mpf:
            kappa = mpmath.ncdf(e / mu - mpmath.mpf(mu) / 2) + mpmath.exp(e) * mpmath.ncdf(-e / mu - mpmath.mpf(mu) / 2)
            return mpmath.log(kappa / goal)

        truth = float(mpmath.findroot(excess, (0, mu**2 / 2), solver="anderson", tol=1e-30))
    low, high = complement.epsilon([(whole(mu), 1)], math.log(given_delta))
    assert low <= truth * (1.0 + 1e-15)
    assert truth * (1.0 - 1e-15) <= high <= low * (1.0 + 1e-8)
    event = Release(mechanism=noise(1.0 / mu))
    bound = profile(event).epsilon(given_delta)
    assert bound.route == "gdp"
    assert bound.lower <= truth <= bound.upper <= bound.lower * (1.0 + 1e-10)


@settings(max_examples=10, deadline=None)
@given(
    q=st.floats(0.01, 0.9),
    distance=st.floats(0.3, 8.0),
    count=st.integers(20, 3000),
    log_kappa=st.floats(-34.0, -4.7),
    removed=st.booleans(),
)
def test_every_tilt_proves_the_same(q: float, distance: float, count: int, log_kappa: float, removed: bool) -> None:
    pairs = [(sampled(q, distance, removed=removed), count), (whole(0.2), 1)]
    try:
        line = complement.line_for(pairs, log_kappa)
        # ``at_tilt`` changes the factors, so each is asked before the next one is made.
        found = [line.at_tilt(max(share * line.tilt, -0.99)).log_kappa(line.centre) for share in (0.8, 0.93, 1.0, 1.1)]
    except TransformUnavailable:
        return
    for (low, high), (other_low, other_high) in pairwise(found):
        assert low <= other_high
        assert other_low <= high


def noise(std: float) -> Gaussian:
    return Gaussian(std=std, sensitivity=Sensitivity(l2=1.0, adjacency="add_remove", unit="record"))


@pytest.mark.parametrize("delta", [0.999999, 1.0 - 1e-9, 1.0 - 1e-12])
@pytest.mark.parametrize(("q", "std", "steps"), [(0.5, 0.1, 100), (0.1, 0.3, 1000), (0.01, 0.5, 100_000), (0.02, 0.3, 10_000)])
def test_brackets_of_samples_are_narrow_next_to_one(q: float, std: float, steps: int, delta: float) -> None:
    event = Repeated(count=steps, event=PoissonSampled(probability=q, event=Release(mechanism=noise(std))))
    bound = profile(event).epsilon(delta)
    assert 0.0 < bound.lower <= bound.upper <= bound.lower * (1.0 + 1e-6)


def test_epsilon_falls_as_delta_goes_to_one() -> None:
    event = Repeated(count=1000, event=PoissonSampled(probability=0.1, event=Release(mechanism=noise(0.3))))
    found = profile(event)
    bounds = [found.epsilon(delta) for delta in (0.98, 0.99, 0.9999, 1 - 1e-5, 1 - 1e-7, 1 - 1e-10, 1 - 1e-14)]
    assert all(before.lower > after.upper for before, after in pairwise(bounds))


def test_a_guarantee_that_holds_at_once_has_epsilon_zero() -> None:
    assert complement.epsilon([(whole(3.0), 1)], -1e-9) == (0.0, 0.0)
    assert gdp_log_delta(3.0, 0.0) < -1e-9


def test_other_noise_is_declined() -> None:
    with pytest.raises(TransformUnavailable, match="Gaussian"):
        complement.epsilon([(Pair(LAPLACE, Mixture((0.5, 0.5), (0.0, 9.0)), NULL), 20)], -1e-9)
