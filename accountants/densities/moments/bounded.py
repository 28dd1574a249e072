r"""Moment functions in closed form, of bounded losses: randomized response, and whatever has a bounded range."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import final

import numpy as np
from numpy.typing import NDArray

from zetadp.accountants.densities.nodes import ELEMENTARY, LineValues, expm1_complex
from zetadp.accountants.densities.transforms import LARGEST_SHIFT, Transform, TransformUnavailable

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

LARGEST_EXPONENT = 300.0
"""Beyond it a single release's moment function is more than a float holds."""


def check_exponent(exponent: float) -> None:
    """Raises TransformUnavailable where e^exponent is more than a moment function may be."""
    if exponent > LARGEST_EXPONENT:
        raise TransformUnavailable("a single release's moment function exceeds what a float can hold")


class ClosedForm(Transform):
    """A moment function in closed form, of losses within -e and e."""

    def __init__(self, largest: float, count: int) -> None:
        self.count = count
        self.scale = self.largest_loss = self._e = largest

    @final
    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        h = 1e-3 * tilt
        if (tilt + h) * self._e > LARGEST_EXPONENT:
            return math.inf, math.inf, math.inf
        points = np.array([tilt - h, tilt, tilt + h], dtype=np.complex128)
        low, middle, high = (math.log1p(value) for value in self._minus_one(points).real.tolist())
        return middle, (high - low) / (2.0 * h), max((high - 2.0 * middle + low) / h**2, 0.0)

    @final
    def log_moment_upper(self, tilts: Floats) -> Floats:
        s = tilts.astype(np.complex128)
        return np.log1p(self._minus_one(s).real + self._error(s)) + ELEMENTARY

    @final
    def line(self, tilt: float, step: float, number: int, tolerance: float) -> LineValues:
        del tolerance  # a closed form: there is no quadrature
        s = np.asarray(tilt + 1j * step * np.arange(number), dtype=np.complex128)
        return LineValues(self._minus_one(s), self._error(s))

    @final
    def _minus_one(self, s: Complexes) -> Complexes:
        check_exponent(float(s.real.max()) * self._e)
        return self._closed(s)

    @abstractmethod
    def _closed(self, s: Complexes) -> Complexes:
        """M - 1."""

    @abstractmethod
    def _error(self, s: Complexes) -> Floats:
        """Bound on its error."""


@final
class WholeResponse(ClosedForm):
    r"""M(s) = (e^{se} + e^{-(s+1)e}) / (1 + e^{-e}), so that M - 1 = 2 sinh((s + 1) e / 2) sinh(s e / 2) / cosh(e / 2). Never decays."""

    def __init__(self, largest: float, count: int) -> None:
        if not largest <= LARGEST_SHIFT:
            raise TransformUnavailable(f"its losses reach {largest:.3g}: expected at most {LARGEST_SHIFT:g}")
        super().__init__(largest, count)

    def log_decay(self, tilt: float, heights: Floats, shifts: int = 2) -> Floats:
        del shifts  # a closed form
        return np.full(heights.shape, float(self.log_moment_upper(np.array([tilt]))[0]))  # |M(t + iu)| <= M(t) (D1)

    def _closed(self, s: Complexes) -> Complexes:
        # Divided before it is multiplied: the product alone may be beyond floats.
        ahead: Complexes = np.asarray(np.sinh((0.5 * self._e) * (s + 1.0)), dtype=np.complex128)
        behind: Complexes = np.asarray(np.sinh((0.5 * self._e) * s), dtype=np.complex128)
        return (2.0 / math.cosh(0.5 * self._e)) * ahead * behind

    def _error(self, s: Complexes) -> Floats:
        # (R4): |sinh z| <= |z| cosh(Re z), and each argument's rounding counts as much again.
        h, t = 0.5 * self._e, s.real
        size = np.abs(s) * np.abs(s + 1.0) * h * h
        return np.asarray(16.0 * ELEMENTARY * size * (np.cosh(h * (t + 1.0)) / math.cosh(h)) * np.cosh(h * t), dtype=np.float64)


@final
class WholeRange(ClosedForm):
    r"""M(s) = sinh((s + 1/2) e) / ((2s + 1) sinh(e / 2)): decays like 1 / u."""

    def log_decay(self, tilt: float, heights: Floats, shifts: int = 2) -> Floats:
        del shifts  # a closed form
        # |sinh(x + iy)| <= cosh x, which falls behind |2s + 1| (D1).
        e, line = self._e, np.hypot(2.0 * tilt + 1.0, 2.0 * heights)
        far = tilt * e + math.log1p(math.exp(-(2.0 * tilt + 1.0) * e)) - math.log(-math.expm1(-e)) - np.log(line)
        near = float(self.log_moment_upper(np.array([tilt]))[0])
        return np.minimum(far + 4.0 * ELEMENTARY * (4.0 + tilt * e + np.abs(np.log(line))), near)

    def _closed(self, s: Complexes) -> Complexes:
        e, y = self._e, 2.0 * s + 1.0
        return np.exp(s * e) * expm1_complex(-y * e) / (y * math.expm1(-e)) - 1.0

    def _error(self, s: Complexes) -> Floats:
        # (R4): |e^z - 1| <= |z| for Re z <= 0, and |s| / |2s + 1| <= 1/2 for the rounding of s e.
        e = self._e
        return np.asarray(ELEMENTARY * (2.0 + 16.0 * np.exp(s.real * e) * e / -math.expm1(-e)), dtype=np.float64)
