r"""The registry of mechanisms: noise and its privacy loss. To add one, add a module, a proof, and its name in ``AnyMechanism``.

Noise with a new kind of loss also needs its density: a module of ``accountants.densities``.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias, get_args

from pydantic import Field

from zetadp.mechanisms.base import (
    Accounted,
    AdditiveNoise,
    Adjacency,
    Assumption,
    Facts,
    Mechanism,
    PrivacyUnit,
    Sensitivity,
    Step,
    Value,
)
from zetadp.mechanisms.complex_gaussian import ComplexGaussian
from zetadp.mechanisms.complex_laplace import ComplexLaplace
from zetadp.mechanisms.declared import (
    DECLARED,
    AnyDeclared,
    ApproximateGuarantee,
    GdpGuarantee,
    NoisyMax,
    PureGuarantee,
    RangeGuarantee,
    SparseVector,
    ZcdpGuarantee,
)
from zetadp.mechanisms.duchi_linf import DuchiLinf
from zetadp.mechanisms.errors import (
    BudgetExceeded,
    CalibrationFailed,
    CostTooHigh,
    IncompatibleEvent,
    InvalidParameter,
    NumericalFloor,
    PrivacyError,
    TimeLimitReached,
    UnsupportedEvent,
)
from zetadp.mechanisms.gaussian import Gaussian
from zetadp.mechanisms.laplace import Laplace
from zetadp.mechanisms.local import LocalRelease
from zetadp.mechanisms.local_gaussian import LocalGaussian
from zetadp.mechanisms.local_laplace import LocalLaplace
from zetadp.mechanisms.loss import GaussianLoss, LaplaceLoss, PrivacyLoss, ResponseLoss
from zetadp.mechanisms.sampling.source import NoiseSource, NumpySource, RandomOrigin, RandomStream
from zetadp.mechanisms.spectral import Spectral
from zetadp.mechanisms.spof_coefficients import SpofCoefficients

_Mechanism: TypeAlias = (
    Gaussian | ComplexGaussian | Laplace | ComplexLaplace | Spectral | LocalLaplace | LocalGaussian | DuchiLinf | SpofCoefficients
)

AnyMechanism = Annotated[_Mechanism, Field(discriminator="kind")]
MECHANISMS: tuple[type[Mechanism], ...] = get_args(_Mechanism)

AnyAccounted = Annotated[_Mechanism | AnyDeclared, Field(discriminator="kind")]
"""Whatever an event can contain: the mechanisms, and what is only declared."""

__all__ = [
    "DECLARED",
    "MECHANISMS",
    "Accounted",
    "AdditiveNoise",
    "Adjacency",
    "AnyAccounted",
    "AnyDeclared",
    "AnyMechanism",
    "ApproximateGuarantee",
    "Assumption",
    "BudgetExceeded",
    "CalibrationFailed",
    "ComplexGaussian",
    "ComplexLaplace",
    "CostTooHigh",
    "DuchiLinf",
    "Facts",
    "Gaussian",
    "GaussianLoss",
    "GdpGuarantee",
    "IncompatibleEvent",
    "InvalidParameter",
    "Laplace",
    "LaplaceLoss",
    "LocalGaussian",
    "LocalLaplace",
    "LocalRelease",
    "Mechanism",
    "NoiseSource",
    "NoisyMax",
    "NumericalFloor",
    "NumpySource",
    "PrivacyError",
    "PrivacyLoss",
    "PrivacyUnit",
    "PureGuarantee",
    "RandomOrigin",
    "RandomStream",
    "RangeGuarantee",
    "ResponseLoss",
    "Sensitivity",
    "SparseVector",
    "Spectral",
    "SpofCoefficients",
    "Step",
    "TimeLimitReached",
    "UnsupportedEvent",
    "Value",
    "ZcdpGuarantee",
]
