r"""Sums over complex quadrature nodes at many heights at once, with rounding bounds; (R2) and (R3) of proofs/contour.md."""

from __future__ import annotations

import math
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.mechanisms.errors import UnsupportedEvent

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

TINY = 1e-150
"""Replaces a modulus of 0 before its logarithm is taken."""

ELEMENTARY = 16.0 * UNIT
"""Relative error allowed for an elementary function (numpy states at most 4 ulp, which is 8 UNIT) with the operations around it."""


_FEW = 24
"""Up to this many heights each power is computed separately, in fewer, larger steps."""


class TransformUnavailable(UnsupportedEvent):
    """The contour route can't prove a bracket; the reason says why."""

    def __init__(self, reason: str) -> None:
        super().__init__("contour", reason)


@final
class LogMixture(NamedTuple):
    """log |A| and arg A of a mixture ratio A at x + iy, and a bound on the absolute error of each."""

    size: Floats
    angle: Floats
    error: Floats


@final
class Nodes(NamedTuple):
    r"""sum_j e^{log_weight_j + s loss_j} for M(s), s = t + iu with u >= 0; all arrays of shape (nodes,).

    Attributes:
      log_weight: complex.
      loss: complex, with imaginary part >= 0.
      weight_error: bound on the relative error of each weight.
      loss_error: bound on the absolute error of each loss.
      quadrature: bound on |sum - M(s)|, constants of M - 1 included, at any u >= 0.
    """

    log_weight: Complexes
    loss: Complexes
    weight_error: Floats
    loss_error: Floats
    quadrature: float


@final
class LineValues(NamedTuple):
    """M(t + i k step) - 1 for k = 0, 1, ..., and a bound on the absolute error of each; both of shape (number,)."""

    minus_one: Complexes
    error: Floats


def expm1_complex(z: Complexes) -> Complexes:
    """e^z - 1 without cancellation near 0: its error is at most ELEMENTARY |z| max(1, e^{Re z})."""
    grown = np.expm1(z.real)
    half = np.sin(0.5 * z.imag)
    return (grown - 2.0 * (grown + 1.0) * half * half) + 1j * ((grown + 1.0) * np.sin(z.imag))


def log1p_complex(z: Complexes) -> Complexes:
    """log(1 + z) with an error of at most ELEMENTARY |log(1 + z)|, even near 0, where numpy's function loses all digits.

    Where 1 + z is 0, the result is a large negative number.
    """
    modulus = np.maximum(np.hypot(1.0 + z.real, z.imag), TINY)
    return _log_modulus(z.real, z.imag, modulus) + 1j * np.arctan2(z.imag, 1.0 + z.real)


def _log_modulus(real: Floats, imaginary: Floats, modulus: Floats) -> Floats:
    """log |1 + z|: near 0 from z's parts; near -1, where the squares cancel, from the modulus, since 1 + real is exact there."""
    square = real * (2.0 + real) + imaginary * imaginary
    return np.where(square < -0.5, np.log(modulus), 0.5 * np.log1p(np.maximum(square, -0.75)))


@final
class _Copies(NamedTuple):
    """A mixture ratio A = e^{z_0} (1 + sum_j w_j (e^{d_j} - 1)) at real x: the parts shared by its values at every height.

    Each exponent is a difference that may cancel, at a node x that is itself rounded, by up to UNIT (2 |x| + 9): its error is at most
    6 UNIT times |exponent| + its square.
    """

    origin: float
    weights: list[float]
    distances: list[float]
    squares: list[float]
    exponents: list[Floats]
    top: Floats
    left: float


def _copies(mixture: Mixture, x: Floats) -> _Copies:
    base = min(range(len(mixture.shifts)), key=lambda j: abs(mixture.shifts[j]))
    origin = mixture.shifts[base]
    weights = [w for j, w in enumerate(mixture.weights) if j != base]
    shifts = [a for j, a in enumerate(mixture.shifts) if j != base]
    exponents = [(a - origin) * x - 0.5 * (a * a - origin * origin) for a in shifts]
    top = np.zeros_like(x)
    for w, exponent in zip(weights, exponents, strict=True):
        top = np.maximum(top, exponent + math.log(w))
    squares = [a * a + origin * origin + 2.0 * abs(a - origin) for a in shifts]
    return _Copies(origin, weights, [a - origin for a in shifts], squares, exponents, top, 1.0 - math.fsum(weights))


def log_mixture_real(mixture: Mixture, x: Floats) -> Floats:
    """log A(x) at real x: ``log_mixture`` at y = 0, at less cost and with the same error."""
    if mixture.shifts == (0.0,):
        return np.zeros_like(x)
    copies = _copies(mixture, x)
    total = copies.left * np.expm1(-copies.top)
    for w, exponent in zip(copies.weights, copies.exponents, strict=True):
        total = total + w * np.expm1(exponent - copies.top)
    value = copies.top + np.log1p(total)
    return value if copies.origin == 0.0 else value + (copies.origin * x - 0.5 * copies.origin * copies.origin)


def log_mixture_error(mixture: Mixture, ends: Floats) -> float:
    r"""Bound on the error of ``log_mixture_real`` between two points. (R2)

    With all shifts on one side of the base, log A and every exponent are monotone, so their largest sizes and the smallest e^{-top} A are
    at the ends; every part of the sum is at most 1 there.
    """
    if mixture.shifts == (0.0,):
        return 0.0
    copies = _copies(mixture, ends)
    parts = len(copies.weights)
    value = log_mixture_real(mixture, ends)
    least = float(np.min(np.exp(np.minimum(value - copies.top, 0.0))))
    size = float(np.max(np.abs(value)) + np.max(copies.top)) + abs(copies.origin) * float(np.max(np.abs(ends)) + abs(copies.origin))
    arguments = (float(np.max(np.abs(exponent))) + square for exponent, square in zip(copies.exponents, copies.squares, strict=True))
    argument = max(arguments, default=0.0)
    return ELEMENTARY * ((1.0 + parts) * (2.0 + parts) / least + 2.0 * size) + 6.0 * UNIT * parts * (argument + size) / least


def _moved(copies: _Copies, x: Floats, value: Floats, error: Floats) -> tuple[Floats, Floats]:
    """The value and error with the factor e^{z_0} restored."""
    origin = copies.origin
    if origin == 0.0:
        return value, error
    return value + (origin * x - 0.5 * origin * origin), error + 4.0 * UNIT * (np.abs(origin * x) + origin * origin)


def log_mixture(mixture: Mixture, x: Floats, y: float | Floats) -> LogMixture:
    r"""log of A(x + iy) = sum_j w_j e^{a_j (x + iy) - a_j^2 / 2}, for |y| times the mixture's span below pi.

    Args:
      mixture: the weight of the copy nearest 0 represents 1 minus the others.
      x: shape (n,).
      y: a number, or a column of shape (m, 1), in which case all results have shape (m, n).
    """
    if mixture.shifts == (0.0,):
        nothing = np.zeros(np.broadcast(x, y).shape)
        return LogMixture(nothing, nothing, nothing)
    copies = _copies(mixture, x)
    # Scaled by e^{-top} where a copy outgrows the base.
    still = copies.left * np.expm1(-copies.top)
    real: Floats = still
    imaginary, touched, argument = 0.0 * x, np.abs(still), 0.0 * x
    for w, distance, above, exponent in zip(copies.weights, copies.distances, copies.squares, copies.exponents, strict=True):
        grown, angle = w * np.expm1(exponent - copies.top), distance * y
        size = grown + w
        half = np.sin(0.5 * angle)
        real = real + (grown - size * (2.0 * half * half))
        imaginary = imaginary + size * np.sin(angle)
        touched = touched + (np.abs(grown) + size * np.abs(angle))
        argument = argument + size * (np.abs(exponent) + (copies.top + above))
    modulus = np.maximum(np.hypot(1.0 + real, imaginary), TINY)
    # (R2)
    log_size = copies.top + _log_modulus(real, imaginary, modulus)
    error = ELEMENTARY * (touched * (1.0 + touched) / modulus + np.abs(log_size) + copies.top) + 6.0 * UNIT * argument / modulus
    log_size, error = _moved(copies, x, log_size, error)
    return LogMixture(log_size, np.arctan2(imaginary, 1.0 + real) + copies.origin * y, error)


def sum_on_line(nodes: Nodes, tilt: float, step: float, number: int) -> LineValues:
    """M - 1 at tilt + i k step for k = 0 ... number - 1, by baby steps and giant steps: about 2 sqrt(number) powers per node."""
    loss, moved = nodes.loss, tilt * nodes.loss
    weight, tilted = np.exp(nodes.log_weight), np.exp(nodes.log_weight + moved)
    near = np.abs(moved) < 1.0
    still: Complexes = np.asarray(np.where(near, weight * expm1_complex(np.where(near, moved, 0.0)), tilted - weight), dtype=np.complex128)
    # Its imaginary part is a quadrature error and is part of the sums at every height.
    at_tilt = complex(math.fsum(still.real.tolist()), math.fsum(still.imag.tolist()))
    baby = 1 << max(1, math.ceil(0.5 * math.log2(max(number, 2))))
    giant = -(-number // baby)
    if number <= _FEW:
        rise = expm1_complex(1j * step * np.arange(number)[:, None] * loss) @ tilted
    else:
        small, stride = _powers(expm1_complex(1j * step * loss), baby)
        large, _ = _powers(stride, giant)
        weighted = tilted * large
        # e^{i(a + b)L} - 1 = (e^{iaL} - 1)(e^{ibL} - 1) + both: every part is as small as u L, so nothing is lost near M = 1.
        rise = weighted @ small.T + weighted.sum(axis=1)[:, None] + (small @ tilted)[None, :]
    error = _rounding(nodes, weight, tilted, tilt, step, number, baby * giant) + nodes.quadrature
    return LineValues(at_tilt + rise.ravel()[:number], error)


def _powers(rise: Complexes, number: int) -> tuple[Complexes, Complexes]:
    """z^k - 1 for k = 0 ... number - 1, shape (number, n), from rise = z - 1 of shape (n,); and z^m - 1, m the next power of two."""
    out = np.empty((number, rise.size), dtype=np.complex128)
    out[0] = 0.0
    done = 1
    while done < number:
        more = min(done, number - done)
        np.multiply(out[:more], 1.0 + rise, out=out[done : done + more])
        out[done : done + more] += rise
        rise = rise * (2.0 + rise)
        done *= 2
    return out, rise


def _rounding(nodes: Nodes, weight: Complexes, tilted: Complexes, tilt: float, step: float, number: int, padded: int) -> Floats:
    """(R3): bound on the rounding of ``sum_on_line`` at every height; each term counts |e^{iuL} - 1| <= min(2, u |L|).

    The moduli of the three parts of a sum over n nodes add up to at most twice that, or 8, and n complex products and additions, in any
    order, lose at most sqrt(8) n UNIT of them.
    """
    size, mass, length = np.abs(tilted), np.abs(weight), np.abs(nodes.loss)
    # A term's relative error comes from its weight and its exponent; its phase's from the loss, the first power and the doubling levels.
    relative = nodes.weight_error + tilt * (nodes.loss_error + 2.0 * UNIT * length) + 64.0 * UNIT
    phase = nodes.loss_error + UNIT * (24.0 + 6.0 * (math.log2(padded) + 2.0)) * length
    summed = 6.0 * UNIT * nodes.loss.size
    # At u = 0, where the sum is exact: |e^{tL} - 1| <= t |L| max(1, e^{t Re L}).
    still = float(np.sum((mass + size) * tilt * (relative * length + phase)))
    slope = float(np.sum(size * ((relative + summed) * length + phase)))
    ceiling, drift = 2.0 * float(np.sum(size * (relative + 2.0 * summed))), float(np.sum(size * phase))
    heights = step * np.arange(number)
    return 1.01 * (still + np.minimum(slope * heights, ceiling + drift * heights))
