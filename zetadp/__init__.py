r"""Privacy accounting, noise calibration and private training, with certificates that anyone can check.

>>> import zetadp
>>> round(zetadp.epsilon(noise_multiplier=1.0, sampling_probability=0.01, steps=1000, delta=1e-5).upper, 3)
1.828

Names are loaded when they are first used: what asks for an epsilon doesn't wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zetadp.accountants.events import (
        Composed,
        Event,
        FixedSizeSampled,
        Grouped,
        NonPrivate,
        PoissonSampled,
        RandomlyAllocated,
        RandomlyWeighted,
        Release,
        Repeated,
        RepeatedAndSelected,
        Shuffled,
        TruncatedPoissonSampled,
    )
    from zetadp.accounting import (
        AttackRisk,
        Calibrated,
        attack_risk,
        complex_gaussian,
        convert,
        delta,
        dp_sgd,
        epsilon,
        gaussian,
        laplace,
        noise_multiplier,
        profile,
        steps,
    )
    from zetadp.mechanisms.base import Sensitivity
    from zetadp.mechanisms.complex_gaussian import ComplexGaussian
    from zetadp.mechanisms.declared import (
        ApproximateGuarantee,
        Buffer,
        CorrelatedNoise,
        DiscreteGaussian,
        DiscreteGaussianSum,
        DiscreteLaplace,
        GdpGuarantee,
        GeometricRuns,
        LogarithmicRuns,
        NoisyMax,
        PoissonRuns,
        PureGuarantee,
        RangeGuarantee,
        Skellam,
        SparseVector,
        TreeAggregation,
        TruncatedNegativeBinomialRuns,
        ZcdpGuarantee,
    )
    from zetadp.mechanisms.gaussian import Gaussian
    from zetadp.mechanisms.laplace import Laplace
    from zetadp.own_loop import PrivateTraining, ReleasedStep, private
    from zetadp.trainer.algorithms.own_module.evaluation import PrivateRecords, PublicRecords
    from zetadp.trainer.algorithms.own_module.inspection import Obstacle, check, repaired
    from zetadp.training import Trained, train

    __version__: str

__all__ = [
    "ApproximateGuarantee",
    "AttackRisk",
    "Buffer",
    "Calibrated",
    "ComplexGaussian",
    "Composed",
    "CorrelatedNoise",
    "DiscreteGaussian",
    "DiscreteGaussianSum",
    "DiscreteLaplace",
    "Event",
    "FixedSizeSampled",
    "Gaussian",
    "GdpGuarantee",
    "GeometricRuns",
    "Grouped",
    "Laplace",
    "LogarithmicRuns",
    "NoisyMax",
    "NonPrivate",
    "Obstacle",
    "PoissonRuns",
    "PoissonSampled",
    "PrivateRecords",
    "PrivateTraining",
    "PublicRecords",
    "PureGuarantee",
    "RandomlyAllocated",
    "RandomlyWeighted",
    "RangeGuarantee",
    "Release",
    "ReleasedStep",
    "Repeated",
    "RepeatedAndSelected",
    "Sensitivity",
    "Shuffled",
    "Skellam",
    "SparseVector",
    "Trained",
    "TreeAggregation",
    "TruncatedNegativeBinomialRuns",
    "TruncatedPoissonSampled",
    "ZcdpGuarantee",
    "__version__",
    "attack_risk",
    "check",
    "complex_gaussian",
    "convert",
    "delta",
    "dp_sgd",
    "epsilon",
    "gaussian",
    "laplace",
    "noise_multiplier",
    "private",
    "profile",
    "repaired",
    "steps",
    "train",
]

_EVENTS = (
    *("Composed", "Event", "FixedSizeSampled", "Grouped", "NonPrivate"),
    *("PoissonSampled", "RandomlyAllocated", "RandomlyWeighted", "Release", "Repeated", "RepeatedAndSelected", "Shuffled"),
    "TruncatedPoissonSampled",
)
_DECLARED = (
    *("ApproximateGuarantee", "Buffer", "CorrelatedNoise", "DiscreteGaussian", "DiscreteGaussianSum", "DiscreteLaplace"),
    *("GdpGuarantee", "GeometricRuns", "LogarithmicRuns", "NoisyMax", "PoissonRuns", "PureGuarantee", "RangeGuarantee"),
    *("Skellam", "SparseVector", "TreeAggregation"),
    *("TruncatedNegativeBinomialRuns", "ZcdpGuarantee"),
)
_ELSEWHERE = {
    **dict.fromkeys(_DECLARED, "zetadp.mechanisms.declared"),
    **dict.fromkeys(_EVENTS, "zetadp.accountants.events"),
    "Sensitivity": "zetadp.mechanisms.base",
    "ComplexGaussian": "zetadp.mechanisms.complex_gaussian",
    "Gaussian": "zetadp.mechanisms.gaussian",
    "Laplace": "zetadp.mechanisms.laplace",
    **dict.fromkeys(("Obstacle", "check", "repaired"), "zetadp.trainer.algorithms.own_module.inspection"),
    **dict.fromkeys(("PrivateRecords", "PublicRecords"), "zetadp.trainer.algorithms.own_module.evaluation"),
    **dict.fromkeys(("PrivateTraining", "ReleasedStep", "private"), "zetadp.own_loop"),
    "Trained": "zetadp.training",
    "train": "zetadp.training",
}
"""The modules of the names that ``accounting`` doesn't have."""


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("zetadp.version").VERSION
    if name not in __all__:
        raise AttributeError(f"module 'zetadp' has no attribute {name!r}")
    found = getattr(import_module(_ELSEWHERE.get(name, "zetadp.accounting")), name)
    globals()[name] = found  # asked for once
    return found


def __dir__() -> list[str]:
    return __all__
