"""The best of a random number of runs: against exact laws of the best run, for every order of a few outputs, in thirty digits."""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

import mpmath
import numpy as np
import pytest
from dp_accounting import rdp as library_rdp
from scipy.special import ndtr

from tests.accountants.events import gaussian, laplace, training
from tests.accountants.selections import LAWS, WHO, best_of, gdp, pure
from tests.selection import thinned
from zetadp.accountants import (
    PoissonSampled,
    Release,
    Repeated,
    leaves,
    profile,
)
from zetadp.accountants.dp_accounting_events import to_dp_accounting
from zetadp.accountants.selected import poisson
from zetadp.accountants.selected.guarantees import Guarantee
from zetadp.accountants.selected.largest import largest_loss_of
from zetadp.mechanisms import (
    ApproximateGuarantee,
    UnsupportedEvent,
)
from zetadp.mechanisms.declared.runs import GeometricRuns, LogarithmicRuns, PoissonRuns

DIGITS = 40
pytestmark = pytest.mark.digits(DIGITS)

EPSILONS = [0.0, 0.3, 0.8, 1.5, 2.5, 4.0]
ORDERS = [1.05, 1.5, 2.0, 5.0, 30.0]


@lru_cache
def gamma_of(mean, eta):
    """The exact gamma of a mean."""
    if mean == 1.0:
        return mpmath.mpf(1)
    m, eta = mpmath.mpf(mean), mpmath.mpf(eta)

    def excess(t):
        g = mpmath.exp(-t)
        return mpmath.log((1 / g - 1) / t if eta == 0 else eta * (1 / g - 1) / (1 - g**eta)) - mpmath.log(m)

    return mpmath.exp(-mpmath.findroot(excess, (mpmath.mpf("1e-3"), mpmath.mpf(50)), solver="anderson", tol=1e-35))


def generating(runs):
    """phi(z) = E z^K in closed form."""
    if isinstance(runs, PoissonRuns):
        return lambda z: mpmath.exp(runs.mean * (z - 1))
    gamma, eta = gamma_of(runs.mean, runs.eta), mpmath.mpf(runs.eta)
    if gamma == 1:
        return lambda z: z
    if eta == 0:
        return lambda z: mpmath.log(1 - (1 - gamma) * z) / mpmath.log(gamma)
    return lambda z: ((1 - (1 - gamma) * z) ** -eta - 1) / (gamma**-eta - 1)


def probabilities(runs):
    """P[K = k] for k = 0, 1, ..., from the definition, until what is left is below 1e-30."""
    if isinstance(runs, PoissonRuns):
        return [mpmath.exp(-runs.mean) * mpmath.mpf(runs.mean) ** k / mpmath.factorial(k) for k in range(120)]
    gamma, eta = gamma_of(runs.mean, runs.eta), mpmath.mpf(runs.eta)
    weights, weight, k = [mpmath.mpf(0)], 1 - gamma, 1
    while weight > mpmath.mpf("1e-32") * sum(weights[-1:], mpmath.mpf(1)) * gamma:
        weights.append(weight)
        weight, k = weight * (1 - gamma) * (k + eta) / (k + 1), k + 1
    total = sum(weights) or mpmath.mpf(1)
    return [mpmath.mpf(0), mpmath.mpf(1)] if gamma == 1 else [weight / total for weight in weights]


@pytest.mark.parametrize("runs", thinned(LAWS, every=3), ids=repr)
def test_laws_of_the_number_of_runs_are_those_of_their_definition(runs):
    law, phi = probabilities(runs), generating(runs)
    assert abs(sum(k * p for k, p in enumerate(law)) - mpmath.mpf(runs.mean)) < 1e-27 * runs.mean
    for z in (0, mpmath.mpf("0.3"), mpmath.mpf("0.9")):
        assert abs(sum(p * z**k for k, p in enumerate(law)) - phi(z)) < 1e-27
    if not isinstance(runs, PoissonRuns):
        low, high = runs.spread
        assert low <= -mpmath.log(gamma_of(runs.mean, runs.eta)) <= high <= low * (1 + 1e-11)


def selected(law, order, phi):
    """The law of the best run over the outputs, best first in ``order``, with "nothing" at the end."""
    found, above = [mpmath.mpf(0)] * len(law), mpmath.mpf(0)
    for i in order:
        found[i] = phi(1 - above) - phi(1 - above - law[i])
        above += law[i]
    return [*found, phi(mpmath.mpf(0))]


def hockey_stick(p, q, epsilon):
    return sum((max(a - mpmath.exp(epsilon) * b, 0) for a, b in zip(p, q, strict=True)), mpmath.mpf(0))


def renyi(p, q, order):
    return mpmath.log(sum(a ** mpmath.mpf(order) * b ** (1 - mpmath.mpf(order)) for a, b in zip(p, q, strict=True) if a > 0)) / (order - 1)


@mpmath.workdps(DIGITS)
def responses(epsilon, count):
    """The outputs of randomised responses, the first and last split in a sliver and the rest: an order may put something between them."""
    e = mpmath.mpf(epsilon)
    up = mpmath.exp(e) / (1 + mpmath.exp(e))
    pairs = [(mpmath.mpf(1), mpmath.mpf(1))]
    for _ in range(count):
        pairs = [(a * x, b * y) for a, b in pairs for x, y in ((up, 1 - up), (1 - up, up))]
    merged = {}
    for a, b in pairs:
        key = mpmath.nstr(a / b, 12)
        merged[key] = tuple(x + y for x, y in zip(merged.get(key, (0, 0)), (a, b), strict=True))
    sliver = mpmath.mpf("1e-3")
    first, *others, last = merged.values()
    split = [*others, *((a * part, b * part) for a, b in (first, last) for part in (sliver, 1 - sliver))]
    return [a for a, _ in split], [b for _, b in split]


@mpmath.workdps(DIGITS)
def binned(mu, cuts):
    """A Gaussian pair whose output is only known to the bin."""
    edges = [mpmath.mpf("-inf"), *map(mpmath.mpf, cuts), mpmath.mpf("inf")]
    laws = [[mpmath.ncdf(b - shift) - mpmath.ncdf(a - shift) for a, b in itertools.pairwise(edges)] for shift in (mu, 0)]
    return laws[0], laws[1]


BASES = {
    "one response": (pure(0.7), responses(0.7, 1)),
    "two responses": (Repeated(count=2, event=pure(0.6)), responses(0.6, 2)),
    "gaussian in bins": (gdp(1.0), binned(1.0, (-2.5, -1.0, 1.5, 3.0))),
    "small gaussian in bins": (gdp(0.2), binned(0.2, (-3.0, -1.5, 1.5, 3.0))),
}


@lru_cache
def selections(runs, name):
    """Laws of the best run under both neighbours in both directions, for every order of the outputs."""
    p, q = BASES[name][1]
    phi = generating(runs)
    laws = [(selected(p, order, phi), selected(q, order, phi)) for order in itertools.permutations(range(len(p)))]
    return [*laws, *((b, a) for a, b in laws)]


@pytest.mark.parametrize(("runs", "name"), thinned(itertools.product(LAWS, BASES), every=12), ids=str)
def test_no_order_of_the_outputs_loses_more_than_the_profile_says(runs, name):
    found = profile(best_of(runs, BASES[name][0]))
    for epsilon in EPSILONS:
        truth = max(hockey_stick(p, q, epsilon) for p, q in selections(runs, name))
        assert mpmath.exp(found.delta(epsilon).log_upper) >= truth * (1 - mpmath.mpf("1e-12"))


def ranked(runs, law):
    """Laws of the best run where the scores rank one set of outputs, or a random part of it, above another one and that above the rest."""
    phi, found, shares = generating(runs), [], [mpmath.mpf(share) for share in ("1", "0.5", "0.2", "0.1", "0.01", "1e-3", "1e-4")]
    for places in itertools.product((0, 1, 2), repeat=len(law[0])):
        sums = [[sum((x for x, place in zip(one, places, strict=True) if place == k), mpmath.mpf(0)) for k in (1, 2)] for one in law]
        for top, middle in itertools.product(shares, repeat=2):
            masses = [(top * above, middle * below, 1 - top * above - middle * below) for above, below in sums]
            found.append(tuple(selected(one, (0, 1, 2), phi) for one in masses))
    return found


@pytest.mark.parametrize(("runs", "name"), thinned(itertools.product(LAWS, ["two responses", "one response"]), every=9), ids=str)
def test_the_lower_end_is_lost_under_some_scores(runs, name):
    law = BASES[name][1]
    found = profile(best_of(runs, BASES[name][0]))
    merged = [[one[0] + one[1], one[2] + one[3]] if name == "one response" else [one[0], one[1] + one[2], one[3] + one[4]] for one in law]
    laws = ranked(runs, merged)
    for epsilon in EPSILONS:
        truth = max(hockey_stick(p, q, epsilon) for p, q in laws)
        bound = found.delta(epsilon)
        assert mpmath.exp(bound.log_lower) <= truth
        if truth > 1e-25:
            at = found.epsilon(float(truth))
            assert at.lower <= epsilon + 1e-9
            assert at.upper >= epsilon - 1e-9


@pytest.mark.parametrize(("runs", "name"), thinned(itertools.product(LAWS, BASES), every=3), ids=str)
def test_no_order_of_the_outputs_has_a_larger_renyi_divergence(runs, name):
    found = profile(best_of(runs, BASES[name][0]), "rdp")
    laws = selections(runs, name)[:: 7 if len(BASES[name][1][0]) > 4 else 1]
    for order in ORDERS:
        assert found.rdp(order) >= max(renyi(p, q, order) for p, q in laws) * (1 - mpmath.mpf("1e-12"))


@pytest.mark.parametrize("runs", thinned(LAWS, every=4), ids=repr)
@pytest.mark.parametrize("epsilon", [0.01, 0.7, 5.0])
def test_the_largest_loss_of_a_pure_base_is_reached_by_no_order_but_nearly(runs, epsilon):
    bound = largest_loss_of(*leaves(best_of(runs, pure(epsilon))))
    e, phi, sliver = mpmath.exp(mpmath.mpf(epsilon)), generating(runs), mpmath.mpf("1e-12")
    low, high = 1 / (1 + e), e / (1 + e)
    p, q = [low, high * sliver, high * (1 - sliver)], [high, low * sliver, low * (1 - sliver)]
    a, b = selected(p, (0, 1, 2), phi), selected(q, (0, 1, 2), phi)
    truth = max(abs(mpmath.log(x / y)) for x, y in zip(a, b, strict=True) if x > 0)
    assert truth <= bound * (1 + mpmath.mpf("1e-12"))
    assert bound <= truth * (1 + 1e-6)
    if not isinstance(runs, PoissonRuns):
        assert bound <= (2 + runs.eta) * epsilon * (1 + 1e-12)


@pytest.mark.parametrize(("mean", "mu", "epsilon"), thinned([(6.0, 0.5, 2.0), (1.0, 1.0, 3.0), (40.0, 0.2, 4.0)], every=3))
def test_chords_of_a_gaussian_profile_lie_above_its_mean_and_close(mean, mu, epsilon):
    def delta(t):
        return mpmath.ncdf(mu / 2 - t / mu) - mpmath.exp(t) * mpmath.ncdf(-mu / 2 - t / mu)

    def exact(y):
        rho, tau = 1 / mpmath.expm1(y), epsilon + y - mean * delta(mpmath.mpf(y))
        return mean * mpmath.quad(lambda x: rho * mpmath.exp(-rho * x) * delta(tau - x), [0, 1 / rho, 5 / rho, 20 / rho, 100 / rho])

    step = 2.0 ** math.floor(math.log2(max(epsilon - mean * delta(0), epsilon / 8) / 16))
    truth = min(exact(step * k) for k in (0.125, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0))
    plain = profile(gdp(mu))
    found = mpmath.exp(poisson.log_delta_upper(mean, plain.log_delta_upper, epsilon))
    assert truth <= found <= 1.4 * truth


@pytest.mark.parametrize("runs", thinned(LAWS, every=3), ids=repr)
def test_delta_of_a_pure_base_is_at_most_what_the_pure_bounds_of_the_literature_say(runs):
    # Liu and Talwar's, for a geometric number, is 3 epsilon, Papernot and Steinke's (2 + eta) epsilon, or epsilon + m tanh(epsilon / 2);
    # of 10 runs with epsilon = .5, delta(.1) was .7026 where 3 epsilon gives .616.
    found, epsilon = profile(best_of(runs, pure(0.5))), 0.5
    known = epsilon + (runs.mean * math.tanh(0.25) if isinstance(runs, PoissonRuns) else (1.0 + runs.eta) * epsilon)
    for at in (0.0, 0.1, 0.4, 0.9, 1.3):
        limit = max(math.exp(known) - math.exp(at), 0.0) / (1.0 + math.exp(known))
        assert found.delta(at).upper <= limit * (1.0 + 1e-9)
        if 0.0 < limit < found.delta(0.0).upper:
            assert found.epsilon(limit).upper <= at + 1e-9


@pytest.mark.parametrize("delta", [0.0, 1e-3, 0.2])
@pytest.mark.parametrize("mass", [1.0, 0.4])
def test_one_guarantee_says_of_smaller_epsilons_what_two_extreme_outcomes_say(delta, mass):
    # The pair that attains it: with probability d an output of its own, else randomised response; nothing at all beyond the mass.
    e, d = mpmath.exp(mpmath.mpf(1.7)), mpmath.mpf(delta)
    rest = mpmath.mpf(mass) - d
    p, q = [d, rest * e / (1 + e), rest / (1 + e), 0], [0, rest / (1 + e), rest * e / (1 + e), d]
    one = Guarantee(1.7, delta)
    for epsilon in (0.0, 0.3, 1.2, 1.7, 2.0):
        truth = hockey_stick(p, q, epsilon)
        found = one.delta_at(epsilon, mass)
        assert truth - mpmath.mpf("1e-30") <= found <= truth * (1 + mpmath.mpf("1e-13"))
        if truth > delta + 1e-9:
            assert epsilon - 1e-12 <= one.epsilon_at(float(truth), mass) <= epsilon + 1e-12
    assert one.epsilon_at(0.5 * delta, mass) == (math.inf if delta else pytest.approx(1.7, rel=2e-14))


def test_a_base_that_may_fail_is_answered_by_its_profile_and_not_by_moments():
    runs, fact = GeometricRuns(mean=3.0), Release(mechanism=ApproximateGuarantee(epsilon=0.5, delta=1e-3, **WHO))
    found, e = profile(best_of(runs, fact)), mpmath.exp(mpmath.mpf("0.5"))
    rest = 1 - mpmath.mpf("1e-3")
    p = [mpmath.mpf("1e-3"), rest * e / (1 + e), rest / (1 + e), mpmath.mpf(0)]
    phi = generating(runs)
    for epsilon in EPSILONS:
        laws = [(selected(p, order, phi), selected(p[::-1], order, phi)) for order in itertools.permutations(range(4))]
        assert found.delta(epsilon).upper >= max(hockey_stick(a, b, epsilon) for a, b in laws)
    with pytest.raises(UnsupportedEvent, match="may fail"):
        profile(Repeated(count=2, event=best_of(runs, fact)))


@pytest.mark.parametrize("runs", thinned([law for law in LAWS if law.mean >= 1.0 and getattr(law, "shape", 0.0) >= 0.0], every=3), ids=repr)
@pytest.mark.parametrize(
    "base", thinned([gaussian(2.0), laplace(3.0), training(0.05, 1.0, 50)], every=2), ids=["gaussian", "laplace", "training"]
)
def test_renyi_divergences_are_dp_accountings_or_less_where_it_has_fewer_orders(runs, base):
    orders = np.concatenate([1.0 + np.geomspace(0.02, 1.0, 40), np.geomspace(2.1, 400.0, 120)])
    event, mine = best_of(runs, base), profile(best_of(runs, base), "rdp")
    there = library_rdp.RdpAccountant(orders)
    there.compose(to_dp_accounting(event))
    for order, theirs in list(zip(orders, there.rdp, strict=True))[::20]:
        assert mine.rdp(float(order)) <= theirs * (1 + 1e-6)
    epsilon, theirs = mine.epsilon(1e-5).upper, there.get_epsilon(1e-5)
    assert epsilon <= theirs * (1 + 1e-6)
    # Where the base is pure, so is the selection; and what Theorem 2 says of the weights is less than its deltas do.
    if mine.pure_epsilon == math.inf:
        assert epsilon >= theirs * 0.98 if isinstance(runs, PoissonRuns) or runs.mean == 1.0 else 0.6 * theirs <= epsilon < theirs


def test_a_mean_below_one_costs_something_where_dp_accounting_would_not():
    # P = Q up to 1e-3: log of the mean over order - 1 alone would be below 0.
    assert profile(best_of(PoissonRuns(mean=0.1), gdp(1e-3)), "rdp").rdp(2.0) == pytest.approx(1e-6, rel=1e-9)


@pytest.mark.parametrize(
    ("runs", "probability"),
    thinned(itertools.product([GeometricRuns(mean=8.0), LogarithmicRuns(mean=5.0), PoissonRuns(mean=6.0)], [0.05, 0.5]), every=3),
    ids=str,
)
def test_a_sampled_release_loses_its_lower_end_under_scores_of_half_lines(runs, probability):
    bound = profile(best_of(runs, PoissonSampled(probability=probability, event=gaussian(1.0)))).epsilon(1e-4)
    t, eta = (runs.spread.low, runs.eta) if not isinstance(runs, PoissonRuns) else (0.0, None)

    def chosen(share):
        if eta is None:
            return -np.expm1(-runs.mean * share)
        u = np.log1p(share * math.expm1(t))
        return u / t if eta == 0.0 else np.expm1(-eta * u) / math.expm1(-eta * t)

    lower, upper = np.arange(-6.0, 3.0, 0.02), np.arange(-1.0, 6.0, 0.02)

    def laws(x):
        return (1.0 - probability) * ndtr(x) + probability * ndtr(x - 1.0), ndtr(x)

    below, above = laws(lower), [1.0 - one for one in laws(upper)]
    found = []
    for first, second in ((0, 1), (1, 0)):
        # The set on top is what the other neighbour has more of, and the test's set is at the other end of the line.
        tops, tests = (below, above) if first == 0 else ([1.0 - one for one in laws(upper)], below)
        for top, part in itertools.product((0.0, 0.2, 0.5, 1.0), (1.0, 0.1, 0.01, 1e-3, 1e-4)):
            p_top, q_top = (top * tops[k][:, None] for k in (first, second))
            p_set, q_set = (part * tests[k][None, :] for k in (first, second))
            p = chosen(np.minimum(p_top + p_set, 1.0)) - chosen(p_top)
            q = chosen(np.minimum(q_top + q_set, 1.0)) - chosen(q_top)
            apart = lower[:, None] < upper[None, :] if first == 0 else upper[:, None] > lower[None, :]
            with np.errstate(divide="ignore", invalid="ignore"):
                loss = np.where(apart & (p > 1e-4), np.log((p - 1e-4) / q), -np.inf)
            found.append(np.nanmax(loss))
    assert bound.lower <= max(found) * (1 + 1e-3)
    assert bound.upper >= max(found) * (1 - 1e-9)
    assert bound.lower > profile(PoissonSampled(probability=probability, event=gaussian(1.0))).epsilon(1e-4).upper
