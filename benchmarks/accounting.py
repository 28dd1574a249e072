r"""The accounting engine against its peers on the same questions, beside the targets; every question is cold: a new multiplier.

The work set, calibrations and mixtures under add_remove, in both directions of neighbours; dp-accounting answers one of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import dp_accounting

from benchmarks import peers
from benchmarks.compare import geometric_mean, goal, line, ratio, seconds
from zetadp.accountants import Bound, Composed, PoissonSampled, Release, Repeated, calibrate_scale, profile
from zetadp.mechanisms import Adjacency, Gaussian, Laplace, Sensitivity

ROWS = [
    # (sampling probability, noise multiplier, steps, delta, epsilon to seven digits)
    (0.005, 0.61, 4000, 1e-5, 6.608033),
    (0.063, 5.0, 1588, 5e-4, 1.497089),
    (0.009, 1.0, 556, 1e-5, 1.242621),
    (3e-5, 1.0, 1_000_000, 1e-5, 0.123539),
    (0.001, 1.1, 10_000, 1e-5, 0.402337),
    (0.01, 1.0, 10_000, 1e-6, 6.907384),
    (0.256, 4.0, 2000, 1e-5, 16.041130),
]
CALIBRATIONS = [(3.0, 1e-5, 0.01, 10_000, 1.564965535), (1.0, 1e-6, 0.001, 100_000, 1.505833562)]
MIXED_DELTA = 1e-6

_serial = itertools.count(1)


def run() -> Iterator[str]:
    """The report's lines."""
    yield "ratio = peer's CPU time / ours, medians of work done in turn; above 1 we are faster"
    yield from _work_set()
    yield from _calibrations()
    yield from _mixed()
    yield from _by_steps()


def _work_set() -> Iterator[str]:
    factors: list[float] = []
    widest = 0.0
    for number, (probability, std, count, delta, exact) in enumerate(ROWS, 1):
        peer, name = peers.training(probability, std, count), f"row {number}, epsilon"

        def ours(row: tuple[float, float, int, float] = (probability, std, count, delta)) -> Bound:
            return profile(_training(row[0], _fresh(row[1]), row[2])).epsilon(row[3])

        bound = profile(_training(probability, std, count)).epsilon(delta)
        width = (bound.upper - bound.lower) / bound.upper
        inside = "holds" if bound.lower <= exact * (1.0 + 5e-6) and bound.upper >= exact * (1.0 - 5e-6) else "MISSES"
        measured = ratio(ours, lambda e=peer, d=delta: peers.loss_distribution(e, d), 3)
        theirs = peers.loss_distribution(peer, delta)
        note = f"{bound.upper:.7f} by {bound.route}, width {width:.1e}, {inside} {exact}; peer {theirs:.7f}"
        yield line(name, peers.PLD_NAME, measured, note)
        factors.append(measured.factor)
        widest = max(widest, width)
        against = [("dp-accounting RDP", lambda e=peer, d=delta: peers.renyi(e, d)), *peers.others(probability, std, count, delta)]
        for library, question in against:
            yield line(name, library, ratio(ours, question, 3), f"peer {question():.7f}")
    yield goal("seven rows against PLD, geometric mean", geometric_mean(factors), 600.0)
    yield goal("seven rows against PLD, the slowest", min(factors), 100.0)
    yield goal("seven rows, widest bracket / epsilon", widest, 1e-6, "", at_most=True)


def _calibrations() -> Iterator[str]:
    factors: list[float] = []
    for epsilon, delta, probability, count, exact in CALIBRATIONS:

        def ours(case: tuple[float, float, float, int] = (epsilon, delta, probability, count)) -> float:
            return calibrate_scale(_training(case[2], 1.0, case[3]), epsilon=_fresh(case[0]), delta=case[1])

        def theirs(case: tuple[float, float, float, int] = (epsilon, delta, probability, count)) -> float:
            return peers.calibrated(lambda std: peers.training(case[2], std, case[3]), case[0], case[1])

        measured = ratio(ours, theirs, 3)
        found = calibrate_scale(_training(probability, 1.0, count), epsilon=epsilon, delta=delta)
        name = f"calibration ({epsilon:g}, {delta:g}, {probability:g}, {count})"
        yield line(name, "calibrate_dp_mechanism, PLD 1e-4", measured, f"{found:.9f}, exact {exact}")
        factors.append(measured.factor)
    yield goal("calibrations, the faster", max(factors), 1500.0)
    yield goal("calibrations, the slower", min(factors), 700.0)


def _mixed() -> Iterator[str]:
    theirs = _mixed_peer()

    def ours() -> Bound:
        return profile(_mixed_events()).epsilon(MIXED_DELTA)

    measured = ratio(ours, lambda: peers.loss_distribution(theirs, MIXED_DELTA), 3)
    bound, peer = ours(), peers.loss_distribution(theirs, MIXED_DELTA)
    note = f"{bound.upper:.7f} by {bound.route}, width {(bound.upper - bound.lower) / bound.upper:.1e}; peer {peer:.7f}"
    yield line("50 mixed mechanisms", peers.PLD_NAME, measured, note)
    yield goal("50 mixed mechanisms", measured.factor, 300.0)


def _mixed_events() -> Composed:
    """Twenty Gaussian, fifteen Laplace, fifteen Poisson-sampled Gaussian releases, all different, and different from the last time."""
    gaussian = [Release(mechanism=Gaussian(std=_fresh(20.0 + 2.0 * i), sensitivity=_neighbours())) for i in range(20)]
    laplace = [Release(mechanism=Laplace(scale=_fresh(15.0 + 2.0 * i), sensitivity=_neighbours())) for i in range(15)]
    sampled = [_training(0.001 * (i + 1), _fresh(0.8 + 0.1 * i), 100 + 20 * i) for i in range(15)]
    return Composed(events=(*gaussian, *laplace, *sampled))


def _mixed_peer() -> dp_accounting.DpEvent:
    gaussian = [dp_accounting.GaussianDpEvent(20.0 + 2.0 * i) for i in range(20)]
    laplace = [dp_accounting.LaplaceDpEvent(15.0 + 2.0 * i) for i in range(15)]
    sampled = [peers.training(0.001 * (i + 1), 0.8 + 0.1 * i, 100 + 20 * i) for i in range(15)]
    return dp_accounting.ComposedDpEvent([*gaussian, *laplace, *sampled])


def _by_steps() -> Iterator[str]:
    times: list[float] = []
    for exponent in range(2, 8):
        count = 10**exponent

        def ours(steps: int = count) -> Bound:
            return profile(_training(0.01, _fresh(1.0), steps)).epsilon(1e-6)

        bound = ours()
        times.append(sorted(seconds(ours) for _ in range(15))[7])
        width = (bound.upper - bound.lower) / bound.upper
        answer = f"{bound.upper:.6f} by {bound.route}, width {width:.1e}"
        yield f"steps 1e{exponent}, (0.01, 1, delta 1e-6): {times[-1] * 1e3:8.3f} ms   {answer}"
    yield goal("cost from 1e2 to 1e7 steps, largest / smallest", max(times) / min(times), 3.0, at_most=True)


def _fresh(value: float) -> float:
    """``value`` but for its last digits, never the same twice: whatever remembers answers has to compute this one."""
    return value * (1.0 + 1e-12 * next(_serial))


def _training(probability: float, std: float, count: int) -> Repeated:
    return Repeated(
        count=count, event=PoissonSampled(probability=probability, event=Release(mechanism=Gaussian(std=std, sensitivity=_neighbours())))
    )


def _neighbours() -> Sensitivity:
    return Sensitivity(l2=1.0, l1=1.0, adjacency=Adjacency.ADD_REMOVE, unit="record")
