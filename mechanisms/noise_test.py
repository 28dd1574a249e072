r"""Tests whether drawn noise has its claimed scale and doesn't repeat itself, from sums over all of its numbers.

Noise that repeats itself, with either sign, leaves sums or differences of releases without noise. Sums of products of numbers that should
be unrelated detect this at one distance, and squares of sums over many numbers at every distance, if it happens often enough. Anything
that changes no sum isn't detected: one number without noise among thousands, for example.

The sums themselves must not be published: the squared length of the noise together with the noisy vector reveals something about the
vector without noise. Only the verdict may be published. It fails with probability at most ``ERROR`` if the noise is right, whatever the
data are, so for an observer of verdict and release delta grows by at most e^epsilon ``ERROR``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import scipy

from zetadp.mechanisms.complex_gaussian import ComplexGaussian
from zetadp.mechanisms.gaussian import Gaussian
from zetadp.mechanisms.laplace import Laplace
from zetadp.mechanisms.local_gaussian import LocalGaussian
from zetadp.mechanisms.local_laplace import LocalLaplace

NumberNoise = Gaussian | ComplexGaussian | Laplace | LocalGaussian | LocalLaplace
"""Mechanisms that add independent noise to every number."""

ERROR = 1e-20
"""Upper bound on the probability that right noise fails."""

ROUNDING = 1e-4
"""Relative rounding of sums in float32, and of a scale that was rounded up to it."""

SMALLEST_COUNT = 16
"""With fewer numbers no deviation of practical size is detectable."""

TAILS = 48
"""At most this many tails share ``ERROR``: complex noise has six for its scale, as many for that of sums over steps and of sums over
numbers, and eight for each of three ``Products``."""

_TAIL = ERROR / TAILS
_Z = float(-scipy.special.ndtri(_TAIL))


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

    def __add__(self, other: NoiseSums) -> NoiseSums:
        return NoiseSums(self.count + other.count, self.real + other.real, self.imaginary + other.imaginary, self.product + other.product)


@final
@dataclass(frozen=True)
class Products:
    r"""Sums over m products x y of two draws each; for Laplace noise x and y are the draws' signs.

    No draw is in more than two products, and a walk from draw to draw along products never returns: they form chains.

    Attributes:
      count: m; a product of complex coordinates is one.
      real: sum of x y; of complex noise Re x Re y.
      imaginary: sum of Im x Im y; 0 for real noise, as the following.
      real_imaginary: sum of Re x Im y.
      imaginary_real: sum of Im x Re y.
    """

    count: int = 0
    real: float = 0.0
    imaginary: float = 0.0
    real_imaginary: float = 0.0
    imaginary_real: float = 0.0

    def __add__(self, other: Products) -> Products:
        return Products(
            self.count + other.count,
            self.real + other.real,
            self.imaginary + other.imaginary,
            self.real_imaginary + other.real_imaginary,
            self.imaginary_real + other.imaginary_real,
        )


def has_claimed_scale(mechanism: NumberNoise, sums: NoiseSums, widest: float = 1.0) -> bool:
    r"""Whether the drawn noise has the mechanism's claimed scale, each component separately and both together.

    Squares over variance are chi-square with n degrees of freedom, absolute values over Laplace's scale Gamma(n). The part of Im n that
    Re n doesn't explain must be uncorrelated with it. True if there are fewer than ``SMALLEST_COUNT`` draws.

    Args:
      widest: the most that releases widened the noise by: the inverse of the mechanism's ``contracted_to``, >= 1.

    >>> from zetadp.mechanisms import Sensitivity
    >>> noise = Gaussian(std=2.0, sensitivity=Sensitivity(l2=1.0, adjacency="add_remove", unit="record"))
    >>> [has_claimed_scale(noise, NoiseSums(1000, 1000 * std**2)) for std in (2.0, 1.0, 1.4, 2.8)]
    [True, False, False, False]
    """
    if sums.count < SMALLEST_COUNT:
        return True
    match mechanism:
        case Laplace() | LocalLaplace():
            return _is_gamma(sums.count, sums.real / mechanism.scale, widest)
        case Gaussian() | LocalGaussian():
            return _is_gamma(0.5 * sums.count, 0.5 * sums.real / mechanism.std**2, widest**2)
        case ComplexGaussian():
            return _is_complex_gaussian(mechanism, sums, widest)


def are_unrelated(mechanism: NumberNoise, products: Products, widest: float = 1.0) -> bool:
    r"""Whether draws that were multiplied with each other may be independent, as far as the sums of their products show.

    Normal draws are whitened and compared with ``largest_sum``. The signs of independent symmetric draws are fair coins, and so are their
    products: their sum exceeds sqrt(2 m log(1 / a)) with probability at most a (Hoeffding), on either side. ``widest`` is as above.

    >>> from zetadp.mechanisms import Sensitivity
    >>> noise = Gaussian(std=2.0, sensitivity=Sensitivity(l2=1.0, adjacency="add_remove", unit="record"))
    >>> [are_unrelated(noise, Products(1000, 1000 * covariance)) for covariance in (0.0, 1.0, 2.0, 4.0, -4.0)]
    [True, True, False, False, False]
    """
    if products.count == 0:
        return True
    match mechanism:
        case Laplace() | LocalLaplace():
            sums, largest = (products.real,), math.sqrt(2.0 * products.count * -math.log(_TAIL))
        case Gaussian() | LocalGaussian():
            sums, largest = (products.real / mechanism.std**2,), widest**2 * largest_sum(products.count)
        case ComplexGaussian():
            sums, largest = _whitened(mechanism, products), widest**2 * largest_sum(products.count)
    # NaN is not smaller than anything.
    return all(abs(found) <= largest + ROUNDING * products.count for found in sums)


def are_sums_of_fair_signs(sums: NoiseSums) -> bool:
    r"""Whether the squares of sums of independent fair signs may be as small, and as large, together.

    Each sum is divided by the root of the number of its signs: their squares' moments are at most those of normal numbers' squares upwards,
    and E e^(-t s^2) <= 1 - t + 3 t^2 / 2 downwards. Proof: accountants/proofs/audit.md, section 4. True if there are fewer than
    ``SMALLEST_COUNT``.

    >>> [are_sums_of_fair_signs(NoiseSums(400, found)) for found in (0.0, 400.0, 600.0, 800.0)]
    [False, True, True, False]
    """
    if sums.count < SMALLEST_COUNT:
        return True
    if not math.isfinite(sums.real):
        return False
    share, least = sums.real / sums.count, math.log(_TAIL) / sums.count
    if share > 1.0:
        share = max(1.0, share * (1.0 - ROUNDING))
        return -0.5 * (share - 1.0 - math.log(share)) >= least
    share *= 1.0 + ROUNDING
    # Any t serves; those above 1 / 3 only where there is next to nothing.
    return min(t * share + math.log1p(-t + 1.5 * t * t) for t in (step / 300.0 for step in range(101))) >= least


def largest_sum(count: int) -> float:
    r"""A value that the sum of m ``Products`` of standard normal draws exceeds with probability at most ``ERROR / TAILS``, for every m.

    s = m tan(t) / cos(2 t) at the t in (0, pi / 4) with m (tan(t) tan(2 t) / 2 + log cos(t)) = log(1 / a).
    Proof: accountants/proofs/audit.md, section 4.

    >>> [round(largest_sum(count) / count**0.5, 1) for count in (200, 2400, 10**6)]
    [12.8, 10.3, 10.0]
    """
    goal = -math.log(_TAIL) / count
    low, high = 0.0, math.pi / 4.0
    # The exponent rises with t, from 0 without limit; the upper end is on the safe side.
    while low < (middle := 0.5 * (low + high)) < high:
        low, high = (middle, high) if _exponent(middle) < goal else (low, middle)
    return count * math.tan(high) / math.cos(2.0 * high)


def _exponent(angle: float) -> float:
    return 0.5 * math.tan(angle) * math.tan(2.0 * angle) + 0.5 * math.log1p(-(math.sin(angle) ** 2))


def _whitened(mechanism: ComplexGaussian, products: Products) -> tuple[float, float, float, float]:
    r"""The sums of u u', u w', w u' and w w' of standard normal u = Re / std_real and w = (Im / std_imag - rho u) / sqrt(1 - rho^2)."""
    (std_real, std_imag), rho = mechanism.stds, mechanism.correlation
    rest = (1.0 - rho) * (1.0 + rho)
    uu, vv = products.real / std_real**2, products.imaginary / std_imag**2
    uv, vu = products.real_imaginary / (std_real * std_imag), products.imaginary_real / (std_real * std_imag)
    half = math.sqrt(rest)
    return uu, (uv - rho * uu) / half, (vu - rho * uu) / half, (vv - rho * (uv + vu) + rho**2 * uu) / rest


def _is_complex_gaussian(mechanism: ComplexGaussian, sums: NoiseSums, widest: float) -> bool:
    (std_real, std_imag), rho = mechanism.stds, mechanism.correlation
    half = 0.5 * sums.count
    u, v, product = sums.real / std_real**2, sums.imaginary / std_imag**2, sums.product / (std_real * std_imag)
    if not (_is_gamma(half, 0.5 * u, widest**2) and _is_gamma(half, 0.5 * v, widest**2)):
        return False
    # Given the real parts, sum u (v - rho u) / sqrt(1 - rho^2) is normal with variance sum u^2.
    rest = (product - rho * u) / math.sqrt((1.0 - rho) * (1.0 + rho))
    return abs(rest) <= widest * _Z * math.sqrt(u) + ROUNDING * u


def _is_gamma(shape: float, total: float, widest: float) -> bool:
    r"""Whether a Gamma variable of this shape is as small, and as large, as this with probability above ERROR / TAILS, up to rounding.

    What is added up of it may have been multiplied by 1 up to ``widest``.
    """
    if not math.isfinite(total):
        return False
    low = float(scipy.special.gammaincinv(shape, _TAIL)) * (1.0 - ROUNDING)
    high = float(scipy.special.gammainccinv(shape, _TAIL)) * (1.0 + ROUNDING) * widest
    return low <= total <= high
