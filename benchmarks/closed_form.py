r"""Gaussian releases without sampling, the closed form: safe ends of delta, epsilon and sigma against dp-accounting's unguarded values."""

from __future__ import annotations

import math
from collections.abc import Iterator

import dp_accounting
import numpy as np
from dp_accounting.pld import privacy_loss_mechanism

from benchmarks.compare import goal, line, ratio, seconds
from zetadp.accountants.routes.closed.gdp_inversion import epsilon_at, largest_mu, log_delta_upper, log_deltas_upper

ROUNDS = 15
ELEMENTS = 100_000


def run() -> Iterator[str]:
    """The report's lines."""
    yield from _deltas()
    yield from _epsilons()
    yield from _sigmas()
    yield from _arrays()


def _deltas() -> Iterator[str]:
    factors: list[float] = []
    for mu, epsilon in [(1.3, 3.0), (0.05, 0.1), (5.0, 40.0)]:
        peer = privacy_loss_mechanism.GaussianPrivacyLoss(1.0 / mu)
        measured = ratio(lambda m=mu, e=epsilon: log_delta_upper(m, e), lambda e=epsilon, p=peer: p.get_delta_for_epsilon(e), ROUNDS)
        note = f"{math.exp(log_delta_upper(mu, epsilon)):.9e}, {peer.get_delta_for_epsilon(epsilon):.9e}"
        yield line(f"delta of mu = {mu:g} at {epsilon:g}", "dp-accounting get_delta_for_epsilon", measured, note)
        factors.append(measured.factor)
    yield goal("closed form delta, the slowest", min(factors), 50.0)


def _epsilons() -> Iterator[str]:
    factors: list[float] = []
    for mu, delta in [(1.3, 1e-9), (0.05, 1e-6), (5.0, 1e-5)]:
        log_delta = math.log(delta)
        measured = ratio(
            lambda m=mu, d=log_delta: epsilon_at(m, d), lambda m=mu, d=delta: dp_accounting.get_epsilon_gaussian(1.0 / m, d), ROUNDS
        )
        bound, theirs = epsilon_at(mu, log_delta), dp_accounting.get_epsilon_gaussian(1.0 / mu, delta)
        note = f"{bound.upper:.12g}, width {(bound.upper - bound.lower) / bound.upper:.0e}, {theirs:.12g}"
        yield line(f"epsilon of mu = {mu:g} at {delta:g}, both ends", "dp-accounting get_epsilon_gaussian", measured, note)
        factors.append(measured.factor)
    yield goal("closed form epsilon, the slowest", min(factors), 50.0)


def _sigmas() -> Iterator[str]:
    factors: list[float] = []
    for epsilon, delta in [(1.0, 1e-5), (0.1, 1e-9), (8.0, 1e-6)]:
        log_delta = math.log(delta)
        measured = ratio(
            lambda e=epsilon, d=log_delta: 1.0 / largest_mu(e, d),
            lambda e=epsilon, d=delta: dp_accounting.get_sigma_gaussian(e, d),
            ROUNDS,
        )
        note = f"{1.0 / largest_mu(epsilon, log_delta):.12g}, {dp_accounting.get_sigma_gaussian(epsilon, delta):.12g}"
        yield line(f"sigma for ({epsilon:g}, {delta:g})", "dp-accounting get_sigma_gaussian", measured, note)
        factors.append(measured.factor)
    yield goal("closed form sigma, the slowest", min(factors), 50.0)


def _arrays() -> Iterator[str]:
    slowest = 0.0
    for name, mu, top in [("1.3", 1.3, 20.0), ("0.01", 0.01, 0.2), ("1e-3..50", np.geomspace(1e-3, 50.0, ELEMENTS), 20.0)]:
        epsilons = np.linspace(0.0, top, ELEMENTS)
        each = sorted(seconds(lambda m=mu, e=epsilons: log_deltas_upper(m, e)) for _ in range(ROUNDS))[ROUNDS // 2] / ELEMENTS
        yield f"array of {ELEMENTS} safe log deltas, mu = {name}: {each * 1e9:.1f} ns an element"
        slowest = max(slowest, each * 1e9)
    yield goal("closed form delta in arrays, the slowest", slowest, 100.0, "ns an element", at_most=True)
