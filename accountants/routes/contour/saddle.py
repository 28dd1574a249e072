"""Where a contour crosses the real axis."""

from __future__ import annotations

import math
from typing import NamedTuple, final


@final
class Saddle(NamedTuple):
    """The real minimum of log M(s) - s epsilon - log s (s + 1): its tilt, epsilon, curvature, and log M there."""

    tilt: float
    epsilon: float
    curvature: float
    log_moment: float

    @property
    def log_delta(self) -> float:
        """The saddle point approximation."""
        kernel = math.log(self.tilt) + math.log1p(self.tilt)
        return self.log_moment - self.tilt * self.epsilon - kernel - 0.5 * math.log(2.0 * math.pi * self.curvature)
