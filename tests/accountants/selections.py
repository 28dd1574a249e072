"""Selections of runs for tests: laws of their number, and bases."""

from __future__ import annotations

from zetadp.accountants import Release, RepeatedAndSelected
from zetadp.mechanisms import GdpGuarantee, PureGuarantee
from zetadp.mechanisms.declared.runs import GeometricRuns, LogarithmicRuns, PoissonRuns, TruncatedNegativeBinomialRuns

WHO = {"adjacency": "add_remove", "unit": "record"}
LAWS = [
    GeometricRuns(mean=1.0),
    GeometricRuns(mean=8.0),
    LogarithmicRuns(mean=5.0),
    TruncatedNegativeBinomialRuns(mean=4.0, shape=-0.5),
    TruncatedNegativeBinomialRuns(mean=20.0, shape=3.0),
    PoissonRuns(mean=0.25),
    PoissonRuns(mean=1.0),
    PoissonRuns(mean=6.0),
]


def best_of(runs, base):
    return RepeatedAndSelected(runs=runs, event=base)


def pure(epsilon):
    return Release(mechanism=PureGuarantee(epsilon=epsilon, **WHO))


def gdp(mu):
    return Release(mechanism=GdpGuarantee(mu=mu, **WHO))
