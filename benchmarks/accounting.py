r"""The accounting engine against its peers on the same questions, beside the targets; every question is cold: a new multiplier.

The seven rows (docs/comparison.md), calibrations and mixtures under add_remove, in both directions of neighbours.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import dp_accounting

from benchmarks import peers, peers_apart
from benchmarks.compare import geometric_mean, goal, line, ratio, seconds
from benchmarks.comparison import OURS, compared
from benchmarks.questions import SEVEN
from zetadp.accountants import Bound, Composed, PoissonSampled, Release, Repeated, calibrate_scale, profile
from zetadp.mechanisms import Adjacency, Gaussian, Laplace, Sensitivity

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
    scores = yield from compared("seven rows", SEVEN, 3)
    against_pld = scores[peers.PLD_NAME].factors
    yield goal("seven rows against PLD, geometric mean", geometric_mean(against_pld), 600.0)
    yield goal("seven rows against PLD, the slowest", min(against_pld), 100.0)
    opake = scores.get(peers_apart.OPAKE)
    if opake is not None and opake.factors:
        yield goal("seven rows against opake-accounting, geometric mean", geometric_mean(opake.factors), 300.0)
    yield goal("seven rows, widest bracket / epsilon", max(scores[OURS].widths), 1e-6, "", at_most=True)


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
