"""One release in closed form: against the other closed forms, in both directions, at every size of delta."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from tests.accountants.events import gaussian, laplace
from zetadp.accountants import FixedSizeSampled, Grouped, PoissonSampled, Repeated, accountant_named
from zetadp.accountants.routes.closed.closed_form import epsilon_at
from zetadp.accountants.routes.fft.fft import FftAccountant
from zetadp.accountants.routes.single import single
from zetadp.mechanisms.errors import NumericalFloor, UnsupportedEvent

SINGLE = accountant_named("single")


@pytest.mark.parametrize("std", [0.2, 1.0, 7.0])
@pytest.mark.parametrize("delta", [0.01, 1e-5, 1e-30, 1e-200])
def test_a_whole_gaussian_is_its_closed_form(std, delta):
    exact = epsilon_at(1.0 / std, math.log(delta))
    found = SINGLE.profile(gaussian(std)).epsilon(delta)
    assert found.lower <= exact.upper
    assert found.upper >= exact.lower
    assert found.upper - found.lower <= 1e-11 * max(found.upper, 1e-3)


@pytest.mark.parametrize("delta", [1e-9, 1e-3, 0.2])
def test_a_whole_laplace_is_its_closed_form(delta):
    exact = 2.0 + 2.0 * math.log1p(-delta)  # 1 - e^{(eps - 2) / 2} = delta
    found = SINGLE.profile(laplace(0.5)).epsilon(delta)
    assert found.lower <= exact <= found.upper
    assert found.upper - found.lower < 1e-10


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 1e-2])
def test_next_to_the_kink_at_the_largest_loss_few_looks_find_both_ends(scale, delta, monkeypatch):
    looks: list[int] = []
    calls = single.calls
    monkeypatch.setattr(single, "calls", lambda pair, epsilons: looks.append(len(epsilons)) or calls(pair, epsilons))
    found = SINGLE.profile(laplace(scale)).epsilon(delta)
    exact = 1.0 / scale + 2.0 * math.log1p(-delta)
    assert found.lower <= exact <= found.upper
    assert len(looks) <= 8


@pytest.mark.parametrize("power", [0.5, 1.0, 7.0])
@pytest.mark.parametrize("delta", [0.3, 1e-5, 1e-12])
def test_a_crossing_is_between_neighbours_that_were_computed_and_takes_few_looks(power, delta):
    looks: list[np.ndarray] = []

    def curve(epsilons: np.ndarray) -> np.ndarray:
        looks.append(epsilons)
        return np.exp(-np.minimum(epsilons, 700.0 / power) * power) * (1.0 + 1e-14 * np.sin(1e15 * epsilons))

    left, right = single._crossing(curve, delta, single._POWERS)
    seen = np.concatenate(looks)
    assert {left, right} <= set(seen.tolist())
    assert curve(np.array([left]))[0] > delta >= curve(np.array([right]))[0]
    assert right - left <= 4e-16 * right
    assert len(looks) <= 10
    # Neither a curve that jumps, nor one that is never above or never at most delta, needs another search.
    left, right = single._crossing(lambda epsilons: np.where(epsilons < 0.3, 1.0, 0.0), delta, single._POWERS)
    assert left < 0.3 <= right <= left + 4e-16 * right
    assert single._crossing(np.zeros_like, delta, single._POWERS) == (0.0, 0.0)
    assert single._crossing(np.ones_like, delta, single._POWERS) == (2.0**109, math.inf)


@pytest.mark.parametrize("noise", [gaussian(0.8), laplace(0.7)], ids=["gaussian", "laplace"])
@pytest.mark.parametrize("q", [0.9, 0.05, 1e-4])
@pytest.mark.parametrize("epsilon", [0.0, 0.02, 1.0])
def test_sampling_amplifies_by_the_two_known_formulas(noise, q, epsilon):
    whole, sampled = SINGLE.profile(noise), SINGLE.profile(PoissonSampled(probability=q, event=noise))
    # Removing, the larger one: delta_q(eps) = q delta(log(1 + (e^eps - 1) / q)), Balle, Barthe and Gaboardi 2018, Theorem 8.
    inner = math.log1p(math.expm1(epsilon) / q)
    exact = q * math.exp(whole.delta(inner).log_upper)
    found = sampled.delta(epsilon)
    assert found.lower <= exact * (1.0 + 1e-11)
    assert found.upper >= exact * (1.0 - 1e-11)
    assert found.log_upper - found.log_lower < 1e-9 or exact < 1e-15


def test_adding_can_be_no_worse_than_what_is_answered():
    q, std = 0.3, 1.0
    found = SINGLE.profile(PoissonSampled(probability=q, event=gaussian(std)))
    for threshold in [-3.0, -2.0, -1.0, 0.0]:
        below = 0.5 * math.erfc(-threshold / math.sqrt(2.0))
        mixed = (1.0 - q) * below + q * 0.5 * math.erfc(-(threshold - 1.0 / std) / math.sqrt(2.0))
        for epsilon in [0.0, 0.1, 0.3]:
            assert below - math.exp(epsilon) * mixed <= found.delta(epsilon).upper


def test_the_worst_of_both_orders_is_the_larger_one():
    fixed = FixedSizeSampled(sample_size=30, population_size=100, event=gaussian(1.0, adjacency="replace_one"))
    poisson = PoissonSampled(probability=0.3, event=gaussian(1.0))  # the same pair of mixtures
    both, one = SINGLE.profile(fixed), SINGLE.profile(poisson)
    for delta in [1e-2, 1e-6]:
        assert both.epsilon(delta).upper == pytest.approx(one.epsilon(delta).upper, rel=1e-10)


def test_a_group_of_whole_releases_moves_so_many_times_as_far():
    grouped = SINGLE.profile(Grouped(size=4, unit="user", event=gaussian(2.0))).epsilon(1e-6)
    assert grouped.upper == pytest.approx(epsilon_at(2.0, math.log(1e-6)).upper, rel=1e-10)


@pytest.mark.parametrize("delta", [4e-298, 3.66e-292])
def test_next_to_the_floor_the_exact_epsilon_of_a_sampled_group_lies_within_the_bracket(delta):
    q, std, size = 0.005322, 0.0944, 7
    found = SINGLE.profile(Grouped(size=size, unit="user", event=PoissonSampled(probability=q, event=gaussian(std)))).epsilon(delta)
    with mpmath.workdps(60):
        c = 1 / mpmath.mpf(std)
        weights = [mpmath.binomial(size, j) * mpmath.mpf(q) ** j * (1 - mpmath.mpf(q)) ** (size - j) for j in range(size + 1)]

        def profile_at(x):
            # The loss at x, and delta at that epsilon.
            loss = mpmath.log(sum(w * mpmath.npdf(x - j * c) for j, w in enumerate(weights)) / mpmath.npdf(x))
            tail = sum(w * mpmath.ncdf(j * c - x) for j, w in enumerate(weights))
            return loss, tail - mpmath.exp(loss) * mpmath.ncdf(-x)

        low, high = size * c, size * c + 50
        for _ in range(150):
            x = (low + high) / 2
            low, high = (x, high) if profile_at(x)[1] > delta else (low, x)
        truth = profile_at(low)[0]
        assert found.lower <= truth <= found.upper
    assert found.upper - found.lower <= 1e-5 * found.upper


def test_nothing_is_answered_below_the_floor():
    with pytest.raises(NumericalFloor, match="floor"):
        SINGLE.profile(gaussian(1.0)).epsilon(1e-300)
    with pytest.raises(NumericalFloor, match="floor"):
        SINGLE.profile(gaussian(1.0)).delta(40.0)


def test_two_releases_are_not_one():
    with pytest.raises(UnsupportedEvent, match="more than one release"):
        SINGLE.profile(Repeated(count=2, event=gaussian(1.0)))


def test_infinite_epsilon_leaves_nothing_and_large_deltas_need_none():
    profile = SINGLE.profile(laplace(1.0))
    assert profile.delta(math.inf).upper == 0.0
    assert profile.delta(1.0 + 1e-9).upper == 0.0
    assert profile.epsilon(0.9).upper == 0.0


@pytest.mark.parametrize("share", [0.99, 1.0 - 1e-9, 1.0 - 1e-12, 1.0])
def test_a_release_near_its_largest_loss_is_never_put_on_a_grid(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a grid was made for one release")

    monkeypatch.setattr(FftAccountant, "profile", refuse)
    epsilon = share / 1.37
    found = accountant_named("auto").profile(laplace(1.37)).delta(epsilon)
    exact = -math.expm1((epsilon - 1.0 / 1.37) / 2.0)
    assert math.exp(found.log_upper) >= exact
    assert math.exp(found.log_upper) <= exact + 1e-13


@pytest.mark.parametrize(("distance", "q", "epsilon"), [(900.0, 0.5, 850.0), (700.0, 0.3, 650.0), (2000.0, 0.5, 1990.0)])
def test_sampled_laplace_of_losses_beyond_exponents_of_floats(distance, q, epsilon):
    # Q's mass beyond a threshold, times e^epsilon, was cut at e^600 before it was multiplied: lower ends were 1e-11 too high.
    found = accountant_named("single").profile(PoissonSampled(probability=q, event=laplace(1.0 / distance))).delta(epsilon)
    with mpmath.workdps(2000):
        factor = mpmath.exp(mpmath.mpf(epsilon))
        at = (mpmath.log((factor - 1 + q) / q) + distance) / 2
        beyond = mpmath.exp(-at) / 2
        near = 1 - mpmath.exp(at - distance) / 2 if at < distance else mpmath.exp(distance - at) / 2
        truth = mpmath.log((1 - mpmath.mpf(q)) * beyond + q * near - factor * beyond)
        assert found.log_lower <= truth <= found.log_upper
    assert found.log_upper - found.log_lower < 1e-10


def test_a_whole_number_is_an_epsilon_too():
    noise = laplace(2.0)
    assert accountant_named("single").profile(noise).delta(0) == accountant_named("single").profile(noise).delta(0.0)
