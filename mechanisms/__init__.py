r"""The registry of mechanisms: noise and its privacy loss. To add one, add a module, a proof, and its name in ``AnyMechanism``.

Noise with a new kind of loss also needs its density: a module of ``accountants.densities``.
"""

from __future__ import annotations

from typing import Annotated, get_args

from pydantic import Field

from mechanisms.base import (
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
from mechanisms.complex_gaussian import ComplexGaussian
from mechanisms.duchi_linf import DuchiLinf
from mechanisms.errors import (
    BudgetExceeded,
    CalibrationFailed,
    IncompatibleEvent,
    InvalidParameter,
    NumericalFloor,
    PrivacyError,
    TimeLimitReached,
    UnsupportedEvent,
)
from mechanisms.gaussian import Gaussian
from mechanisms.laplace import Laplace
from mechanisms.local import LocalRelease
from mechanisms.local_gaussian import LocalGaussian
from mechanisms.local_laplace import LocalLaplace
from mechanisms.loss import GaussianLoss, LaplaceLoss, PrivacyLoss, ResponseLoss
from mechanisms.sampling.source import NoiseSource, NumpySource, RandomOrigin, RandomStream
from mechanisms.spectral import Spectral
from mechanisms.spof_coefficients import SpofCoefficients

AnyMechanism = Annotated[
    Gaussian | ComplexGaussian | Laplace | Spectral | LocalLaplace | LocalGaussian | DuchiLinf | SpofCoefficients,
    Field(discriminator="kind"),
]
MECHANISMS: tuple[type[Mechanism], ...] = get_args(get_args(AnyMechanism)[0])

__all__ = [
    "MECHANISMS",
    "AdditiveNoise",
    "Adjacency",
    "AnyMechanism",
    "Assumption",
    "BudgetExceeded",
    "CalibrationFailed",
    "ComplexGaussian",
    "DuchiLinf",
    "Facts",
    "Gaussian",
    "GaussianLoss",
    "IncompatibleEvent",
    "InvalidParameter",
    "Laplace",
    "LaplaceLoss",
    "LocalGaussian",
    "LocalLaplace",
    "LocalRelease",
    "Mechanism",
    "NoiseSource",
    "NumericalFloor",
    "NumpySource",
    "PrivacyError",
    "PrivacyLoss",
    "PrivacyUnit",
    "RandomOrigin",
    "RandomStream",
    "ResponseLoss",
    "Sensitivity",
    "Spectral",
    "SpofCoefficients",
    "Step",
    "TimeLimitReached",
    "UnsupportedEvent",
    "Value",
]
