"""Random allocation under replace_one: attacks by small data sets, what bounds it, and what it is made of."""

from __future__ import annotations

import functools
import itertools
import math
import random

import mpmath
import numpy as np
import pytest

from tests.accountants.events import gaussian
from tests.selection import thinned
from zetadp.accountants import Composed, Grouped, RandomlyAllocated, Release, Repeated, profile
from zetadp.mechanisms import (
    ApproximateGuarantee,
    Gaussian,
    GdpGuarantee,
    Laplace,
    PureGuarantee,
    Sensitivity,
    ZcdpGuarantee,
)
from zetadp.mechanisms.declared import DiscreteGaussian, DiscreteLaplace

LINE = np.linspace(-11.0, 11.0, 331)


def noise(scale=1.0, kind="gaussian", adjacency="replace_one", *, contribution=True):
    norm = "l2" if kind == "gaussian" else "l1"
    bounds = {norm: 1.0 if adjacency != "replace_one" else 2.0}
    if adjacency == "replace_one" and contribution:
        bounds[f"{norm}_contribution"] = 1.0
    sensitivity = Sensitivity(adjacency=adjacency, unit="record", **bounds)
    return Release(
        mechanism=(Gaussian(std=scale, sensitivity=sensitivity) if kind == "gaussian" else Laplace(scale=scale, sensitivity=sensitivity))
    )


def allocated(steps, event, count=1):
    return Repeated(count=count, event=RandomlyAllocated(steps=steps, event=event))


def law(values, scale, kind):
    """Densities on two steps' outputs; ``values``: every pair of what a unit adds to the first step and to the second."""
    one = (lambda x: np.exp(-0.5 * x * x)) if kind == "gaussian" else (lambda x: np.exp(-np.abs(x)))
    grid = [one((LINE - v) / scale) for v in np.unique([v for pair in values for v in pair])]
    known = dict(zip(np.unique([v for pair in values for v in pair]).tolist(), [g / g.sum() for g in grid], strict=True))
    return sum(np.multiply.outer(known[a], known[b]) for a, b in values) / len(values)


def outcomes(records):
    """What records at two steps' values add, over all of their allocations: (first step's value, second step's)."""
    for places in itertools.product((0, 1), repeat=len(records)):
        yield tuple(sum(record[step] for record, place in zip(records, places, strict=True) if place == step) for step in (0, 1))


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
@pytest.mark.parametrize("size", thinned([1, 2], every=2))
def test_no_data_set_of_two_steps_exceeds_the_upper_end(kind, size):
    draw = random.Random(7 + size)
    scale = 1.5
    event = allocated(2, noise(scale, kind))
    found = profile(event if size == 1 else Grouped(size=size, unit="user", event=event))
    allowed = {epsilon: math.exp(found.log_delta_upper(epsilon)) for epsilon in (0.0, 0.3, 1.0, 2.0)}
    for _ in range(6):
        ends = [(1.0, 1.0), (1.0, -1.0), (draw.uniform(-1, 1), 1.0)]
        unit = [draw.choice(ends) for _ in range(size)]
        other = [draw.choice([(-1.0, -1.0), (0.0, 0.0), (draw.uniform(-1, 1), -1.0)]) for _ in range(size)]
        first, second = (law(list(outcomes(one)), scale, kind) for one in (unit, other))
        for epsilon, upper in allowed.items():
            for a, b in ((first, second), (second, first)):
                assert np.maximum(a - math.exp(epsilon) * b, 0.0).sum() <= upper * (1.0 + 1e-3) + 1e-6  # the grid's own error


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.5])
def test_two_steps_against_a_unit_at_nothing_are_within_the_bracket(epsilon):
    # E[((X_1 + X_2) / 2 - g)_+] for the ratios X of N(m, 1) to N(0, 1), to 30 digits.
    m, g = 0.8, mpmath.exp(epsilon)
    with mpmath.workdps(30):

        def call(level):
            if level <= 0:
                return 1 - level
            d = -mpmath.log(level) / m + mpmath.mpf(m) / 2
            return mpmath.ncdf(d) - level * mpmath.ncdf(d - m)

        kink = (mpmath.log(2 * g) + mpmath.mpf(m) ** 2 / 2) / m
        attained = mpmath.quad(
            lambda z: mpmath.npdf(z) * call(2 * g - mpmath.exp(m * z - mpmath.mpf(m) ** 2 / 2)) / 2, [-20, -4, 0, kink, kink + 3, 20]
        )
    found = profile(allocated(2, noise(1.0 / m))).delta(epsilon)
    assert found.lower <= found.upper
    assert found.lower >= float(attained) * (1.0 - 1e-3)  # what is attained isn't given away
    assert found.upper >= float(attained)


def test_many_epochs_cost_much_less_than_whole_releases_and_at_most_about_twice_what_is_attained():
    found = profile(allocated(100, noise(1.0), 20)).epsilon(1e-5)
    whole = profile(Repeated(count=20, event=noise(1.0))).epsilon(1e-5)
    assert found.upper < 0.3 * whole.lower
    assert 0.0 < found.lower < found.upper < 2.5 * found.lower


def test_the_upper_end_is_that_of_removing_and_adding():
    found, removed = profile(allocated(10, noise(2.0))), profile(allocated(10, noise(2.0, adjacency="zero_out")))
    first = removed.epsilon(0.5e-5).upper
    assert found.epsilon(1e-5).upper == pytest.approx(first + removed.epsilon(0.5e-5 * math.exp(-first)).upper, rel=1e-6)
    for epsilon in (0.5, 2.0):
        best = min(removed.delta(a).upper + math.exp(a) * removed.delta(epsilon - a).upper for a in np.linspace(0.0, epsilon, 9))
        assert found.delta(epsilon).upper <= best * 1.05
    assert found.delta(found.epsilon(1e-5).upper).upper <= 1.02e-5


def test_without_a_stated_contribution_one_whole_release_bounds_an_epoch():
    event = noise(1.0, contribution=False)
    found, whole = profile(allocated(5, event, 2)).epsilon(1e-5), profile(Repeated(count=2, event=event)).epsilon(1e-5)
    assert found.upper == pytest.approx(whole.upper, rel=1e-6)
    assert 0.0 < found.lower < found.upper


def test_it_never_costs_more_than_one_whole_release_an_epoch():
    found, whole = (profile(one).epsilon_upper(1e-5) for one in (allocated(3, noise(0.5)), noise(0.5)))
    assert found <= whole * (1.0 + 1e-6)


def test_beside_a_part_without_a_contribution_an_epoch_is_one_whole_release():
    other = gaussian(5.0, adjacency="replace_one")
    found = profile(Composed(events=(allocated(100, noise(2.0), 5), other))).epsilon_upper(1e-5)
    whole = profile(Composed(events=(Repeated(count=5, event=noise(2.0)), other))).epsilon_upper(1e-5)
    beside = profile(Composed(events=(allocated(100, noise(2.0), 5), noise(5.0)))).epsilon_upper(1e-5)
    assert found == pytest.approx(whole, rel=1e-5)
    assert beside < 0.9 * whole


def test_the_derivation_names_what_it_rests_on():
    assert profile(allocated(20, noise(1.0), 3)).derivation()[-1].source == "proofs/allocation.md, (R2)"


# -- what isn't Gaussian or Laplace noise -------------------------------------------------------------------------------------------

REPLACED = {"adjacency": "replace_one", "unit": "record"}
OTHERS = [
    DiscreteGaussian(scale=1.5, moves=1, **REPLACED),
    DiscreteLaplace(scale=2.0, moves=1, **REPLACED),
    PureGuarantee(epsilon=0.7, **REPLACED),
    GdpGuarantee(mu=0.8, **REPLACED),
]


@pytest.mark.parametrize("mechanism", thinned(OTHERS, every=2), ids=lambda one: one.kind)
@pytest.mark.parametrize("count", [1, 5])
def test_one_whole_release_of_anything_bounds_an_epoch(mechanism, count):
    released = Release(mechanism=mechanism)
    found, whole = profile(allocated(10, released, count)), profile(Repeated(count=count, event=released))
    for delta in (1e-3, 1e-6):
        bound, most = found.epsilon(delta), whole.epsilon(delta)
        assert bound.upper == most.upper
        assert bound.lower < most.lower
        assert (bound.lower > 0.0) is not isinstance(mechanism, PureGuarantee)
    assert found.delta(0.1).upper == whole.delta(0.1).upper


@pytest.mark.parametrize(("kind", "scale"), [("gaussian", 1.5), ("laplace", 2.0)])
def test_attacks_on_noise_on_whole_numbers_lose_less(kind, scale):
    x = np.arange(-40, 41)
    law = np.exp(-0.5 * np.square(x / scale)) if kind == "gaussian" else np.exp(-np.abs(x) / scale)
    law /= law.sum()
    moved = np.roll(law, 1)
    # Three steps: the unit adds 1 to one of them, or, replaced, nothing to any.
    far = sum(np.multiply.outer(np.multiply.outer(a, b), c) for a, b, c in ((moved, law, law), (law, moved, law), (law, law, moved))) / 3.0
    near = np.multiply.outer(np.multiply.outer(law, law), law)
    mechanism = (DiscreteGaussian if kind == "gaussian" else DiscreteLaplace)(scale=scale, moves=1, **REPLACED)
    found = profile(allocated(3, Release(mechanism=mechanism)))
    for epsilon in (0.0, 0.1, 0.3):
        attained = max(np.maximum(p - math.exp(epsilon) * q, 0.0).sum() for p, q in ((far, near), (near, far)))
        assert 0.99 * attained - 1e-12 <= found.delta(epsilon).lower <= attained <= found.delta(epsilon).upper


@pytest.mark.parametrize("laplace", [False, True])
def test_a_stated_contribution_makes_many_epochs_of_noise_on_whole_numbers_cheap(laplace):
    mechanism = DiscreteLaplace if laplace else DiscreteGaussian
    event, plain = (
        allocated(50, Release(mechanism=mechanism(scale=2.0, moves=2, **REPLACED, **stated)), 20) for stated in ({"contribution": 1}, {})
    )
    found, whole = profile(event).epsilon(1e-5), profile(plain).epsilon(1e-5)
    assert 0.0 < found.lower <= found.upper < 0.5 * whole.upper


def test_attacks_on_two_units_of_noise_on_whole_numbers_lose_less():
    x = np.arange(-40, 41)
    law = np.exp(-np.abs(x) / 2.0)
    law /= law.sum()
    ahead, behind = np.roll(law, 1), np.roll(law, -1)
    far, near = (np.multiply.outer(one, law) / 2.0 + np.multiply.outer(law, one) / 2.0 for one in (ahead, behind))
    found = profile(allocated(2, Release(mechanism=DiscreteLaplace(scale=2.0, moves=2, contribution=1, **REPLACED))))
    for epsilon in (0.0, 0.1, 0.3):
        assert np.maximum(far - math.exp(epsilon) * near, 0.0).sum() <= found.delta(epsilon).upper


def test_a_stated_contribution_makes_many_epochs_of_both_noises_cheap():
    stated = Sensitivity(l2=1.0, l2_contribution=0.5, l1=1.0, l1_contribution=0.6, **REPLACED)
    both = Composed(
        events=(Release(mechanism=Gaussian(std=1.0, sensitivity=stated)), Release(mechanism=Laplace(scale=4.0, sensitivity=stated)))
    )
    found, whole = profile(allocated(50, both, 20)).epsilon(1e-5), profile(Repeated(count=20, event=both)).epsilon(1e-5)
    assert 0.0 < found.lower <= found.upper < 0.5 * whole.lower


def test_attacks_on_randomized_response_in_one_of_three_steps_lose_less():
    epsilon = 0.7
    truth = math.exp(epsilon) / (1.0 + math.exp(epsilon))
    one, other = np.array([truth, 1.0 - truth]), np.array([1.0 - truth, truth])
    near = np.multiply.outer(np.multiply.outer(one, one), one)
    moved = ((other, one, one), (one, other, one), (one, one, other))
    far = sum(np.multiply.outer(np.multiply.outer(a, b), c) for a, b, c in moved) / 3.0
    found = profile(allocated(3, Release(mechanism=PureGuarantee(epsilon=epsilon, **REPLACED))))
    for level in (0.0, 0.2, 0.4):
        attained = max(np.maximum(p - math.exp(level) * q, 0.0).sum() for p, q in ((far, near), (near, far)))
        assert 0.0 < attained <= found.delta(level).upper
        assert found.delta(level).lower == 0.0


def test_what_is_not_attained_counts_as_nothing_in_a_composition():
    parts = (allocated(10, Release(mechanism=OTHERS[2])), noise(4.0))
    found, alone = profile(Composed(events=parts)).epsilon(1e-5), profile(parts[1]).epsilon(1e-5)
    assert found.lower <= alone.upper
    assert alone.lower * (1.0 - 1e-6) <= found.lower < found.upper


def test_groups_of_pure_releases_are_bounded_and_derivations_say_how():
    event = Grouped(size=2, unit="user", event=allocated(10, Release(mechanism=OTHERS[2])))
    assert (
        profile(event).epsilon(1e-6).upper == profile(Grouped(size=2, unit="user", event=Release(mechanism=OTHERS[2]))).epsilon(1e-6).upper
    )
    assert any("one whole release of the epoch" in str(step.formula) for step in profile(event).derivation())


@pytest.mark.parametrize("size", [1, 3])
def test_zcdp_epochs_are_one_whole_release_each_and_bound_gaussian_noise(size):
    released = Release(mechanism=ZcdpGuarantee(rho=0.5 * 0.8**2, **REPLACED))
    found, whole, noisy = (
        profile(Grouped(size=size, unit="user", event=event))
        for event in (allocated(10, released, 4), Repeated(count=4, event=released), allocated(10, noise(1.0 / 0.4), 4))
    )
    for delta in (1e-3, 1e-6):
        bound = found.epsilon(delta)
        assert bound.upper == whole.epsilon(delta).upper
        assert bound.lower == 0.0
        assert bound.upper > noisy.epsilon(delta).upper


def test_attacks_on_zcdp_noise_in_one_of_two_steps_lose_less():
    # Both units of a group against their opposites, of Gaussian noise that is zCDP: 2 from one end to the other in every release.
    found = profile(
        Grouped(size=2, unit="user", event=allocated(2, Release(mechanism=ZcdpGuarantee(rho=0.5 * (2.0 / 3.0) ** 2, **REPLACED))))
    )
    first, second = (law(list(outcomes([(x, x)] * 2)), 3.0, "gaussian") for x in (1.0, -1.0))
    for epsilon in (0.5, 1.0, 2.0):
        assert 0.0 < np.maximum(first - math.exp(epsilon) * second, 0.0).sum() <= found.delta(epsilon).upper


# -- what may fail -------------------------------------------------------------------------------------------------------------------

MAY_FAIL = Release(mechanism=ApproximateGuarantee(epsilon=0.5, delta=1e-4, **REPLACED))


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("count", [1, 3])
def test_what_may_fail_is_one_whole_release_an_epoch_and_nothing_is_known_to_be_attained(size, count):
    found, whole = (
        profile(Grouped(size=size, unit="user", event=event))
        for event in (allocated(10, MAY_FAIL, count), Repeated(count=count, event=MAY_FAIL))
    )
    for delta in (1e-3, 1e-5):  # below the second one a failure is likelier
        assert found.epsilon(delta).upper == whole.epsilon(delta).upper
        assert found.epsilon(delta).lower == 0.0
    assert found.delta(0.3).upper == whole.delta(0.3).upper
    assert found.delta(0.3).lower == 0.0
    assert any(step.source == "proofs/allocation.md, (R1)" for step in found.derivation())


@pytest.mark.parametrize("size", [1, 2])
def test_attacks_on_what_may_fail_in_one_of_three_steps_lose_less(size):
    epsilon, delta = 0.5, 1e-4
    truth = (1.0 - delta) / (1.0 + math.exp(-epsilon))
    # It shows the bit, or answers at random; the bit is whether a unit that is there has a 1.
    one, other = np.array([truth, 1.0 - delta - truth, delta, 0.0]), np.array([1.0 - delta - truth, truth, 0.0, delta])

    def outputs(law_of_units):
        laws = [[law_of_units if step in places else one for step in range(3)] for places in itertools.product(range(3), repeat=size)]
        return sum(np.multiply.outer(np.multiply.outer(a, b), c) for a, b, c in laws) / len(laws)

    far, near = outputs(other), outputs(one)
    found = profile(Grouped(size=size, unit="user", event=allocated(3, MAY_FAIL)))
    for level in (0.0, 0.2, 0.4, 0.9):
        attained = max(np.maximum(p - math.exp(level) * q, 0.0).sum() for p, q in ((far, near), (near, far)))
        assert 0.0 < attained <= found.delta(level).upper


def test_beside_what_may_fail_other_releases_lose_what_they_lose_alone():
    other = gaussian(4.0, adjacency="replace_one")
    found, alone = profile(Composed(events=(allocated(10, MAY_FAIL), other))), profile(other)
    assert found.delta(0.5).lower == pytest.approx(alone.delta(0.5).lower)
    assert found.delta(0.5).upper > alone.delta(0.5).upper + 1e-4


@pytest.mark.parametrize(("kind", "scale", "symbol"), [("gaussian", 1.5, "rho"), ("laplace", 2.0, "epsilon")])
@pytest.mark.parametrize("moves", [1, 2])
def test_attacks_by_groups_on_noise_on_whole_numbers_lose_less(kind, scale, symbol, moves):
    x = np.arange(-40, 41)
    law = np.exp(-0.5 * np.square(x / scale)) if kind == "gaussian" else np.exp(-np.abs(x) / scale)
    law /= law.sum()
    # Three steps and two units, each of which moves the one that it is in, or, replaced, nothing.
    added = [np.bincount(places, minlength=3) * moves for places in itertools.product(range(3), repeat=2)]
    far = sum(functools.reduce(np.multiply.outer, [np.roll(law, int(shift)) for shift in shifts]) for shifts in added) / len(added)
    near = functools.reduce(np.multiply.outer, [law] * 3)
    mechanism = (DiscreteGaussian if kind == "gaussian" else DiscreteLaplace)(scale=scale, moves=moves, **REPLACED)
    found = profile(Grouped(size=2, unit="user", event=allocated(3, Release(mechanism=mechanism))))
    for epsilon in (0.1, 0.3, 0.8):
        attained = max(np.maximum(p - math.exp(epsilon) * q, 0.0).sum() for p, q in ((far, near), (near, far)))
        assert 0.0 < attained <= found.delta(epsilon).upper
        assert found.delta(epsilon).lower == 0.0
    assert any(step.symbol == symbol and mechanism.kind in str(step.formula) for step in found.derivation())
