r"""Accountants against dp-accounting 0.6.0 on the same questions, with what each answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import dp_accounting
from dp_accounting import pld, rdp

from accountants import PoissonSampled, Release, Repeated, calibrate_scale, profile
from accountants.cross_check import recomputed_epsilon
from accountants.gdp import epsilon_at
from benchmarks.compare import line, ratio
from mechanisms import Adjacency, Gaussian, Sensitivity

ROWS = [(0.005, 0.61, 4000, 1e-5), (0.009, 1.0, 556, 1e-5), (0.01, 1.0, 10_000, 1e-6), (0.256, 4.0, 2000, 1e-5)]


def run() -> Iterator[str]:
    """The report's lines."""
    yield "ratio = peer's CPU time / ours; above 1 we are faster. epsilon: ours, peer's"
    delta = 1e-9
    measured = ratio(lambda: epsilon_at(1.3, math.log(delta)), lambda: dp_accounting.get_epsilon_gaussian(1 / 1.3, delta), 25)
    yield line("Gaussian epsilon, closed form", "dp-accounting get_epsilon_gaussian", measured)
    for row in ROWS:
        yield from _rows(*row)
    measured = ratio(lambda: calibrate_scale(_ours(0.01, 1.0, 10_000), epsilon=3.0, delta=1e-5), _their_calibration, 1)
    yield line("calibration (3, 1e-5, .01, 10000)", "calibrate_dp_mechanism with PLD", measured)


def _rows(probability: float, std: float, count: int, delta: float) -> Iterator[str]:
    event, peer = _ours(probability, std, count), _theirs(probability, std, count)
    name = f"({probability}, {std}, {count}, {delta})"
    questions: tuple[tuple[str, Callable[[], float], str, Callable[[], float]], ...] = (
        ("Renyi", lambda: profile(event, "rdp").epsilon(delta).upper, "dp-accounting RDP", lambda: _renyi(peer, delta)),
        ("PLD", lambda: profile(event, "pld").epsilon_upper(delta), "dp-accounting PLD 1e-4", lambda: _pld(peer, delta)),
        ("recomputation", lambda: recomputed_epsilon(event, delta), "dp-accounting PLD 1e-4", lambda: _pld(peer, delta)),
    )
    for kind, ours, library, theirs in questions:
        yield line(f"{kind} {name}", library, ratio(ours, theirs, 3), f"{ours():.6f}, {theirs():.6f}")


def _ours(probability: float, std: float, count: int) -> Repeated:
    noise = Gaussian(std=std, sensitivity=Sensitivity(l2=1.0, adjacency=Adjacency.ADD_REMOVE, unit="record"))
    return Repeated(count=count, event=PoissonSampled(probability=probability, event=Release(mechanism=noise)))


def _theirs(probability: float, std: float, count: int) -> dp_accounting.DpEvent:
    sampled = dp_accounting.PoissonSampledDpEvent(probability, dp_accounting.GaussianDpEvent(std))
    return dp_accounting.SelfComposedDpEvent(sampled, count)


def _renyi(event: dp_accounting.DpEvent, delta: float) -> float:
    return rdp.RdpAccountant().compose(event).get_epsilon(delta)


def _pld(event: dp_accounting.DpEvent, delta: float) -> float:
    return pld.PLDAccountant().compose(event).get_epsilon(delta)


def _their_calibration() -> float:
    return dp_accounting.calibrate_dp_mechanism(pld.PLDAccountant, lambda std: _theirs(0.01, std, 10_000), 3.0, 1e-5)
