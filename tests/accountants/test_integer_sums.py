"""Noise on whole numbers that several parties add up: Skellam noise and sums of discrete Gaussians, against sums in many digits."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import mpmath
import numpy as np
import pytest
from pydantic import ValidationError

from tests.accountants.events import gaussian
from tests.accountants.whole_numbers import holds_to_the_last_digits, outcomes_of, renyi
from tests.selection import chosen, thinned
from zetadp.accountants import (
    Composed,
    FixedSizeSampled,
    Grouped,
    Leaf,
    PoissonSampled,
    Release,
    Repeated,
    TruncatedPoissonSampled,
    accountant_named,
    profile,
)
from zetadp.accountants.calibration import NoiseScale, Target, solve
from zetadp.accountants.dp_accounting_events import to_dp_accounting
from zetadp.accountants.routes.rdp.rdp import leaf_renyi
from zetadp.mechanisms import InvalidParameter
from zetadp.mechanisms.declared import DiscreteGaussian, DiscreteGaussianSum, Skellam
from zetadp.mechanisms.numerics.integer_laws import LONG, GaussianLaw, GaussianSumLaw, SkellamLaw, near_gaussian

WHO = {"adjacency": "add_remove", "unit": "record"}


def skellam(variance, moves=1, **who):
    return Skellam(variance=variance, moves=moves, **(WHO | who))


def gaussians(scale, honest, moves=1, **who):
    return DiscreteGaussianSum(scale=scale, honest=honest, moves=moves, **(WHO | who))


@lru_cache(maxsize=32)
def skellam_law(variance):
    """e^-mu I_k(mu) in many digits, as far as it matters."""
    reach = math.ceil(20 * math.sqrt(variance)) + 40
    with mpmath.workdps(50):
        half = [mpmath.besseli(k, mpmath.mpf(variance)) * mpmath.exp(-mpmath.mpf(variance)) for k in range(reach + 1)]
    return {k: half[abs(k)] for k in range(-reach, reach + 1)}


@lru_cache(maxsize=32)
def sum_law(scale, parties):
    """Convolutions, one party after another, of whole numbers that stand for 60 digits: nothing but the last one is rounded."""
    reach, one = math.ceil(16 * scale) + 4, 10**60
    with mpmath.workdps(80):
        first = {x: int(mpmath.nint(one * mpmath.exp(-mpmath.mpf(x * x) / (2 * mpmath.mpf(scale) ** 2)))) for x in range(-reach, reach + 1)}
    law = first
    for _ in range(parties - 1):
        after: dict[int, int] = {}
        for x, weight in law.items():
            for y, other in first.items():
                after[x + y] = after.get(x + y, 0) + weight * other
        law = after
    total = sum(law.values())
    with mpmath.workdps(60):
        return {x: mpmath.mpf(weight) / total for x, weight in law.items()}


def law_of(mechanism):
    return skellam_law(mechanism.variance) if mechanism.kind == "skellam" else sum_law(mechanism.scale, mechanism.honest)


def outcomes(leaf):
    law = law_of(leaf.mechanism)
    return outcomes_of(leaf, lambda x: law.get(x, mpmath.mpf(0)), max(law))


def named(leaf):
    if isinstance(leaf, int):
        return None
    return "-".join(str(one) for one in (leaf.mechanism.kind, leaf.mechanism.noise_scale, leaf.probability, leaf.group))


LEAVES = [
    Leaf(1.0, skellam(4.0)),
    Leaf(1.0, skellam(0.3, 2)),
    Leaf(0.01, skellam(1.0)),
    Leaf(1e-6, skellam(9.0, 5)),
    Leaf(0.9, skellam(120.5, 3)),
    Leaf(0.2, skellam(4.0), group=3),
    Leaf(1.0, gaussians(0.5, 2)),
    Leaf(1.0, gaussians(0.7, 5, 2)),
    Leaf(0.01, gaussians(1.0, 3)),
    Leaf(1e-6, gaussians(0.6, 12, 5)),
    Leaf(0.9, gaussians(2.5, 4, 3)),
    Leaf(0.2, gaussians(0.5, 7), group=3),
    Leaf(0.3, gaussians(1.3, 1)),
]


@pytest.mark.parametrize("leaf", thinned(LEAVES, every=5), ids=named)
@pytest.mark.parametrize("is_reversed", [False, True])
def test_one_release_is_its_sum_to_the_last_digits(leaf, is_reversed):
    with mpmath.workdps(40):
        holds_to_the_last_digits(leaf, outcomes(leaf), is_reversed=is_reversed, digits=38, deepest=40, stride=29)


@pytest.mark.parametrize("leaf", thinned(LEAVES, every=5), ids=named)
@pytest.mark.parametrize("order", [1.5, 2.0, 6.0])
def test_renyi_divergences_are_bounds_and_near(leaf, order):
    with mpmath.workdps(40):
        truth = renyi(outcomes(leaf), order)
    found = leaf_renyi(leaf, order)
    assert truth * (1 - 1e-9) <= found <= truth * 1.001 + 1e-14  # a law known to few units of 1e-19


@pytest.mark.parametrize("leaf", [LEAVES[0], LEAVES[3], LEAVES[8], LEAVES[11]], ids=named)
def test_large_orders_reach_as_far_as_their_mass(leaf):
    """One outcome alone is a lower bound of the moment, and the best one is nearly all of it."""
    order, m, law = 60.0, leaf.mechanism.moves, leaf.mechanism.law
    reach = int(order) * m * leaf.group + 60
    logs = law.log_weights(np.arange(-reach - leaf.group * m, reach + 1)).astype(float)
    logs -= np.logaddexp.reduce(logs)
    q = leaf.probability
    weights = [math.comb(leaf.group, j) * q**j * (1 - q) ** (leaf.group - j) for j in range(leaf.group + 1)]
    n = len(logs) - leaf.group * m
    shifted = [logs[(leaf.group - j) * m : (leaf.group - j) * m + n] + (math.log(w) if w > 0 else -math.inf) for j, w in enumerate(weights)]
    p = np.logaddexp.reduce(shifted, axis=0)
    best = float((order * p + (1 - order) * logs[leaf.group * m :]).max()) / (order - 1)
    found = leaf_renyi(leaf, order)
    assert best <= found
    assert found <= best * 1.2 + 0.2


@pytest.mark.parametrize("variance", [0.01, 0.7, 30.0, 5e3])
def test_skellam_logarithms_are_bessel_functions(variance):
    law = SkellamLaw(variance)
    x = np.unique(np.linspace(0, law.reach, 40).astype(np.int64))
    found, error = law.log_weights(x), law.error(law.reach)
    with mpmath.workdps(40):
        first = mpmath.besseli(0, mpmath.mpf(variance))
        for place, log in zip(x, found, strict=True):
            truth = mpmath.log(mpmath.besseli(int(place), mpmath.mpf(variance)) / first)
            # A long double as the sum of two doubles.
            high = float(log)
            off = abs(mpmath.mpf(high) + mpmath.mpf(float(log - np.longdouble(high))) - truth)
            assert off <= error + 4 * LONG * abs(truth)
        assert truth < -745


@pytest.mark.parametrize("variance", [0.01, 0.7, 30.0, 5e3, 4e6])
def test_the_reach_of_skellam_noise_is_no_longer_than_needed(variance):
    law = SkellamLaw(variance)
    logs = law.log_weights(np.array([0, law.reach - 3, law.reach]))
    assert logs[1] - logs[0] > -780
    assert logs[2] - logs[0] < -745


@pytest.mark.parametrize(("scale", "parties"), thinned([(0.5, 2), (0.5, 3), (0.6, 31), (0.8, 8), (1.1, 5), (1.9, 4), (2.0, 3)], every=2))
def test_sums_are_convolutions_of_one_after_another(scale, parties):
    law, truth = GaussianSumLaw(scale, parties), sum_law(scale, parties)
    x = np.arange(-math.ceil(9 * law.scale), math.ceil(9 * law.scale) + 1)
    logs, error = law.log_weights(x), law.error(int(x[-1]))
    with mpmath.workdps(40):
        for place, log in zip(x, logs - logs[len(x) // 2], strict=True):
            high = float(log)
            off = mpmath.mpf(high) + mpmath.mpf(float(log - np.longdouble(high))) - mpmath.log(truth[int(place)] / truth[0])
            assert abs(off) <= 2 * error + 8 * LONG * (1 + abs(high))


@pytest.mark.parametrize(("scale", "parties"), chosen([(0.5, 1000), (1.0, 4000), (1.5, 4096)], [(0.5, 1000)]))
def test_long_sums_are_tabled_to_the_middle_of_a_period(scale, parties):
    """Of the law known from a longer one: the sum of half of them, and of the other half, in logarithms."""
    law, half = GaussianSumLaw(scale, parties), GaussianSumLaw(scale, parties // 2)
    x = np.arange(-half.reach, half.reach + 1)
    parts = half.log_weights(x)
    places = [0, 1, 17, math.ceil(5 * law.scale), math.ceil(12 * law.scale)]
    logs = law.log_weights(np.array(places))
    sums = [np.logaddexp.reduce(parts[place:] + parts[place:][::-1]) for place in places]
    for log, one in zip(logs[1:], sums[1:], strict=True):
        assert float((log - logs[0]) - (one - sums[0])) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(("scale", "parties"), [(0.8, 2), (0.9, 3), (1.0, 2), (1.2, 6)])
def test_a_sum_is_as_near_to_a_discrete_gaussian_as_is_claimed(scale, parties):
    truth, near = sum_law(scale, parties), near_gaussian(scale, parties)
    x = np.arange(-8, 9)
    logs = GaussianLaw(scale * math.sqrt(parties)).log_weights(x)
    off = [float(mpmath.log(truth[int(place)])) - float(log) for place, log in zip(x, logs, strict=True)]
    assert 1e-9 < max(off) - min(off) <= 2 * near
    assert near < 0.3


def test_the_parts_of_skellam_noise_add_up():
    first, second = skellam_law(3.0), skellam_law(6.0)
    with mpmath.workdps(40):
        for x in (0, 1, 5, 20):
            assert mpmath.almosteq(mpmath.fsum(first[y] * first.get(x - y, 0) for y in first), second[x], rel_eps=mpmath.mpf(10) ** -25)


@pytest.mark.parametrize(
    ("leaf", "count"),
    thinned([(LEAVES[0], 2), (LEAVES[2], 2), (LEAVES[6], 3), (LEAVES[8], 2)], every=2),
    ids=lambda one: one if isinstance(one, int) else named(one),
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
    for epsilon in (0.0, 0.5):
        both = [float(np.maximum(a - math.exp(epsilon) * b, 0.0).sum()) for a, b in ((joint_p, joint_q), (joint_q, joint_p))]
        bound = found.delta(epsilon)
        assert bound.lower * (1 - 1e-9) - 1e-10 <= max(both) <= bound.upper * (1 + 1e-9)
        assert bound.upper - bound.lower <= 1e-3 * bound.upper


@pytest.mark.parametrize("mechanism", [skellam(4.0), gaussians(0.7, 8)], ids=lambda one: one.kind)
def test_other_samples_and_groups_have_brackets(mechanism):
    release = Release(mechanism=mechanism)
    for sampled in (
        FixedSizeSampled(sample_size=10, population_size=1000, event=release),
        TruncatedPoissonSampled(probability=0.01, largest_batch=12, population_size=1000, event=release),
        Grouped(size=3, unit="user", event=PoissonSampled(probability=0.01, event=release)),
        Grouped(size=3, unit="user", event=FixedSizeSampled(sample_size=10, population_size=1000, event=release)),
    ):
        bound = profile(sampled).epsilon(1e-6)
        assert 0.0 < bound.lower <= bound.upper <= bound.lower * 1.001


def test_many_parties_with_much_noise_are_one_with_more():
    many = profile(Release(mechanism=gaussians(3.0, 16))).epsilon(1e-6)
    one = profile(Release(mechanism=DiscreteGaussian(scale=12.0, moves=1, **WHO))).epsilon(1e-6)
    assert many.upper == pytest.approx(one.upper, rel=1e-9)


def test_more_honest_parties_and_more_variance_protect_more():
    found = [profile(Release(mechanism=gaussians(0.6, honest))).epsilon(1e-4).upper for honest in (1, 2, 5, 40)]
    assert found == sorted(found, reverse=True)
    found = [profile(Release(mechanism=skellam(variance))).epsilon(1e-4).upper for variance in (0.1, 1.0, 7.0, 1e4)]
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize(("scale", "honest", "part"), [(0.5, 4096, 1000), (0.9, 10**5, 3240), (1000.0, 100, 4)])
def test_where_the_table_is_too_large_as_many_parties_as_can_be_tabled_bound_epsilon(scale, honest, part):
    # Of 1001 parties with scale .5 nothing was known but the published Renyi bound, fifty times as much as of 1000.
    many, fewer = Release(mechanism=gaussians(scale, honest)), Release(mechanism=gaussians(scale, part))
    assert many.mechanism.law.parties == part
    for make in (
        lambda one: one,
        lambda one: PoissonSampled(probability=0.1, event=one),
        lambda one: Repeated(count=3, event=PoissonSampled(probability=0.1, event=one)),
    ):
        bound, above = profile(make(many)).epsilon(1e-6), profile(make(fewer)).epsilon(1e-6)
        assert bound.lower == 0.0 < bound.upper <= above.upper * (1.0 + 1e-12)
        assert above.lower > 0.0
        at = profile(make(many)).delta(0.5 * above.lower)
        assert at.lower == 0.0 < at.upper <= profile(make(fewer)).delta(0.5 * above.lower).upper * (1.0 + 1e-12)


def test_the_bound_of_a_part_is_above_the_whole_sums_own():
    # The law of 1500 parties on a ring, by powers of its transform: to about 1e-15, next to deltas of 1e-6.
    x = np.minimum(np.arange(4096), 4096 - np.arange(4096))
    one = np.exp(-0.5 * (x / 0.5) ** 2)
    f = np.fft.irfft(np.fft.rfft(one / one.sum()) ** 1500)
    bound = profile(Release(mechanism=gaussians(0.5, 1500, moves=3)))
    for epsilon in (0.1, 0.3, 0.6):
        truth = float(np.maximum(np.roll(f, 3) - math.exp(epsilon) * f, 0.0)[:2048].sum())
        assert truth <= bound.delta(epsilon).upper
    assert truth > 1e-9


def test_where_more_is_known_of_the_others_noise_the_published_bound_is_less():
    bound = profile(Release(mechanism=gaussians(1.0, 10**5))).epsilon(1e-6)
    assert bound.route.startswith("rdp")
    assert bound.upper < 0.5 * profile(Release(mechanism=gaussians(1.0, 4000))).epsilon(1e-6).lower


def test_next_to_a_bound_the_lower_end_is_that_of_the_rest():
    found = profile(Composed(events=(gaussian(2.0), Release(mechanism=gaussians(0.5, 2000))))).epsilon(1e-6)
    assert found.lower == pytest.approx(profile(gaussian(2.0)).epsilon(1e-6).lower)
    assert found.lower < found.upper
    names = [step.symbol for step in profile(Release(mechanism=gaussians(0.5, 2000))).derivation()]
    assert names.count("n'") == 1


@pytest.mark.parametrize(("scale", "honest", "moves"), thinned([(0.5, 4, 1), (0.7, 9, 2), (1.0, 5, 1), (1.5, 2, 3)], every=2))
@pytest.mark.parametrize("order", thinned([1.001, 1.5, 2.0, 7.0, 20.0], every=3))
def test_the_published_bound_is_above_the_sums_divergences(scale, honest, moves, order):
    rho = GaussianSumLaw(scale, honest).concentration(moves)
    assert rho <= Fraction(moves) ** 2 / Fraction(scale) ** 2 / 2
    f = sum_law(scale, honest)
    with mpmath.workdps(40):
        both = [(f[x - moves], f[x]) for x in f if f[x] > 0 and f.get(x - moves, 0) > 0]
        moment = mpmath.fsum(p**order * q ** (1 - order) for p, q in both)
        assert mpmath.log(moment) / (order - 1) <= order * mpmath.mpf(rho.numerator) / rho.denominator


def test_scales_are_calibrated_within_their_range():
    for mechanism in (skellam(1.0), gaussians(1.0, 3)):
        event = Release(mechanism=mechanism)
        solution = solve(event, NoiseScale(), Target(epsilon=1.0, delta=1e-5), accountant_named("auto"))
        assert profile(solution.event).epsilon(1e-5).upper <= 1.0
        assert profile(NoiseScale().applied(event, solution.value * 0.99)).epsilon(1e-5).lower > 1.0
        # Both ends of the range are events.
        limits = NoiseScale().limits(event)
        assert NoiseScale().applied(event, limits.low) != NoiseScale().applied(event, limits.high)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: skellam(0.001), "greater than or equal to 0.0078125"),
        (lambda: gaussians(0.4, 3), "greater than or equal to 0.5"),
        (lambda: gaussians(1.0, 0), "greater than or equal to 1"),
        (lambda: gaussians(1.0, 2.5), "valid integer"),
    ],
)
def test_numbers_out_of_range_are_refused(make, text):
    with pytest.raises(ValidationError, match=text):
        make()


def test_dp_accounting_has_no_such_noise():
    pytest.importorskip("dp_accounting")
    for mechanism in (skellam(4.0), gaussians(1.0, 3)):
        with pytest.raises(InvalidParameter, match=f"{mechanism.kind}, which is only declared"):
            to_dp_accounting(Release(mechanism=mechanism))
