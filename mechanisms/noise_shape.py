r"""The shape of complex Gaussian noise with the least mu at a given mean squared error, over all 2x2 covariances. proofs/noise_shape.md.

With bounds D, a, b on a move and on its real and imaginary part, let (r, s) be the point of {r <= a, s <= b, r^2 + s^2 <= D^2} with the
largest r + s. At mean squared error V = v_real + v_imag the least mu is (r + s) / sqrt(V), attained without correlation at
v_real : v_imag = r : s. Circular noise has longest sqrt(2 / V), where longest = min(D, sqrt(a^2 + b^2)). Errata C8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from zetadp.mechanisms.base import LARGEST_SCALE, SMALLEST_SCALE, Sensitivity, Step
from zetadp.mechanisms.complex_gaussian import ComplexGaussian
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.gaussian import Gaussian

_SOURCE = "proofs/noise_shape.md"


@final
@dataclass(frozen=True)
class NoiseShape:
    r"""The optimal shape for a sensitivity; independent of the amount of noise.

    Attributes:
      r, s: lengths of the real and imaginary part of the decisive move; r^2 + s^2 <= l2^2. Units of the query.
      longest: the largest length of a move, min(l2, sqrt(l2_real^2 + l2_imag^2)).
      sensitivity: the sensitivity that the shape is for.
    """

    r: float
    s: float
    longest: float
    sensitivity: Sensitivity

    @property
    def gain(self) -> float:
        """mu of the optimal shape over mu of circular noise at equal mean squared error: in [1 / sqrt 2, 1]."""
        return min(1.0, self.r / self.longest * math.sqrt(0.5) + self.s / self.longest * math.sqrt(0.5))

    @property
    def optimal_mu_times_total_std(self) -> float:
        """r + s: the optimal mu is this divided by total_std."""
        return self.r + self.s

    @property
    def circular_mu_times_total_std(self) -> float:
        """sqrt(2) longest: the mu of circular noise is this divided by total_std."""
        return math.sqrt(2.0) * self.longest

    def stds(self, total_std: float) -> tuple[float, float]:
        """Deviations of the real and imaginary component, with v_real + v_imag = total_std^2; 0 for a part with sensitivity 0."""
        whole = self.r + self.s
        return total_std * math.sqrt(self.r / whole), total_std * math.sqrt(self.s / whole)

    def mechanism(self, total_std: float) -> ComplexGaussian | Gaussian:
        r"""The noise of this shape and mean squared error total_std^2 per coordinate.

        A part with sensitivity 0 is the same for all neighbours: released as it is, it reveals nothing, and the whole error goes to the
        other part. That limit is real Gaussian noise on the other part alone.

        Raises:
          InvalidParameter: a deviation outside [1e-50, 1e50].
        """
        std_real, std_imag = self.stds(total_std)
        for std, part in ((std_real, self.r), (std_imag, self.s)):
            if part > 0.0 and not SMALLEST_SCALE <= std <= LARGEST_SCALE:
                expected = f"such that both components' deviations lie in [{SMALLEST_SCALE!r}, {LARGEST_SCALE!r}] (one is {std!r})"
                raise InvalidParameter("total_std", expected, total_std)
        if self.r == 0.0 or self.s == 0.0:
            stated = self.sensitivity
            alone = Sensitivity(l2=max(self.r, self.s), adjacency=stated.adjacency, unit=stated.unit)
            return Gaussian(std=max(std_real, std_imag), sensitivity=alone)
        if self.r == self.s:
            return ComplexGaussian(std=std_real, sensitivity=self.sensitivity)
        return ComplexGaussian(std_real=std_real, std_imag=std_imag, sensitivity=self.sensitivity)

    def derivation(self) -> tuple[Step, ...]:
        """From the bounds to the shape."""
        big, real, imag = _bounds(self.sensitivity)
        return (
            Step(symbol="D", value=big, formula="given", source="sensitivity.l2"),
            Step(symbol="a", value=real, formula="min(l2_real, D)", source="sensitivity.l2_real (D where absent)"),
            Step(symbol="b", value=imag, formula="min(l2_imag, D)", source="sensitivity.l2_imag (D where absent)"),
            Step(symbol="r", value=self.r, formula=_where(big, real, imag), source=_SOURCE),
            Step(symbol="s", value=self.s, formula="b if a^2 + b^2 <= D^2, else sqrt(D^2 - r^2)", source=_SOURCE),
            Step(symbol="longest", value=self.longest, formula="min(D, sqrt(a^2 + b^2))", source="largest length of a move"),
            Step(symbol="v_real / v_imag", value=self.r / self.s if self.s > 0.0 else math.inf, formula="r / s", source=_SOURCE),
        )


def optimal_shape(sensitivity: Sensitivity) -> NoiseShape:
    r"""The shape with the least mu at every mean squared error, among all 2x2 covariances, including correlated ones.

    Raises:
      InvalidParameter: no l2 bound.

    >>> shape = optimal_shape(Sensitivity(l2=1.0, l2_imag=0.3, adjacency="add_remove", unit="record"))
    >>> round(shape.gain**2, 3)
    0.786
    """
    _ = sensitivity.stated_l2
    big, real, imag = _bounds(sensitivity)
    corner = math.hypot(real / big, imag / big)
    if corner <= 1.0:
        return NoiseShape(r=real, s=imag, longest=big * corner, sensitivity=sensitivity)
    # On the arc r + s grows towards r = s: the maximum is that point, or the bound that stops short of it.
    half = big * math.sqrt(0.5)
    if real < half:
        return NoiseShape(r=real, s=_other(big, real), longest=big, sensitivity=sensitivity)
    if imag < half:
        return NoiseShape(r=_other(big, imag), s=imag, longest=big, sensitivity=sensitivity)
    return NoiseShape(r=half, s=half, longest=big, sensitivity=sensitivity)


def total_std_for(shape: NoiseShape, mu: float) -> float:
    r"""The least sqrt(v_real + v_imag) at which noise of this shape is mu-GDP, rounded up and checked on the mechanism itself.

    Raises:
      InvalidParameter: it is outside [1e-50, 1e50].
    """
    total = shape.optimal_mu_times_total_std / mu
    while True:
        if not SMALLEST_SCALE <= total <= LARGEST_SCALE:
            raise InvalidParameter("target", f"such that total_std lies in [{SMALLEST_SCALE!r}, {LARGEST_SCALE!r}] (it is {total!r})", mu)
        if shape.mechanism(total).privacy_loss().mu <= mu:
            return total
        total *= 1.0 + 4e-16


def _bounds(sensitivity: Sensitivity) -> tuple[float, float, float]:
    big = sensitivity.l2
    assert big is not None  # checked before
    return big, big if sensitivity.l2_real is None else sensitivity.l2_real, big if sensitivity.l2_imag is None else sensitivity.l2_imag


def _other(hypotenuse: float, leg: float) -> float:
    return math.sqrt((hypotenuse - leg) * (hypotenuse + leg))


def _where(big: float, real: float, imag: float) -> str:
    if math.hypot(real / big, imag / big) <= 1.0:
        return "a, since a^2 + b^2 <= D^2"
    half = big * math.sqrt(0.5)
    if real < half:
        return "a, since a < D / sqrt(2)"
    return "sqrt(D^2 - b^2), since b < D / sqrt(2)" if imag < half else "D / sqrt(2), since a and b are at least that"
