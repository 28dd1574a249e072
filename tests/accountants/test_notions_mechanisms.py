"""Random mechanisms with two to six outputs: whatever level they have in one notion, the converted level holds of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar
from scipy.special import logsumexp, ndtri

from tests.selection import thinned
from zetadp.accountants.notions import (
    Advantage,
    Approximate,
    Gdp,
    Pure,
    Rdp,
    ToAdvantage,
    ToApproximate,
    ToGdp,
    ToPure,
    ToRdp,
    ToTradeOff,
    ToZcdp,
    TradeOff,
    Zcdp,
    convert,
)

ORDERS = 1.0 + np.geomspace(1e-5, 1e5, 500)
ROUNDED_UP = 1.0 + 1e-9


class Mechanism:
    """A pair of laws with its exact levels, the larger of both orders of neighbours."""

    def __init__(self, p, q):
        self.orders = [(p, q), (q, p)]
        self.log_ratio = np.log(p) - np.log(q)
        self.p, self.q = p, q

    def epsilon(self):
        return float(np.max(np.abs(self.log_ratio)))

    def delta(self, e):
        return max(float(np.sum(np.maximum(0.0, a - math.exp(e) * b))) for a, b in self.orders)

    def renyi(self, order):
        def one(a, b):
            exponent = order * (np.log(a) - np.log(b)) + np.log(b)
            top = exponent.max()
            return float(top + np.log(np.sum(np.exp(exponent - top)))) / (order - 1.0)

        return max(one(a, b) for a, b in self.orders)

    def renyi_at_all_orders(self):
        logs = [(np.log(a), np.log(b)) for a, b in self.orders]
        return np.max([logsumexp(ORDERS[:, None] * (a - b) + b, axis=1) / (ORDERS - 1.0) for a, b in logs], axis=0)

    def rho(self):
        kl = max(float(np.sum(a * (np.log(a) - np.log(b)))) for a, b in self.orders)
        values = self.renyi_at_all_orders() / ORDERS
        i = int(np.argmax(values))
        around = (ORDERS[max(i - 1, 0)], ORDERS[min(i + 1, len(ORDERS) - 1)])
        found = minimize_scalar(lambda a: -self.renyi(a) / a, bounds=around, method="bounded", options={"xatol": 1e-9})
        return max(kl, -found.fun, values[i])

    def tests(self):
        """Corners (alpha, beta) of both curves."""
        corners = []
        for a, b in self.orders:
            order = np.argsort(-(np.log(a) - np.log(b)))
            corners.append((np.concatenate(([0.0], np.cumsum(b[order]))), 1.0 - np.concatenate(([0.0], np.cumsum(a[order])))))
        return corners

    def beta(self, alpha):
        return min(max(0.0, float(np.interp(alpha, alphas, betas))) for alphas, betas in self.tests())

    def mu(self):
        return max(float(np.max(-ndtri(alphas[1:-1]) - ndtri(betas[1:-1]))) for alphas, betas in self.tests())

    def levels(self, generator):
        """Every notion that it has, at random points, rounded to the weak side."""
        e, order, alpha = generator.uniform(0, 1.2) * self.epsilon(), 1.0 + 10 ** generator.uniform(-2, 2), generator.uniform(0.001, 0.999)
        return [
            Pure(epsilon=self.epsilon() * ROUNDED_UP),
            Approximate(epsilon=e, delta=min(1.0, self.delta(e) * ROUNDED_UP + 1e-15)),
            Zcdp(rho=self.rho() * ROUNDED_UP),
            Rdp(order=order, value=self.renyi(order) * ROUNDED_UP + 1e-13),
            Gdp(mu=max(self.mu(), 1e-9) * ROUNDED_UP + 1e-13),
            TradeOff(alpha=alpha, beta=min(self.beta(alpha) * (1 - 1e-12), 1 - alpha) * (1 - 1e-12)),
            Advantage(value=min(1.0, self.delta(0.0) * ROUNDED_UP + 1e-15)),
        ]

    def has(self, found):
        """Whether a converted level holds of it."""
        to, level = found.to, found.value
        if to.kind == "approximate":
            got = self.delta(to.epsilon) if to.epsilon is not None else self.delta(level) if level < 700 else 0.0
            return got <= (level if to.epsilon is not None else to.delta) * (1 + 1e-9) + 1e-14
        if to.kind == "trade_off":
            return self.beta(to.alpha) >= level * (1 - 1e-9) - 1e-14
        got = {"pure": self.epsilon, "zcdp": self.rho, "gdp": self.mu, "advantage": lambda: self.delta(0.0)}.get(
            to.kind, lambda: self.renyi(to.order)
        )()
        return got <= level * (1 + 1e-9) + 1e-12


def targets(generator):
    order = 1.0 + 10 ** generator.uniform(-2, 2)
    return [
        ToPure(),
        ToApproximate(epsilon=float(generator.exponential(1.0))),
        ToApproximate(delta=float(10 ** generator.uniform(-6, 0))),
        ToZcdp(),
        ToRdp(order=order),
        ToGdp(),
        ToTradeOff(alpha=float(generator.random())),
        ToTradeOff(alpha=float(10 ** generator.uniform(-8, 0))),
        ToAdvantage(),
    ]


def random_mechanisms(number, seed):
    generator = np.random.default_rng(seed)
    for _ in range(number):
        size = int(generator.integers(2, 7))
        spread = float(10 ** generator.uniform(-1.5, 0.7))
        logits = generator.normal(size=(2, size)) * np.array([[2.0], [spread]])
        p, q = np.exp(logits[0] + logits[1]), np.exp(logits[0])
        yield Mechanism(p / p.sum(), q / q.sum()), generator


@pytest.mark.parametrize("seed", thinned(range(4), every=4))
def test_what_follows_from_a_notion_holds_of_every_random_mechanism_with_it(seed):
    for mechanism, generator in random_mechanisms(12, seed):
        for given in mechanism.levels(generator):
            for to in targets(generator):
                found = convert(given, to)
                assert mechanism.has(found), (found, mechanism.p, mechanism.q)


def binary(p, q):
    return Mechanism(np.array([p, 1.0 - p]), np.array([q, 1.0 - q]))


def best_pair(level, bound, objective, low, high):
    """The largest objective(p, q) over pairs of two outputs whose level is the bound: by a search apart from the one tested."""

    def p_of(log_q):
        q = math.exp(log_q)
        return brentq(lambda p: level(binary(p, q)) - bound, q * (1 + 1e-9), 1 - 1e-12, xtol=1e-15, rtol=1e-14)

    qs = np.linspace(math.log(low), math.log(high), 40)
    values = [objective(p_of(x), math.exp(x)) for x in qs]
    i = int(np.argmax(values))
    found = minimize_scalar(
        lambda x: -objective(p_of(x), math.exp(x)),
        bounds=(qs[max(i - 1, 0)], qs[min(i + 1, 39)]),
        method="bounded",
        options={"xatol": 1e-13},
    )
    # A kink, where such a search ends early: the pair that is its own mirror image.
    q = brentq(lambda q: level(binary(1.0 - q, q)) - bound, 1e-9, 0.5 - 1e-9, xtol=1e-16, rtol=1e-14)
    return max(-found.fun, objective(1.0 - q, q))


@pytest.mark.parametrize(
    ("order", "bound", "epsilon"),
    thinned([(2.0, 0.5, 1.0), (8.0, 0.3, 0.8), (1.5, 2.0, 3.0), (32.0, 1.0, 1.2), (8.0, 0.3, 0.1), (2.0, 0.5, 0.02)], every=2),
)
def test_delta_of_one_order_is_that_of_the_best_pair_of_two_outputs(order, bound, epsilon):
    truth = best_pair(lambda m: m.renyi(order), bound, lambda p, q: p - math.exp(epsilon) * q, 1e-7, 0.499)
    got = convert(Rdp(order=order, value=bound), ToApproximate(epsilon=epsilon)).value
    assert truth * (1 - 1e-12) <= got <= truth * (1 + 1e-9)


@pytest.mark.parametrize(("rho", "epsilon"), thinned([(0.5, 1.0), (0.02, 0.3), (2.0, 4.0), (0.1, 0.05), (0.5, 0.2)], every=5))
def test_delta_of_zcdp_is_that_of_the_best_pair_of_two_outputs(rho, epsilon):
    truth = best_pair(Mechanism.rho, rho, lambda p, q: p - math.exp(epsilon) * q, 1e-6, 0.499)
    got = convert(Zcdp(rho=rho), ToApproximate(epsilon=epsilon)).value
    assert truth * (1 - 1e-8) <= got <= truth * (1 + 1e-8)


@pytest.mark.parametrize("alpha", thinned([1e-6, 0.01, 0.2, 0.5, 0.9], every=3))
@pytest.mark.parametrize(
    "given", thinned([Zcdp(rho=0.5), Zcdp(rho=0.01), Rdp(order=3.0, value=0.4), Rdp(order=20.0, value=0.1)], every=2), ids=str
)
def test_the_least_false_negative_rate_is_that_of_a_pair_of_two_outputs(given, alpha):
    """With this level exactly: any less detection would have less of it."""
    found = convert(given, ToTradeOff(alpha=alpha))
    pair = binary(1.0 - found.value, alpha)
    level, bound = (pair.rho(), given.rho) if given.kind == "zcdp" else (pair.renyi(given.order), given.value)
    assert found.status == "exact"
    assert level == pytest.approx(bound, rel=1e-8)


@pytest.mark.parametrize("delta", thinned([0.2, 1e-3, 1e-6], every=2))
@pytest.mark.parametrize("given", thinned([Zcdp(rho=0.5), Zcdp(rho=5.0), Rdp(order=3.0, value=0.4)], every=2), ids=str)
def test_epsilon_at_delta_and_delta_at_epsilon_are_inverse(given, delta):
    epsilon = convert(given, ToApproximate(delta=delta)).value
    if epsilon > 0.0:
        assert convert(given, ToApproximate(epsilon=epsilon)).value == pytest.approx(delta, rel=1e-8)


@pytest.mark.parametrize("delta", thinned([1e-3, 1e-6, 1e-12, 1e-100], every=2))
@pytest.mark.parametrize("rho", thinned([0.005, 0.1, 1.0, 30.0], every=2))
def test_zcdp_lies_between_the_gaussian_mechanism_and_the_published_conversion(rho, delta):
    got = convert(Zcdp(rho=rho), ToApproximate(delta=delta)).value
    gaussian = convert(Gdp(mu=math.sqrt(2.0 * rho) * (1 - 1e-12)), ToApproximate(delta=delta)).value
    orders = 1.0 + np.geomspace(1e-4, 1e5, 4000)
    published = np.min(orders * rho + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1.0))
    assert gaussian <= got <= published


@pytest.mark.parametrize("rho", thinned([1e-50, 1e-10, 0.003, 0.5, 4.0, 300.0, 1e20], every=3))
def test_mu_of_zcdp_is_bounded_within_a_billionth_of_randomised_response(rho):
    found = convert(Zcdp(rho=rho), ToGdp())
    assert found.status == "bound"
    assert math.sqrt(2.0 * rho) < found.lower < found.value <= found.lower * (1 + 1e-9)


def test_mu_of_zcdp_holds_for_tests_far_from_the_corner():
    """Pairs of two outputs that have all of rho, by their own search."""
    for rho in (0.01, 0.5, 5.0):
        mu = convert(Zcdp(rho=rho), ToGdp()).value
        for alpha in np.geomspace(1e-12, 0.5, 25):
            beta = convert(Zcdp(rho=rho), ToTradeOff(alpha=float(alpha))).value
            if beta > 0.0:
                assert -ndtri(alpha) - ndtri(beta) <= mu * (1 + 1e-9)


def test_the_heavy_tail_has_its_order_and_no_higher_one():
    from zetadp.accountants.notions.divergences import _heavy_tail

    given = Rdp(order=2.5, value=0.3)
    c = float(_heavy_tail(given).split("c = ")[1].split(",")[0])
    n = np.arange(1.0, 400.0)
    q, p = c * n**-2 * 2.0 ** (-2.5 * n), c * n**-2 * 2.0 ** (-1.5 * n)
    p, q = np.concatenate(([1 - p.sum()], p)), np.concatenate(([1 - q.sum()], q))
    shorter, longer = Mechanism(p[:150], q[:150]), Mechanism(p[:300], q[:300])
    assert shorter.renyi(2.5) <= longer.renyi(2.5) <= 0.3
    # Each further term adds (2.7 - 2.5) log 2 / 1.7 but for its n^-2.
    assert longer.renyi(2.7) > shorter.renyi(2.7) + 10.0


def test_the_mechanism_that_reveals_meets_the_trade_off_point():
    for low, high in ((0.1, 0.7), (0.01, 0.9), (0.3, 0.3)):
        start = high / (1 - low)
        # Its curve is start (1 - alpha), in either order of neighbours.
        assert start * (1 - low) >= high * (1 - 1e-15)
        assert start * (1 - high) >= low
        delta = convert(TradeOff(alpha=low, beta=high), ToApproximate(epsilon=100.0)).value
        assert delta == pytest.approx(1 - start, rel=1e-12)
