r"""The loops over a contour's heights: in C if the installation could compile them (``_heights.c``), otherwise in NumPy.

Both do the same operations with the same bounds on rounding (proofs/contour.md); their results differ in the last digits, because NumPy's
elementary functions and sums aren't the C library's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final, final

import numpy as np

from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.densities import nodes
from zetadp.accountants.densities.compiled import compiled
from zetadp.accountants.densities.nodes import Complexes, Floats, LineValues, Nodes, TransformUnavailable, log1p_complex

LOOPS: Final = ("sum_on_line", "add_power", "integrand", "sums")
COMPILED: Any = compiled("zetadp.accountants.densities._heights", LOOPS)

MOST_TERMS = 1_200_000_000
"""Nodes times heights of one line: about half a second."""


def sum_on_line(on: Nodes, tilt: float, step: float, number: int) -> LineValues:
    """M - 1 at tilt + i k step for k = 0 ... number - 1. (R3)"""
    if COMPILED is None:
        return nodes.sum_on_line(on, tilt, step, number)
    minus_one, error = np.empty(number, np.complex128), np.empty(number)
    COMPILED.sum_on_line(on.log_weight, on.loss, on.weight_error, on.loss_error, on.quadrature, tilt, step, minus_one, error)
    return LineValues(minus_one, error)


@final
class Integrand:
    r"""M(s) / (s (s + 1)) at s = tilt + i k step, k = 0 ... number - 1, over its size at the tilt; the first value counts half.

    M is the product of the releases' own, each raised to its count, and of e^{s (s + 1) gaussian}.

    Attributes:
      number, height: of values, and the last one's height.
      log_size: its logarithm at the tilt.
      rounding: bound on the rounding of ``sums(0)``; for each unit of epsilon, ``phase_rounding`` is added.
    """

    def __init__(self, tilt: float, step: float, number: int, gaussian: float, powers: Iterable[tuple[int, LineValues]]) -> None:
        self._tilt, self._step = tilt, step
        self.number, self.height = number, step * (number - 1.0)
        self._asked = math.nan, (0.0, 0.0)
        self._compiled = COMPILED
        if self._compiled is None:
            self._by_numpy(number, gaussian, powers)
            return
        self._real, self._imaginary, error = np.zeros(number), np.zeros(number), np.zeros(number)
        for count, line in powers:
            self._compiled.add_power(line.minus_one, line.error, count, self._real, self._imaginary, error)
        found = self._compiled.integrand(tilt, step, gaussian, self._real, self._imaginary, error)
        self.log_size, self.rounding, self.phase_rounding = found

    def _by_numpy(self, number: int, gaussian: float, powers: Iterable[tuple[int, LineValues]]) -> None:
        heights = self._step * np.arange(number)
        s = self._tilt + 1j * heights
        exponent: Complexes = s * (s + 1.0) * gaussian - np.log(s) - np.log1p(s)
        size = np.abs(s)
        error = 16.0 * UNIT * (np.abs(exponent) + size * (size + 1.0) * gaussian + np.log1p(size) + np.abs(np.log(size)) + 8.0)
        for count, line in powers:
            log_moment = log1p_complex(line.minus_one)
            modulus = np.maximum(np.abs(1.0 + line.minus_one), nodes.TINY)
            # (R5): |(z + e)^T - z^T| <= |z|^T ((1 + e/|z|)^T - 1), and the logarithm's own rounding is multiplied by T as well.
            exponent = exponent + count * log_moment
            error = error + count * (np.log1p(line.error / modulus) + 18.0 * UNIT * np.abs(log_moment)) + 2.0 * UNIT * np.abs(exponent)
        self.log_size = float(exponent.real[0])
        values = np.exp(exponent - self.log_size)
        values[0] *= 0.5
        sizes = np.abs(values)
        # |value| (e^error - 1), even if the value has underflowed and the error is huge.
        turned = exponent.real - self.log_size + error
        far = np.where(turned <= 700.0, np.exp(np.minimum(turned, 700.0)), math.inf)
        moved = np.where(error < 1.0, sizes * np.expm1(np.minimum(error, 1.0)), far)
        self._values, self._heights = values, heights
        self.rounding = float(moved.sum()) + UNIT * (number + 64.0) * float(sizes.sum())
        # Rounding of u eps, which grows with epsilon.
        self.phase_rounding = 4.0 * UNIT * float(sizes @ size)
        if not self.rounding < math.inf:
            raise TransformUnavailable("its rounding exceeds what a float can hold")

    def sums(self, epsilon: float) -> tuple[float, float]:
        """Real parts of the sum of the values times e^{-i epsilon u}, u the height, and of that of s times them."""
        if epsilon == self._asked[0]:
            return self._asked[1]
        if self._compiled is not None:
            total, moment = self._compiled.sums(self._real, self._imaginary, self._step, epsilon)
        else:
            terms: Floats = self._values * np.exp(-1j * epsilon * self._heights)
            total, moment = float(terms.real.sum()), float(terms.imag @ self._heights)
        self._asked = epsilon, (total, self._tilt * total - moment)
        return self._asked[1]
