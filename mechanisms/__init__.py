r"""The registry of mechanisms: noise and its privacy loss. To add one, add a module, a proof, and its name in ``AnyMechanism``.

Noise with a new kind of loss also needs its density: a module of ``accountants.densities``.
"""

from __future__ import annotations

from typing import Annotated, get_args

from pydantic import Field

from zetadp.mechanisms.base import (
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
from zetadp.mechanisms.duchi_linf import DuchiLinf
from zetadp.mechanisms.errors import (
    BudgetExceeded,
    CalibrationFailed,
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
