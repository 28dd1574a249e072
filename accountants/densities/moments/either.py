r"""The moment function of a release that shows one of two pairs, and says which: a mixture of theirs. proofs/contour.md (M)."""

from __future__ import annotations

import math
from typing import final

import numpy as np

from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.densities.nodes import ELEMENTARY, LineValues
from zetadp.accountants.densities.transforms import Floats, Transform


@final
class Either(Transform):
    """(1 - share) M + share M'.

    Args:
      often: M.
      rarely: M', as often repeated.
      share: in (0, 1).
    """

    def __init__(self, often: Transform, rarely: Transform, share: float) -> None:
        assert often.count == rarely.count
        self._often, self._rarely, self.count = often, rarely, often.count
        self._log_often, self._log_rarely, self._share = math.log1p(-share), math.log(share), share
        self.scale = max(often.scale, rarely.scale)
        self.largest_loss = max(often.largest_loss, rarely.largest_loss)

    @property
    def log_left_out(self) -> float:
        left = float(np.logaddexp(self._log_often + self._often.log_left_out, self._log_rarely + self._rarely.log_left_out))
        return left if left == -math.inf else min(left + ELEMENTARY * (1.0 + abs(left)), 0.0)

    @property
    def ends(self) -> tuple[float, ...]:
        return (*self._often.ends, *self._rarely.ends)

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        (a, first, second), (b, other_first, other_second) = self._often.cumulants(tilt), self._rarely.cumulants(tilt)
        if not (math.isfinite(a) and math.isfinite(b)):
            return math.inf, math.inf, math.inf
        peak = max(self._log_often + a, self._log_rarely + b)
        shares = math.exp(self._log_often + a - peak), math.exp(self._log_rarely + b - peak)
        q = shares[1] / (shares[0] + shares[1])
        # Near M = 1 the logarithm comes from M - 1.
        rise = math.expm1(a) + self._share * (math.expm1(b) - math.expm1(a)) if max(a, b) < 1.0 else math.inf
        value = math.log1p(rise) if rise < math.inf else peak + math.log(shares[0] + shares[1])
        mean = first + q * (other_first - first)
        return value, mean, (1.0 - q) * second + q * other_second + q * (1.0 - q) * (other_first - first) ** 2

    def look_ahead(self, tilt: float) -> None:
        self._often.look_ahead(tilt)
        self._rarely.look_ahead(tilt)

    def settle(self, tilt: float, reach: float) -> None:
        self._often.settle(tilt, reach)
        self._rarely.settle(tilt, reach)

    def log_moment_upper(self, tilts: Floats) -> Floats:
        return self._mixed(self._often.log_moment_upper(tilts), self._rarely.log_moment_upper(tilts))

    def decay_rate(self, tilt: float) -> float:
        return self._often.decay_rate(tilt)

    def log_decay(self, tilt: float, heights: Floats, shifts: int = 2) -> Floats:
        return self._mixed(self._often.log_decay(tilt, heights, shifts), self._rarely.log_decay(tilt, heights, shifts))

    def line(self, tilt: float, step: float, number: int, tolerance: float) -> LineValues:
        often, rarely = self._often.line(tilt, step, number, tolerance), self._rarely.line(tilt, step, number, tolerance)
        parts = (1.0 - self._share) * often.minus_one, self._share * rarely.minus_one
        error = (1.0 - self._share) * often.error + self._share * rarely.error
        return LineValues(parts[0] + parts[1], 1.01 * error + 4.0 * UNIT * (np.abs(parts[0]) + np.abs(parts[1])))

    def _mixed(self, often: Floats, rarely: Floats) -> Floats:
        """log((1 - share) e^often + share e^rarely), rounded up."""
        smaller = np.where(rarely > often, 1.0 - self._share, self._share)
        larger = np.where(rarely > often, self._share, 1.0 - self._share)
        ratio = np.exp(-np.abs(often - rarely))
        # Near the larger one its logarithm is that of 1 minus little: logarithms near 0 are multiplied by the count later.
        fall = -np.expm1(-np.abs(often - rarely)) * smaller
        rest = np.where(fall < 0.5, np.log1p(-np.minimum(fall, 0.5)), np.log(larger + smaller * ratio))
        rounding = ELEMENTARY * (np.abs(often) + np.abs(rarely) + 2.0 * fall)
        return np.asarray(np.maximum(often, rarely) + rest + rounding, dtype=np.float64)
