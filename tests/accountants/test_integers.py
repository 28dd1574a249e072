"""Noise on whole numbers, whole and sampled: against sums over all outcomes in many digits."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest

from tests.accountants.whole_numbers import hockey_stick, holds_to_the_last_digits, outcomes_of, renyi
from tests.selection import chosen, thinned
from zetadp.accountants import (
    FixedSizeSampled,
    Grouped,
    Leaf,
    PoissonSampled,
    RandomlyAllocated,
    Release,
    Repeated,
    TruncatedPoissonSampled,
    accountant_named,
    profile,
)
from zetadp.accountants.calibration import NoiseScale, Target, solve
from zetadp.accountants.dominating import pair_of
from zetadp.accountants.grids.hockey_stick import calls
from zetadp.accountants.routes.rdp.rdp import leaf_renyi
from zetadp.mechanisms import Gaussian, Sensitivity, UnsupportedEvent
from zetadp.mechanisms.declared import DiscreteGaussian, DiscreteLaplace

WHO = {"adjacency": "add_remove", "unit": "record"}


def noise(law, scale, moves=1, **who):
    return (DiscreteGaussian if law == "gaussian" else DiscreteLaplace)(scale=scale, moves=moves, **(WHO | who))


def law_of(mechanism):
    """f as a function of a whole number, in many digits."""
    scale = mpmath.mpf(mechanism.scale)

    def weight(x):
        return mpmath.exp(-(x * x) / (2 * scale**2)) if mechanism.kind == "discrete_gaussian" else mpmath.exp(-abs(x) / scale)

    reach = reach_of(mechanism)
    total = mpmath.fsum(weight(x) for x in range(-reach, reach + 1))
    return lambda x: weight(x) / total


def reach_of(mechanism):
    return math.ceil(mechanism.scale * (16 if mechanism.kind == "discrete_gaussian" else 130)) + 5


def outcomes(leaf):
    return outcomes_of(leaf, law_of(leaf.mechanism), reach_of(leaf.mechanism))


LEAVES = [
    Leaf(1.0, noise("gaussian", 2.0)),
    Leaf(1.0, noise("gaussian", 0.3, 2)),
    Leaf(0.01, noise("gaussian", 1.0)),
    Leaf(1e-6, noise("gaussian", 3.0, 5)),
    Leaf(0.9, noise("gaussian", 7.3, 3)),
    Leaf(0.2, noise("gaussian", 2.0), group=3),
    Leaf(1.0, noise("laplace", 2.0)),
    Leaf(1.0, noise("laplace", 0.4, 3)),
    Leaf(0.01, noise("laplace", 3.0, 2)),
    Leaf(1e-5, noise("laplace", 1.0)),
    Leaf(0.3, noise("laplace", 2.0), group=2),
]


@pytest.mark.parametrize(
    "leaf", thinned(LEAVES, every=4), ids=lambda leaf: f"{leaf.mechanism.kind}-{leaf.mechanism.scale}-{leaf.probability}-{leaf.group}"
)
@pytest.mark.parametrize("is_reversed", [False, True])
def test_one_release_is_its_sum_to_the_last_digits(leaf, is_reversed):
    with mpmath.workdps(40):
        holds_to_the_last_digits(leaf, outcomes(leaf), is_reversed=is_reversed, digits=40, deepest=60, stride=97)


@pytest.mark.parametrize(
    "leaf", thinned(LEAVES, every=4), ids=lambda leaf: f"{leaf.mechanism.kind}-{leaf.mechanism.scale}-{leaf.probability}-{leaf.group}"
)
@pytest.mark.parametrize("order", [1.5, 2.0, 6.0])
def test_renyi_divergences_are_bounds_and_near(leaf, order):
    with mpmath.workdps(40):
        truth = renyi(outcomes(leaf), order)
    found = leaf_renyi(leaf, order)
    assert truth * (1 - 1e-9) <= found
    if leaf.mechanism.scale >= 1.0:
        assert found <= truth * 1.001


@pytest.mark.parametrize("order", [40.0, 300.0])
@pytest.mark.parametrize(
    "leaf",
    thinned([LEAVES[2], LEAVES[4], LEAVES[5], LEAVES[8], Leaf(0.9, noise("gaussian", 1.0), group=12)], every=3),
    ids=lambda leaf: leaf.group,
)
def test_large_orders_reach_as_far_as_their_mass(leaf, order):
    """The mass of e^{order L} lies an order times the moves away, far beyond all that matters for delta."""
    scale, q, m = mpmath.mpf(leaf.mechanism.scale), mpmath.mpf(leaf.probability), leaf.mechanism.moves
    is_gaussian = leaf.mechanism.kind == "discrete_gaussian"
    weights = [mpmath.binomial(leaf.group, j) * q**j * (1 - q) ** (leaf.group - j) for j in range(leaf.group + 1)]
    found = leaf_renyi(leaf, order)
    with mpmath.workdps(30):

        def log_f(x):
            return -(x * x) / (2 * scale**2) if is_gaussian else -abs(x) / scale

        # One outcome alone is a lower bound of the moment, and the best one is nearly all of it.
        reach = int(order) * m * leaf.group + 50
        total = mpmath.fsum(mpmath.exp(log_f(x)) for x in range(-200, 201))
        best = -math.inf
        for x in range(0, reach, max(1, reach // 400)):
            p = mpmath.fsum(w * mpmath.exp(log_f(x - j * m)) for j, w in enumerate(weights))
            best = max(best, float(order * mpmath.log(p) + (1 - order) * log_f(x) - mpmath.log(total)) / (order - 1.0))
    assert best <= found


@pytest.mark.parametrize(
    ("leaf", "count"),
    chosen(
        [(LEAVES[0], 3), (LEAVES[2], 3), (Leaf(0.3, noise("gaussian", 1.0, 2)), 2), (LEAVES[6], 3), (LEAVES[8], 2)],
        [(LEAVES[0], 3), (LEAVES[6], 3), (LEAVES[8], 2)],
    ),
)
def test_compositions_are_sums_over_all_outcomes(leaf, count):
    with mpmath.workdps(25):
        pairs = [(float(p), float(q)) for p, q in outcomes(leaf) if p > 1e-12]
    p, q = np.array([one[0] for one in pairs]), np.array([one[1] for one in pairs])
    joint_p, joint_q = p, q
    for _ in range(count - 1):
        joint_p, joint_q = np.multiply.outer(joint_p, p).ravel(), np.multiply.outer(joint_q, q).ravel()
    event = Repeated(count=count, event=Release(mechanism=leaf.mechanism))
    if leaf.probability < 1.0:
        event = Repeated(count=count, event=PoissonSampled(probability=leaf.probability, event=Release(mechanism=leaf.mechanism)))
    found = profile(event, "fft")
    for epsilon in (0.0, 0.2, 0.9):
        both = [float(np.maximum(a - math.exp(epsilon) * b, 0.0).sum()) for a, b in ((joint_p, joint_q), (joint_q, joint_p))]
        bound = found.delta(epsilon)
        assert bound.lower * (1 - 1e-9) - 1e-10 <= max(both) <= bound.upper * (1 + 1e-9)
        assert bound.upper - bound.lower <= 1e-3 * bound.upper


@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_sampled_noise_on_whole_numbers_is_nearly_that_on_the_line(scale):
    def trained(mechanism):
        return Repeated(count=200, event=PoissonSampled(probability=0.02, event=Release(mechanism=mechanism)))

    smooth = profile(trained(Gaussian(std=scale, sensitivity=Sensitivity(l2=1.0, **WHO)))).epsilon(1e-5)
    found = profile(trained(noise("gaussian", scale))).epsilon(1e-5)
    assert found.lower == pytest.approx(smooth.lower, rel=0.01)
    assert found.upper - found.lower <= 1e-3 * found.upper


def test_a_peer_composes_the_same():
    peer = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    plain = peer.from_discrete_gaussian_mechanism(2.0, sensitivity=1, value_discretization_interval=1e-4).self_compose(10)
    found = profile(Repeated(count=10, event=Release(mechanism=noise("gaussian", 2.0)))).epsilon(1e-5)
    assert found.upper == pytest.approx(plain.get_epsilon_for_delta(1e-5), rel=1e-3)
    assert found.lower <= plain.get_epsilon_for_delta(1e-5)


def test_other_samples_and_groups_have_brackets():
    release = Release(mechanism=noise("gaussian", 2.0))
    for sampled in (
        FixedSizeSampled(sample_size=10, population_size=1000, event=release),
        TruncatedPoissonSampled(probability=0.01, largest_batch=12, population_size=1000, event=release),
        Grouped(size=3, unit="user", event=PoissonSampled(probability=0.01, event=release)),
    ):
        bound = profile(Repeated(count=100, event=sampled)).epsilon(1e-5)
        assert 0.0 < bound.lower <= bound.upper <= bound.lower * 1.001


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (
            Grouped(size=2, unit="user", event=RandomlyAllocated(steps=10, event=Release(mechanism=noise("gaussian", 2.0)))),
            "groups in random allocations of noise on whole numbers",
        ),
        (
            PoissonSampled(probability=0.1, event=Release(mechanism=noise("laplace", 2.0, adjacency="replace_one"))),
            "needs contribution, a bound",
        ),
        (Release(mechanism=noise("gaussian", 2.0, 10**6)), "moves whole numbers this far"),
        (Grouped(size=21, unit="user", event=Release(mechanism=noise("laplace", 2.0))), "more than 20 units"),
    ],
)
def test_what_isnt_proved_is_refused(event, text):
    with pytest.raises(UnsupportedEvent, match=text):
        profile(event)


def test_its_scale_is_calibrated_within_its_range():
    event = Repeated(count=20, event=Release(mechanism=noise("gaussian", 1.0)))
    solution = solve(event, NoiseScale(), Target(epsilon=1.0, delta=1e-5), accountant_named("auto"))
    assert profile(solution.event).epsilon(1e-5).upper <= 1.0
    assert profile(NoiseScale().applied(event, solution.value * 0.99)).epsilon(1e-5).lower > 1.0
    assert NoiseScale().limits(event) == (pytest.approx(0.1), 2e3)


def test_both_orders_of_a_sample_differ_and_the_larger_one_counts():
    event = PoissonSampled(probability=0.2, event=Release(mechanism=noise("laplace", 1.0)))
    leaf = Leaf(0.2, noise("laplace", 1.0))
    with mpmath.workdps(30):
        each = [hockey_stick([(p, q) if first else (q, p) for p, q in outcomes(leaf)], 0.15) for first in (True, False)]
        bound = profile(event).delta(0.15)
        assert bound.lower <= max(each) <= bound.upper
        assert min(each) < 0.5 * max(each)


def test_a_whole_release_with_moves_is_not_one_with_a_larger_scale():
    """Two steps at scale 2 aren't one step at scale 1: the losses lie on other lattices."""
    first, second = (profile(Release(mechanism=noise("gaussian", *numbers))).delta(1.0) for numbers in ((1.0, 1), (2.0, 2)))
    assert abs(first.log_upper - second.log_upper) > 1e-3


def test_steps_of_the_table_are_all_half_lines():
    leaf = Leaf(0.3, noise("gaussian", 1.5))
    pair = pair_of(leaf)
    levels = np.linspace(0.0, 6.0, 2000)
    found = calls(pair, levels)
    assert all(a >= b for a, b in itertools.pairwise(found.upper * (1 + 1e-12)))
    # Tangents stay below the curve: H(e') >= lower + tail (1 - e^{e' - e}).
    for at in range(0, 2000, 97):
        tangent = found.lower[at] + (found.tail[at] - found.doubt[at]) * -np.expm1(levels - levels[at])
        assert np.all(tangent[levels >= levels[at]] <= found.upper[levels >= levels[at]] + 1e-15)


def convolved(law, epsilon, count, step=8e-6, size=2**22):
    """delta of so many losses, each split between neighbours on a fine lattice so that its mean is kept: to about 1e-9 of itself."""
    masses = np.zeros(size)
    for loss, mass in law:
        place = math.floor(loss / step)
        share = loss / step - place
        masses[place % size] += mass * (1.0 - share)
        masses[(place + 1) % size] += mass * share
    composed = np.fft.irfft(np.fft.rfft(masses) ** count, size)
    losses = step * np.where(np.arange(size) < size // 2, np.arange(size), np.arange(size) - size)
    above = losses > epsilon
    return float((composed[above] * -np.expm1(epsilon - losses[above])).sum())


@pytest.mark.parametrize(("scale", "count", "width"), [(1.0, 100, 3e-5), (0.7, 30, 1e-5)])
def test_nodes_are_near_the_losses_of_whole_numbers(scale, count, width):
    # Where nodes were anywhere brackets were three to ten times as wide.
    noise = DiscreteGaussian(scale=scale, moves=1, adjacency="add_remove", unit="record")
    bound = profile(Repeated(count=count, event=PoissonSampled(probability=0.01, event=Release(mechanism=noise)))).epsilon(1e-6)
    assert bound.upper - bound.lower <= width * bound.upper
    f = {x: math.exp(-0.5 * (x / scale) ** 2) for x in range(-12, 14)}
    total = sum(f.values())
    law = [
        (math.log1p(0.01 * math.expm1((x - 0.5) / scale**2)), (0.99 * f[x] + 0.01 * math.exp(-0.5 * ((x - 1) / scale) ** 2)) / total)
        for x in f
        if x > -12
    ]
    assert convolved(law, bound.upper, count) <= 1e-6 * (1.0 + 1e-6)
    assert convolved(law, bound.lower, count) >= 1e-6 * (1.0 - 1e-6)
