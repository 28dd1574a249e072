r"""Poisson samples that are cut, beside dp-accounting's PLD, and random allocation, which no library here bounds from both sides.

A cut sample's question is cold each time. Of an allocation the first question, which lays out its curve, and later ones are told apart.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from statistics import median

import dp_accounting

from benchmarks import peers
from benchmarks.compare import goal, line, ratio, seconds
from zetadp.accountants import Bound, Event, RandomlyAllocated, Release, Repeated, TruncatedPoissonSampled, profile
from zetadp.mechanisms import Adjacency, Gaussian, Sensitivity

CUT = [
    # (probability, largest batch, records, noise multiplier, releases, delta)
    (0.01, 150, 10_000, 1.0, 1000, 1e-5),
    (0.001, 1200, 1_000_000, 0.8, 10_000, 1e-8),
    (2.59e-4, 525_000, 2_000_000_000, 0.614, 350_000, 1.1e-10),
]
ALLOCATED = [
    # (steps, noise multiplier, epochs, delta)
    (100, 1.0, 1, 1e-6),
    (200, 1.0, 5, 1e-8),
    (1000, 0.8, 5, 1e-6),
]

_serial = itertools.count(1)


def run() -> Iterator[str]:
    """The report's lines."""
    yield "ratio = peer's CPU time / ours, medians of work done in turn; above 1 we are faster"
    yield from _cut()
    yield from _allocated()


def _cut() -> Iterator[str]:
    slowest, widest = 0.0, 0.0
    for probability, most, records, std, count, delta in CUT:
        truncated = dp_accounting.dp_event.TruncatedSubsampledGaussianDpEvent(records, probability, most, std)
        peer = dp_accounting.SelfComposedDpEvent(truncated, count)

        def ours(row: tuple[float, int, int, float, int, float] = (probability, most, records, std, count, delta)) -> Bound:
            noise = _gaussian(row[3] * (1.0 + 1e-12 * next(_serial)))
            sample = TruncatedPoissonSampled(probability=row[0], largest_batch=row[1], population_size=row[2], event=noise)
            return profile(Repeated(count=row[4], event=sample)).epsilon(row[5])

        bound, theirs = ours(), peers.loss_distribution(peer, delta)
        measured = ratio(ours, lambda e=peer, d=delta: peers.loss_distribution(e, d), 3)
        yield line(f"cut to {most} of {records}, T = {count}", peers.PLD_NAME, measured, f"{_told(bound)}; peer {theirs:.7f}")
        slowest, widest = max(slowest, median(seconds(ours) for _ in range(15))), max(widest, _width(bound))
    yield goal("cut samples, widest bracket / epsilon", widest, 1e-4, "", at_most=True)
    yield goal("cut samples, the slowest answer", 1e3 * slowest, 50.0, "ms", at_most=True)


def _allocated() -> Iterator[str]:
    first, later, widest = 0.0, 0.0, 0.0
    for steps, std, epochs, delta in ALLOCATED:
        event = Repeated(count=epochs, event=RandomlyAllocated(steps=steps, event=_gaussian(std)))
        cold = seconds(lambda e=event, d=delta: profile(e).epsilon(d))
        bound = profile(event).epsilon(delta)
        warm = median(seconds(lambda e=event, d=delta: profile(_same(e)).epsilon(d)) for _ in range(7))
        yield f"each record in 1 of {steps} steps, {epochs} epochs: first {cold * 1e3:9.1f} ms, later {warm * 1e3:8.1f} ms   {_told(bound)}"
        first, later, widest = max(first, cold), max(later, warm), max(widest, _width(bound))
    yield goal("random allocation, widest bracket / epsilon", widest, 1e-4, "", at_most=True)
    yield goal("random allocation, the slowest first answer", 1e3 * first, 50.0, "ms", at_most=True)
    yield goal("random allocation, the slowest later answer", 1e3 * later, 50.0, "ms", at_most=True)


def _same(event: Event) -> Event:
    """A copy, whose profile nobody remembers."""
    return Repeated.model_validate_json(event.model_dump_json())


def _gaussian(std: float) -> Release:
    return Release(mechanism=Gaussian(std=std, sensitivity=Sensitivity(l2=1.0, adjacency=Adjacency.ADD_REMOVE, unit="record")))


def _told(bound: Bound) -> str:
    return f"{bound.upper:.7f} by {bound.route}, width {_width(bound):.1e}"


def _width(bound: Bound) -> float:
    return (bound.upper - bound.lower) / bound.upper
