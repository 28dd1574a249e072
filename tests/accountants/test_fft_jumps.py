"""Samples so rare that delta is that of a few large losses: composed without what no such jump contributes. proofs/fft.md (4.8)"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy import special

from tests.accountants.events import fixed_size, training
from tests.accountants.references import group, poisson
from tests.selection import chosen, thinned
from zetadp.accountants import Grouped, profile
from zetadp.accountants.events import leaves
from zetadp.accountants.grids.layers import Plan
from zetadp.accountants.grids.layout import Estimates
from zetadp.accountants.grids.powers import power, power_of_both, product_of_both
from zetadp.accountants.routes.fft.fft import merged


def user(size, probability, std, count):
    return Grouped(size=size, unit="user", event=training(probability, std, count))


def layer_of(event, epsilon, step_share=1.0):
    """The layer for delta at this epsilon, of the first direction; it must be one with jumps."""
    plan = Plan(merged(leaves(event)), *Estimates.for_epsilon(merged(leaves(event)), epsilon))
    layer = plan.layer(plan.step(1.0 / plan.saddle.tilt) * step_share, both=True)
    assert layer.upper.window.jump > 0.0
    return layer


class Twice:
    """Two releases of a sampled Gaussian pair in ordinary floats, every sum of positive terms: delta to about ten digits."""

    def __init__(self, pair):
        self.shifts = np.array(pair.upper.shifts)
        self.log_weights = np.log(pair.upper.weights)

    def loss(self, x):
        return special.logsumexp(self.log_weights + self.shifts * x[:, None] - 0.5 * self.shifts**2, axis=1)

    def log_once(self, epsilons):
        low, high = np.full(len(epsilons), -80.0), np.full(len(epsilons), 400.0)
        for _ in range(90):
            middle = 0.5 * (low + high)
            below = self.loss(middle) < epsilons
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        above = special.logsumexp(self.log_weights + special.log_ndtr(self.shifts - high[:, None]), axis=1)
        under = np.minimum(epsilons + special.log_ndtr(-high) - above, -1e-300)
        # Where no loss is as small as this, delta is 1 - e^epsilon.
        least = epsilons <= self.log_weights[0]
        return np.where(least, np.log(-np.expm1(np.where(least, epsilons, -1.0))), above + np.log(-np.expm1(under)))

    def log_delta(self, epsilon):
        # delta of the second release has a bend at epsilon 0, as narrow as its rare losses are small: panels shrink towards it.
        low, high = -80.0, 400.0
        for _ in range(90):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.loss(np.array([middle]))[0] < epsilon else (low, middle)
        near = low + np.concatenate([-(2.0 ** np.arange(4, -40, -1)), [0.0], 2.0 ** np.arange(-40, 5)])
        edges = np.unique(np.concatenate([np.linspace(-14.0, 60.0, 149), near]))
        points, weights = np.polynomial.legendre.leggauss(24)
        half = 0.5 * np.diff(edges)[:, None]
        x, log_dx = (0.5 * (edges[1:] + edges[:-1])[:, None] + half * points).ravel(), np.log(half * weights).ravel()
        loss = self.loss(x)
        return float(special.logsumexp(loss - 0.5 * x**2 - 0.5 * math.log(2.0 * math.pi) + log_dx + self.log_once(epsilon - loss)))


@pytest.mark.parametrize("epsilon", chosen([1.0, 3.0, 8.0], [3.0]))
def test_one_release_of_a_rare_user_has_its_closed_form(epsilon) -> None:
    event = user(8, 1.2e-4, 2.2, 1)
    layer_of(event, epsilon)
    known, found = profile(event, accountant="single").delta(epsilon), profile(event, accountant="fft").delta(epsilon)
    assert known.log_upper < -100.0
    assert found.log_lower <= known.log_upper
    assert known.log_lower <= found.log_upper
    assert found.log_upper - found.log_lower < 1e-4 * epsilon


@pytest.mark.parametrize(
    ("size", "std", "epsilon"), chosen([(8, 2.2, 1.0), (8, 2.2, 3.0), (5, 1.1, 4.0), (1, 0.7, 2.5)], [(8, 2.2, 3.0), (5, 1.1, 4.0)])
)
def test_two_releases_agree_with_their_double_integral(size, std, epsilon) -> None:
    probability = 1e-5 if size == 1 else 1.2e-4
    event = user(size, probability, std, 2) if size > 1 else training(probability, std, 2)
    truth = Twice(group(probability, 1.0 / std, size) if size > 1 else poisson(probability, 1.0 / std)).log_delta(epsilon)
    found = profile(event, accountant="fft").delta(epsilon)
    assert found.log_lower - 1e-8 <= truth <= found.log_upper + 1e-8
    assert found.log_upper - found.log_lower < 1e-4 * epsilon


def test_the_double_integral_is_that_of_fifty_digits() -> None:
    # One release has a closed form.
    twice, pair = Twice(group(1.2e-4, 1.0 / 2.2, 8)), group(1.2e-4, 1.0 / 2.2, 8)
    with mpmath.workdps(50):
        rest = [mpmath.mpf(w) for w in pair.upper.weights[1:]]
        weights = [1 - mpmath.fsum(rest), *rest]
        low, high = mpmath.mpf(0), mpmath.mpf(200)
        for _ in range(200):
            middle = (low + high) / 2
            ratio = mpmath.fsum(
                w * mpmath.exp(a * middle - mpmath.mpf(a) ** 2 / 2) for w, a in zip(weights, pair.upper.shifts, strict=True)
            )
            low, high = (middle, high) if ratio < mpmath.exp(3) else (low, middle)
        above = mpmath.fsum(w * mpmath.ncdf(a - low) for w, a in zip(weights, pair.upper.shifts, strict=True))
        truth = mpmath.log(above - mpmath.exp(3) * mpmath.ncdf(-low))
    assert float(twice.log_once(np.array([3.0]))[0]) == pytest.approx(float(truth), abs=1e-9)


def test_a_rare_user_of_many_releases_is_answered() -> None:
    # Renyi's bound is 15.2, and the whole law's rounding hid everything else.
    bound = profile(user(8, 1.2e-4, 2.2, 815)).epsilon(2e-73)
    assert 0.0 < bound.upper - bound.lower < 1e-5 * bound.upper
    assert bound.upper < 2.7
    twice = profile(user(8, 1.2e-4, 2.2, 2)).epsilon(2e-73)
    assert twice.upper < bound.lower


def test_what_no_jump_contributes_is_bounded_not_forgotten() -> None:
    """At the lower end of a window that reaches far down the bound on the bulk is the answer, and is above the whole law's delta."""
    event = user(8, 1.2e-4, 2.2, 100)
    layer = layer_of(event, 3.0)
    upper = layer.upper
    whole = profile(event, accountant="rdp")
    for epsilon in (0.05, 0.3, 1.0, 2.9):
        index = math.floor((epsilon - upper.start) / upper.step)
        if upper.window.first <= index <= upper.window.last:
            assert upper.log_delta(index) >= profile(event, accountant="fft").delta(epsilon).log_lower - 1e-9
    assert whole.delta(3.0).log_upper >= layer.lower.log_delta(math.ceil((3.0 - layer.lower.start) / layer.lower.step))


@pytest.mark.parametrize("epsilon", chosen([0.05, 0.5, 3.0, 20.0], [3.0]))
def test_delta_of_a_group_is_found_at_every_epsilon(epsilon) -> None:
    # The search for delta ended at epsilons far above the one asked for, and Renyi's bound was the answer, after 89 s.
    asked = profile(user(8, 1.2e-4, 2.2, 100), accountant="fft")
    delta = asked.delta(epsilon)
    assert delta.route.startswith("fft")
    assert 0.0 < delta.log_upper - delta.log_lower < 1e-4
    back = asked.epsilon_at_log_delta(delta.log_upper)
    assert back.lower <= epsilon * (1.0 + 1e-12)
    assert back.upper == pytest.approx(epsilon, rel=1e-5)


@pytest.mark.parametrize("count", thinned([1, 2, 3, 7, 64, 1000], every=2))
def test_jumps_of_a_power_lose_nothing_to_the_bulk(count) -> None:
    generator = np.random.default_rng(count)
    bulk = 0.999 * np.exp(1j * generator.uniform(0.0, 6.3, 8))
    jumps = 1e-30 * generator.uniform(0.1, 1.0, 8) * np.exp(1j * generator.uniform(0.0, 6.3, 8))
    product, rise = power_of_both((bulk, jumps), count)
    with mpmath.workdps(80):
        for one, jump, found in zip(bulk, jumps, rise, strict=True):
            b, s = mpmath.mpc(complex(one)), mpmath.mpc(complex(jump))
            truth = (b + s) ** count - b**count
            assert abs(mpmath.mpc(complex(found)) - truth) <= 1e-15 * 8 * count * count * 1e-30
    assert np.array_equal(product, power(bulk, count))
    both = product_of_both((bulk, jumps), (np.zeros(8, dtype=complex), jumps))
    assert np.allclose(both[1], jumps * (bulk + jumps), rtol=1e-15, atol=0.0)


def test_noise_of_jumps_is_their_share() -> None:
    upper = layer_of(user(8, 1.2e-4, 2.2, 815), 3.0).upper
    tilted = float(np.exp(upper._log_total))
    assert tilted < 1e-40
    assert upper._noise < 1e-9 * tilted


# Losses that decide alone (4.9)


@pytest.mark.parametrize(
    ("probability", "std", "count", "delta"),
    thinned([(1e-5, 0.8, 100, 1e-12), (1e-6, 0.5, 1000, 1e-10)], every=2),
    ids=["few releases", "little noise"],
)
def test_rare_samples_have_a_narrow_bracket(probability, std, count, delta) -> None:
    # 5 and 10 % before: the grid had to hold losses of 9 and more beside those of a thousandth.
    bound = profile(training(probability, std, count), accountant="fft").epsilon(delta)
    assert 0.0 < bound.upper - bound.lower < 1e-6 * bound.upper


@pytest.mark.parametrize(("probability", "std", "epsilon"), thinned([(1e-5, 0.8, 0.05), (1e-4, 1.0, 0.02), (1e-6, 0.5, 0.2)], every=3))
def test_two_rare_releases_agree_with_their_double_integral(probability, std, epsilon) -> None:
    truth = Twice(poisson(probability, 1.0 / std)).log_delta(epsilon)
    found = profile(training(probability, std, 2), accountant="fft").delta(epsilon)
    assert found.log_lower - 1e-7 <= truth <= found.log_upper + 1e-7
    assert found.log_upper - found.log_lower < 1e-3


def test_losses_that_are_ended_are_used_below() -> None:
    event = training(1e-5, 0.8, 100)
    (side,) = [merged(leaves(event))]
    plan = Plan(side, *Estimates.for_delta(side, math.log(1e-12)))
    layer = plan.layer(plan.step(), both=True)
    (losses, _) = plan._estimates.leaves[0]
    assert losses.losses[-1] < 0.2
    assert layer.lower._log_least_infinity > math.log(1e-15)


def separable_log_delta(probability, distance, count, epsilon):
    """log delta where the noise shows what was sampled, but for 1e-15: given that k releases had the record their loss is normal."""
    terms = []
    for k in range(1, count + 1):
        mean = k * (0.5 * distance**2 + math.log(probability)) + (count - k) * math.log1p(-probability)
        deviation = distance * math.sqrt(k)
        z = (mean - epsilon) / deviation
        near, far = special.log_ndtr(z), epsilon - mean + 0.5 * deviation**2 + special.log_ndtr(z - deviation)
        log_weight = math.log(math.comb(count, k)) + k * math.log(probability) + (count - k) * math.log1p(-probability)
        if far < near:
            terms.append(log_weight + near + math.log(-math.expm1(far - near)))
    return float(special.logsumexp(terms))


def test_little_noise_of_rare_samples_is_answered_from_both_sides():
    """The law below was empty, as its curve is straight over so many nodes that they went one at a time: [0, 881]."""
    bound = profile(fixed_size(1, 1689, 0.1114, 15)).epsilon(3.17e-14)
    assert bound.upper - bound.lower <= 1e-6 * bound.upper
    for end, sign in ((bound.lower * (1.0 - 1e-7), 1.0), (bound.upper * (1.0 + 1e-7), -1.0)):
        assert sign * (separable_log_delta(1 / 1689, 2.0 / 0.1114, 15, end) - math.log(3.17e-14)) > 0.0


def test_a_direction_that_ends_before_epsilon_needs_no_grid():
    """Its largest loss is 4e-7, and a grid of reasonable size around that had no upper end."""
    bound = profile(training(1.859e-7, 0.09762, 2), accountant="fft").epsilon(2.34e-201)
    assert 0.0 < bound.upper - bound.lower <= 1e-6 * bound.upper
