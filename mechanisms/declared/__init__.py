r"""What others ran and we only account for: bare guarantees, private selection, noise on whole numbers. Nothing here draws noise.

With these in an event, any history can be composed. The service never releases them, so that no certificate of a run contains them.
"""

from __future__ import annotations

from typing import get_args

from zetadp.mechanisms.declared.correlated import Buffer, CorrelatedNoise
from zetadp.mechanisms.declared.guarantees import ApproximateGuarantee, GdpGuarantee, PureGuarantee, RangeGuarantee, ZcdpGuarantee
from zetadp.mechanisms.declared.integers import DiscreteGaussian, DiscreteGaussianSum, DiscreteLaplace, Skellam
from zetadp.mechanisms.declared.runs import GeometricRuns, LogarithmicRuns, PoissonRuns, TruncatedNegativeBinomialRuns
from zetadp.mechanisms.declared.selection import NoisyMax, SparseVector
from zetadp.mechanisms.declared.tree import TreeAggregation

AnyDeclared = (
    PureGuarantee
    | ApproximateGuarantee
    | ZcdpGuarantee
    | GdpGuarantee
    | RangeGuarantee
    | NoisyMax
    | SparseVector
    | DiscreteGaussian
    | DiscreteLaplace
    | DiscreteGaussianSum
    | Skellam
    | CorrelatedNoise
    | TreeAggregation
)
DECLARED: tuple[type[AnyDeclared], ...] = get_args(AnyDeclared)

__all__ = [
    "DECLARED",
    "AnyDeclared",
    "ApproximateGuarantee",
    "Buffer",
    "CorrelatedNoise",
    "DiscreteGaussian",
    "DiscreteGaussianSum",
    "DiscreteLaplace",
    "GdpGuarantee",
    "GeometricRuns",
    "LogarithmicRuns",
    "NoisyMax",
    "PoissonRuns",
    "PureGuarantee",
    "RangeGuarantee",
    "Skellam",
    "SparseVector",
    "TreeAggregation",
    "TruncatedNegativeBinomialRuns",
    "ZcdpGuarantee",
]
