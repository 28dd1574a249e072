r"""Whether noise that was drawn has the scale that is claimed for it, from sums over all of its numbers.

The sums themselves must not be published: the squared length of the noise beside the noisy vector tells of the vector without noise. Only
the verdict may be, and it fails with probability at most ``ERROR`` when the noise is right, whatever the data are. So whoever sees
verdict and release has at most e^epsilon ``ERROR`` more delta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import scipy

from mechanisms.complex_gaussian import ComplexGaussian
from mechanisms.gaussian import Gaussian
from mechanisms.laplace import Laplace
from mechanisms.local_gaussian import LocalGaussian
from mechanisms.local_laplace import LocalLaplace

NumberNoise = Gaussian | ComplexGaussian | Laplace | LocalGaussian | LocalLaplace
"""Mechanisms that add independent noise to every number."""

ERROR = 1e-20
"""Probability that right noise fails, at most."""

ROUNDING = 1e-4
"""Relative: of sums in float32, and of a scale that was rounded up to it."""

SMALLEST_COUNT = 16
"""With fewer numbers no deviation of practical size is seen."""

_Z = float(-scipy.special.ndtri(ERROR / 8.0))


@final
@dataclass(frozen=True)
class NoiseSums:
    r"""Over n draws: of a complex coordinate both components are one draw.

    Attributes:
      count: n.
      real: sum of squares of the real components; Laplace's: sum of absolute values.
      imaginary: sum of squares of the imaginary ones; 0 for real noise.
      product: sum of real times imaginary; 0 for real noise.
    """

    count: int
    real: float
    imaginary: float = 0.0
    product: float = 0.0


def has_claimed_scale(mechanism: NumberNoise, sums: NoiseSums) -> bool:
    r"""Whether the drawn noise is what the mechanism says, each component by itself and both together.

    Squares over variance are chi-square with n degrees of freedom, absolute values over Laplace's scale Gamma(n). The part of Im n that
    Re n doesn't explain must be uncorrelated with it. True where there are fewer than ``SMALLEST_COUNT`` draws.

    >>> from mechanisms import Sensitivity
    >>> noise = Gaussian(std=2.0, sensitivity=Sensitivity(l2=1.0, adjacency="add_remove", unit="record"))
    >>> [has_claimed_scale(noise, NoiseSums(1000, 1000 * std**2)) for std in (2.0, 1.0, 1.4, 2.8)]
    [True, False, False, False]
    """
    if sums.count < SMALLEST_COUNT:
        return True
    match mechanism:
        case Laplace() | LocalLaplace():
            return _is_gamma(sums.count, sums.real / mechanism.scale)
        case Gaussian() | LocalGaussian():
            return _is_gamma(0.5 * sums.count, 0.5 * sums.real / mechanism.std**2)
        case ComplexGaussian():
            return _is_complex_gaussian(mechanism, sums)


def _is_complex_gaussian(mechanism: ComplexGaussian, sums: NoiseSums) -> bool:
    (std_real, std_imag), rho = mechanism.stds, mechanism.correlation
    half = 0.5 * sums.count
    u, v, product = sums.real / std_real**2, sums.imaginary / std_imag**2, sums.product / (std_real * std_imag)
    if not (_is_gamma(half, 0.5 * u) and _is_gamma(half, 0.5 * v)):
        return False
    # Given the real parts, sum u (v - rho u) / sqrt(1 - rho^2) is normal with variance sum u^2.
    rest = (product - rho * u) / math.sqrt((1.0 - rho) * (1.0 + rho))
    return abs(rest) <= _Z * math.sqrt(u) + ROUNDING * u


def _is_gamma(shape: float, total: float) -> bool:
    """Whether a Gamma variable of this shape is as small, and as large, as this with probability above ERROR / 8, up to rounding."""
    if not math.isfinite(total):
        return False
    low = float(scipy.special.gammaincinv(shape, ERROR / 8.0)) * (1.0 - ROUNDING)
    high = float(scipy.special.gammainccinv(shape, ERROR / 8.0)) * (1.0 + ROUNDING)
    return low <= total <= high
