r"""The inner loops over a mixture pair's quadrature nodes: in C if the installation could compile them (``_nodes.c``), otherwise in NumPy.

Both do the same operations with the same bounds on rounding (proofs/contour.md); their results differ in the last digits, because NumPy's
elementary functions and sums aren't the C library's.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, Final, NamedTuple, final

import numpy as np

from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.densities.compiled import compiled
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.densities.nodes import (
    ELEMENTARY,
    Floats,
    Nodes,
    TransformUnavailable,
    log_mixture,
    log_mixture_error,
    log_mixture_real,
)

LOOPS: Final = (
    *("line_grid", "log_ratio", "log_ratio_at", "log_ratio_error"),
    *("valley", "cumulants", "slopes", "log_moment_upper", "log_decay", "line_nodes"),
)
COMPILED: Any = compiled("zetadp.accountants.densities._nodes", LOOPS)

LARGEST: Final = 600.0
"""Exponents beyond this are taken for infinite."""
DOMINATED: Final = "the moment function is dominated by outcomes that never happen"


@final
class Ratio:
    """A mixture over the standard normal density, A(x) = sum_j w_j e^{a_j x - a_j^2 / 2}, ready for the loops."""

    def __init__(self, mixture: Mixture) -> None:
        self.mixture, self.shifts, self.span = mixture, mixture.shifts, mixture.span

    @cached_property
    def packed(self) -> Floats:
        """Its numbers as the compiled loops take them."""
        mixture = self.mixture
        base = min(range(len(mixture.shifts)), key=lambda j: abs(mixture.shifts[j]))
        origin = mixture.shifts[base]
        others = [(w, a) for j, (w, a) in enumerate(zip(mixture.weights, mixture.shifts, strict=True)) if j != base]
        weights = [w for w, _ in others]
        return np.array(
            [
                *(origin, 1.0 - math.fsum(weights)),
                *weights,
                *(math.log(w) for w in weights),
                *(a - origin for _, a in others),
                *(0.5 * (a * a - origin * origin) for _, a in others),
                *(a * a + origin * origin + 2.0 * abs(a - origin) for _, a in others),
            ]
        )

    def log(self, x: Floats) -> Floats:
        """log A at real x, of shape (n,)."""
        if COMPILED is None:
            return log_mixture_real(self.mixture, x)
        out = np.empty(x.size)
        COMPILED.log_ratio(self.packed, x, out)
        return out

    def log_at(self, x: float) -> float:
        """log A at one point."""
        return float(log_mixture_real(self.mixture, np.array([x]))[0]) if COMPILED is None else COMPILED.log_ratio_at(self.packed, x)

    def log_error(self, low: float, high: float) -> float:
        """Bound on the error of ``log`` between two points. (R2)"""
        if COMPILED is None:
            return log_mixture_error(self.mixture, np.array([low, high]))
        return COMPILED.log_ratio_error(self.packed, low, high)


@final
class Grid(NamedTuple):
    r"""Nodes on the real axis, the loss there and P's mass, all of shape (n,); and the greatest \|log mass\|."""

    x: Floats
    loss: Floats
    log_mass: Floats
    mass: Floats
    depth: float


@final
class Spaced(NamedTuple):
    """Evenly spaced nodes: the first, their distance, their number."""

    low: float
    step: float
    number: int

    @property
    def nodes(self) -> Floats:
        return np.asarray(self.low + self.step * np.arange(self.number), dtype=np.float64)


def line_grid(upper: Ratio, lower: Ratio, at: Spaced) -> Grid:
    """P's law on the real axis for the trapezoid rule."""
    factor = math.log(at.step / math.sqrt(2.0 * math.pi))
    if COMPILED is not None:
        x, loss, log_mass, mass = (np.empty(at.number) for _ in range(4))
        return Grid(
            x, loss, log_mass, mass, COMPILED.line_grid(upper.packed, lower.packed, at.low, at.step, factor, x, loss, log_mass, mass)
        )
    x = at.nodes
    log_upper, log_lower = upper.log(x), lower.log(x)
    log_mass = log_upper - 0.5 * x * x + factor
    return Grid(x, log_upper - log_lower, log_mass, np.exp(log_mass), float(np.max(np.abs(log_mass))))


def valley(upper: Ratio, lower: Ratio, at: Spaced, tilt: float) -> tuple[float, float]:
    """The x where f A^{tilt + 1} B^{-tilt} is least, f without its constant, and its logarithm there: for choices."""
    if COMPILED is not None:
        return COMPILED.valley(upper.packed, lower.packed, *at, tilt)
    x = at.nodes
    height = (tilt + 1.0) * upper.log(x) - tilt * lower.log(x) - 0.5 * x * x
    deepest = int(np.argmin(height))
    return float(x[deepest]), float(height[deepest])


def cumulants(grid: Grid, tilt: float) -> tuple[float, float, float]:
    """log M and its first two derivatives, or infinities beyond what a float can hold: for choices, without a bound."""
    if COMPILED is not None:
        return COMPILED.cumulants(grid.loss, grid.log_mass, grid.mass, tilt)
    exponent = tilt * grid.loss
    whole = grid.log_mass + exponent
    if float(np.max(whole, where=exponent >= 1.0, initial=-math.inf)) > LARGEST:
        return math.inf, math.inf, math.inf
    growth = grid.mass * np.expm1(np.minimum(exponent, 1.0))
    tilted = np.where(exponent < 1.0, growth + grid.mass, np.exp(np.minimum(whole, LARGEST)))
    minus_one = float(np.where(exponent < 1.0, growth, tilted - grid.mass).sum())
    mean = float(tilted @ grid.loss) / (1.0 + minus_one)
    square = float(tilted @ grid.loss**2) / (1.0 + minus_one)
    return math.log1p(minus_one), mean, max(square - mean * mean, 0.0)


def slopes(grid: Grid, tilt: float) -> tuple[float, float]:
    """Means of dL/dx and of its square under the tilted distribution: for choices, without a bound."""
    if COMPILED is not None:
        return COMPILED.slopes(grid.x, grid.loss, grid.log_mass, tilt)
    exponent = (grid.log_mass + tilt * grid.loss)[:-1]
    inner = np.exp(exponent - exponent.max())
    slope, mass = np.diff(grid.loss) / (grid.x[1] - grid.x[0]), float(inner.sum())
    return float(inner @ slope) / mass, float(inner @ slope**2) / mass


@final
class Ends(NamedTuple):
    """At both ends of the grid: log of P's density, the loss, and what the first times e^{tilt loss} counts for. (Q3)"""

    density: tuple[float, float]
    loss: tuple[float, float]
    factors: tuple[float, float]


def log_moment_upper(grid: Grid, tilts: Floats, ends: Ends, share: float) -> Floats:
    r"""Upper bounds on log M at each tilt: the trapezoid sum, the ends, and errors that are a share of M. (R1)"""
    if COMPILED is not None:
        out = np.empty(tilts.size)
        if not COMPILED.log_moment_upper(grid.loss, grid.log_mass, tilts, *ends.density, *ends.loss, *ends.factors, share, out):
            raise TransformUnavailable(DOMINATED)
        return out
    exponent = grid.log_mass + tilts[:, None] * grid.loss
    peak = exponent.max(axis=1)
    total = np.exp(exponent - peak[:, None]).sum(axis=1)
    density = np.array(ends.density) + tilts[:, None] * np.array(ends.loss) - peak[:, None]
    if float(density.max()) > LARGEST:
        raise TransformUnavailable(DOMINATED)
    return peak + np.log(total) + np.log1p(share + (np.exp(density) @ np.array(ends.factors)) / total) + ELEMENTARY * (1.0 + np.abs(peak))


def log_decay(upper: Ratio, lower: Ratio, at: Spaced, tilt: float, heights: Floats, shifts: list[float], log_rest: float) -> Floats:
    r"""The least, over the shifts y, of log int \|F(x + iy)\| e^{-u (arg A - arg B)} dx, bounded from above at each height u; see (D2).

    Args:
      heights: shape (m,).
      shifts: one or more for each height in turn, first one for every height, then another; each within the strip.
      log_rest: log of the errors that don't depend on the height.
    """
    factor = math.log(at.step / math.sqrt(2.0 * math.pi))
    if COMPILED is not None:
        out = np.empty(heights.size)
        COMPILED.log_decay(upper.packed, lower.packed, *at, tilt, factor, heights, np.array(shifts), log_rest, out)
        return out
    x, u, y = at.nodes, np.resize(heights, (len(shifts), 1)), np.reshape(shifts, (-1, 1))
    above, below = log_mixture(upper.mixture, x, y), log_mixture(lower.mixture, x, y)
    exponent = 0.5 * (y * y - x * x) + (tilt + 1.0) * above.size - tilt * below.size - u * (above.angle - below.angle) + factor
    peak = exponent.max(axis=1)
    terms = np.exp(exponent - peak[:, None])
    total = terms.sum(axis=1)
    depth = (tilt + 1.0) * above.error + tilt * below.error + u * (above.error + below.error) + ELEMENTARY * (1.0 + x * x)
    rounding = (terms * np.expm1(np.minimum(depth, 300.0))).sum(axis=1) + UNIT * x.size * total
    bounds = np.logaddexp(peak + np.log(total + rounding), log_rest) + ELEMENTARY * (1.0 + np.abs(peak))
    return bounds.reshape(-1, heights.size).min(axis=0)


def line_nodes(upper: Ratio, lower: Ratio, at: Spaced, y: float, tilt: float, least: float) -> Nodes:
    r"""Nodes on Im x = y; those whose whole weight is at most ``least`` are left out, and ``quadrature`` is what they add up to. (Q3)"""
    factor = math.log(at.step / math.sqrt(2.0 * math.pi))
    if COMPILED is not None:
        log_weight, loss = np.empty(at.number, complex), np.empty(at.number, complex)
        weight_error, loss_error = np.empty(at.number), np.empty(at.number)
        kept, dropped = COMPILED.line_nodes(
            upper.packed, lower.packed, at.low, at.step, y, tilt, factor, least, log_weight, loss, weight_error, loss_error
        )
        return Nodes(log_weight[:kept], loss[:kept], weight_error[:kept], loss_error[:kept], dropped)
    x = at.nodes
    above, below = log_mixture(upper.mixture, x, y), log_mixture(lower.mixture, x, y)
    loss = (above.size - below.size) + 1j * np.maximum(above.angle - below.angle, 0.0)
    log_weight = 0.5 * (y * y - x * x) + above.size + factor + 1j * (above.angle - y * x)
    # A term is largest at u = 0.
    sizes = np.exp(log_weight.real) + np.exp(log_weight.real + tilt * loss.real)
    kept = sizes > least
    weight_error = ELEMENTARY * (1.0 + x * x + y * (1.0 + np.abs(x))) + above.error
    return Nodes(log_weight[kept], loss[kept], weight_error[kept], (above.error + below.error)[kept], float(sizes[~kept].sum()))
