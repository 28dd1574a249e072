r"""Truths of 50 digits, by inversion of the moment function in ball arithmetic; it shares no code and no contour with ``zetadp``.

With J(p) = int f A^p B^(1-p), f the standard normal density and A, B the density ratios of both neighbours to it, T releases have

    delta(eps) = 1/(2 pi i) int_{Re s = theta} J(1 + s)^T e^{-s eps} / (s (s + 1)) ds,    theta > 0,

and the other direction of neighbours J(-s) in the place of J(1 + s). The line is bent into a branch of a hyperbola through the saddle
point, on which the trapezoid rule converges geometrically; so does the one for J, on a line above the real axis on which |e^{iuL}| <= 1.

Every rounding is counted, by Arb's balls (python-flint). What the trapezoid rules leave out is measured, not proved: each number is
computed twice, with other saddle, bend, steps and line, and counts only if both agree to ``DIGITS``. Sparse losses make the
integrand oscillate up to great heights; the hyperbola's points lie closer to each other near the saddle and further apart with
height, and its branches lean to where e^{-s eps} falls.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from flint import acb, arb, ctx, fmpq
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DIGITS = 50
PRECISION = 400
"""Bits."""

MOST_NODES = 100_000
MOST_HALVINGS = 10
LARGEST_RISE = 8.0
"""Of the integrand's logarithm from point to point: what leans too far grows without end."""

MOST_TERMS = 6_000_000
"""Exponentials of one contour: a quarter of a minute."""


class Unsettled(Exception):
    """Two contours don't agree to ``DIGITS``, or would need more points than there is time for."""


class _Beyond(Exception):
    """The contour leaves the tilts that the nodes of J are laid for."""


@dataclass(frozen=True)
class Law:
    """``count`` releases of sum of w f(x - a) over (w, a) in ``above`` against the same of ``below``, exactly; f the normal density."""

    above: tuple[tuple[fmpq, fmpq], ...]
    below: tuple[tuple[fmpq, fmpq], ...]
    count: int

    @property
    def span(self) -> float:
        """Between the outermost shifts."""
        shifts = [float_of(shift) for _, shift in (*self.above, *self.below)]
        return max(shifts) - min(shifts)


def float_of(value: fmpq) -> float:
    """Nearest, roughly."""
    return float(arb(value).mid())


def exact(value: float) -> fmpq:
    """The float as a fraction."""
    return fmpq(*value.as_integer_ratio())


def poisson(q: fmpq, std: float, count: int, group: int = 1, far: int = 1) -> Law:
    """Poisson-sampled Gaussian releases under add_remove, in groups; ``far`` 2 for samples of a fixed size (one unit)."""
    mu = fmpq(far) / exact(std)
    above = tuple((math.comb(group, j) * q**j * (1 - q) ** (group - j), j * mu) for j in range(group + 1))
    return Law(tuple(part for part in above if part[0] != 0), ((fmpq(1), fmpq(0)),), count)


def replaced(probability: float, std: float, count: int) -> Law:
    """Poisson-sampled Gaussian releases under replace_one; std in units of what one unit contributes."""
    q, mu = exact(probability), 1 / exact(std)
    above = ((1 - q, fmpq(0)), (q, mu)) if q != 1 else ((fmpq(1), mu),)
    return Law(above, tuple((weight, -shift) for weight, shift in above), count)


@dataclass(frozen=True)
class _Shape:
    """A contour: through theta, points kappa apart near it, leaning by ``lean`` radians; J on the line Im x = ``line`` * pi / span."""

    theta: float
    kappa: float
    lean: float
    line: float
    step: float


class Direction:
    """One direction of neighbours. ``removed`` is H(Q || P)."""

    def __init__(self, law: Law, *, removed: bool) -> None:
        self.law, self.removed = law, removed

    def delta(self, epsilon: arb, digits: int = DIGITS) -> arb:
        """delta at epsilon. Raises Unsettled."""
        ctx.prec = PRECISION
        return self._settled(epsilon, digits, None)[1]

    def epsilon(self, delta: arb, near: float) -> arb:
        """The root, from a first guess. Raises Unsettled."""
        ctx.prec = PRECISION
        return self._settled(arb(max(near, 0.0)), DIGITS, delta)[0]

    def _settled(self, epsilon: arb, digits: int, target: arb | None) -> tuple[arb, arb]:
        """(epsilon, delta there), the one that has delta = target if there is one: a root of the first contour, checked by the second."""
        shape = self._shape(float(epsilon.mid()))
        reason = Unsettled("no contour")
        for lean in self._leans():
            first = _Shape(shape.theta, shape.kappa, lean, 0.5, shape.step)
            other = _Shape(0.93 * shape.theta, 0.9 * shape.kappa, 0.8 * lean, 0.44, 0.9 * shape.step)
            try:
                contour = _Contour(self, first, epsilon, digits)
                root = epsilon if target is None else contour.root(epsilon, target)
                one, two = contour.delta(root)[0], _Contour(self, other, root, digits).delta(root)[0]
            except Unsettled as refused:
                reason = refused
                continue
            if bool(abs(one - two) < arb(10) ** -digits * abs(one)):
                return root, one
            reason = Unsettled(f"two contours differ by {float((abs(one - two) / abs(one)).mid()):.1e}")
        raise reason

    def _leans(self) -> tuple[float, ...]:
        return (0.25, 0.1, 0.0) if len(self.law.below) == 1 else (0.0,)

    def log_moment(self, theta: float) -> float:
        """T log J at a real s, in floats: to find the saddle."""
        p = -theta if self.removed else 1.0 + theta
        span = self.law.span
        low, high = -16.0 + min(0.0, p, 1.0 - p) * span, 16.0 + max(0.0, p, 1.0 - p) * span
        x = np.linspace(low, high, max(1000, min(int((high - low) * 10), 1_000_000)))
        above, below = (_log_mixture(side, x) for side in (self.law.above, self.law.below))
        exponent = -0.5 * x**2 + below + p * (above - below)
        return self.law.count * float(scipy.special.logsumexp(exponent) + math.log((x[1] - x[0]) / math.sqrt(2.0 * math.pi)))

    def _shape(self, epsilon: float) -> _Shape:
        most = 1e3 / max(self.law.span, 1e-3)

        def height(log_theta: float) -> float:
            theta = math.exp(log_theta)
            return self.log_moment(theta) - theta * epsilon - log_theta - math.log1p(theta)

        found = scipy.optimize.minimize_scalar(height, bounds=(math.log(1e-6), math.log(most)), method="bounded", options={"xatol": 1e-3})
        theta = math.exp(float(found.x))
        return _Shape(theta, 0.9 * theta, 0.0, 0.5, 0.2)


def _log_mixture(side: tuple[tuple[fmpq, fmpq], ...], x: Any) -> Any:
    """log sum of w e^{a x - a^2/2}, for an array of real or complex x."""
    exponents = np.array([float(arb(w).log().mid()) + float_of(a) * x - 0.5 * float_of(a) ** 2 for w, a in side])
    top = exponents.real.max(axis=0)
    return top + np.log(np.exp(exponents - top).sum(axis=0))


class _Contour:
    """Points s of one hyperbola with J(1 + s)^T s'(v) / (i s (s + 1)), so many that delta near epsilon is known to so many digits."""

    def __init__(self, direction: Direction, shape: _Shape, epsilon: arb, digits: int) -> None:
        self._direction, self._shape = direction, shape
        self._nats = (digits + 16) * math.log(10.0)
        self._spent = 0
        side = shape.kappa * math.sin(shape.lean)
        for self._reach in (0.0,) if side == 0.0 else (4.0 * side, 16.0 * side, 64.0 * side, 256.0 * side):
            try:
                self._fill(epsilon, digits)
            except _Beyond:
                continue
            return
        raise Unsettled("the contour leans too far")

    def _fill(self, epsilon: arb, digits: int) -> None:
        self._bases: list[acb] = []
        self._losses: list[acb] = []
        self._points: list[tuple[acb, acb]] = []
        self._lay()
        self._step = arb(self._shape.step)
        self._extend(0, 1, epsilon)
        least, before = arb(10) ** -(digits + 3), self.delta(epsilon)[0]
        for _ in range(MOST_HALVINGS):
            self._step /= 2
            self._extend(1, 2, epsilon)
            after = self.delta(epsilon)[0]
            if bool(abs(after - before) < least * abs(after)):
                return
            before = after
        raise Unsettled("the trapezoid rule doesn't settle")

    def delta(self, epsilon: arb) -> tuple[arb, arb]:
        """(delta, its derivative by epsilon)."""
        total, slope = arb(0), arb(0)
        for s, value in self._points:
            here = value * (-s * epsilon).exp()
            total += here.real
            slope -= (here * s).real
        return total * self._step / arb.pi(), slope * self._step / arb.pi()

    def root(self, epsilon: arb, target: arb) -> arb:
        """Where delta is the target: Newton for log delta, which is nearly straight."""
        for _ in range(60):
            value, slope = self.delta(epsilon)
            if not value > 0:
                raise Unsettled("delta isn't positive")
            move = ((value / target).log() * value / slope).mid()
            epsilon = (epsilon - move).mid()
            if abs(float(move)) <= 1e-54 * max(abs(float(epsilon)), 1e-200):
                return epsilon
        raise Unsettled("Newton doesn't end")

    def _lay(self) -> None:
        """Nodes of J: weights f(x) B(x) and losses log(A/B) at low + kh + iy, those that matter at some tilt of the contour."""
        law, shape = self._direction.law, self._shape
        span = law.span
        first = -shape.theta if self._direction.removed else 1.0 + shape.theta
        tilts = np.linspace(first, first + self._reach, 5)
        y = shape.line * min(math.pi / span, 10.0)
        nats = self._nats + math.log(law.count) + 0.5 * y**2
        reach = math.sqrt(2.0 * nats)
        low = -reach + min(0.0, *tilts, *(1.0 - tilts)) * span
        high = reach + max(0.0, *tilts, *(1.0 - tilts)) * span
        step = self._quadrature_step(np.linspace(low, high, 2000), tilts, y, nats)
        x = np.arange(low, high, step)
        if len(x) > MOST_NODES:
            raise Unsettled(f"{len(x)} nodes")
        above, below = (_log_mixture(side, x) for side in (law.above, law.below))
        kept = np.zeros(len(x), dtype=bool)
        for p in tilts:
            size = below - 0.5 * x**2 + p * (above - below)
            kept |= size > np.max(size) - nats
        above_parts, below_parts = ([(arb(w), arb(a)) for w, a in side] for side in (law.above, law.below))
        for k in np.nonzero(kept)[0]:
            z = acb(low, y) + arb(int(k)) * arb(step)
            one = _mixture(below_parts, z)
            self._bases.append(step * (-z * z / 2).exp() * one / (2 * arb.pi()).sqrt())
            self._losses.append((_mixture(above_parts, z) / one).log())

    def _quadrature_step(self, x: Floats, tilts: Floats, y: float, nats: float) -> float:
        """The largest step with which the trapezoid rule for J errs by e^-nats: e^(-2 pi d / h) times the growth at a distance d."""
        law, best = self._direction.law, 0.0
        real = [_log_mixture(side, x) for side in (law.above, law.below)]
        for d in np.linspace(0.2, 0.97, 12) * min(y, math.pi / law.span - y):
            growth = 0.0
            for z in (x + 1j * (y + d), x + 1j * (y - d)):
                above, below = (_log_mixture(side, z).real for side in (law.above, law.below))
                for p in tilts:
                    there = -0.5 * (z * z).real + below + p * (above - below)
                    here = -0.5 * x**2 + real[1] + p * (real[0] - real[1])
                    growth = max(growth, float(scipy.special.logsumexp(there) - scipy.special.logsumexp(here)))
            best = max(best, 2.0 * math.pi * d / (nats + growth))
        return best

    def _extend(self, offset: int, stride: int, epsilon: arb) -> None:
        """Adds the points v = k step, k = offset, offset + stride, ..., up to where none matters any more; that at v = 0 counts half."""
        largest, small, k = -math.inf, 0, offset
        while small < 2:
            s, value = self._point(self._step * k)
            self._points.append((s, value / 2 if k == 0 else value))
            self._spent += len(self._bases)
            if self._spent > MOST_TERMS:
                raise Unsettled("the integrand doesn't decay")
            size = abs(value * (-s * epsilon).exp())
            log_size = float(size.log().mid()) if size > 0 else -math.inf
            if log_size > largest + LARGEST_RISE and k > offset:
                raise Unsettled("the integrand grows")
            largest = max(largest, log_size)
            small = small + 1 if log_size < largest - self._nats else 0
            k += stride

    def _point(self, v: arb) -> tuple[acb, acb]:
        (sinh, cosh), (sin, cos) = v.sinh_cosh(), arb(self._shape.lean).sin_cos()
        kappa, removed = arb(self._shape.kappa), self._direction.removed
        sign = -1 if removed else 1
        s = acb(self._shape.theta + sign * kappa * sin * (cosh - 1), kappa * cos * sinh)
        tangent = acb(kappa * cos * cosh, -sign * kappa * sin * sinh)
        if abs(float(s.real.mid()) - self._shape.theta) > self._reach + 1e-9 * self._shape.theta:
            raise _Beyond
        p = -s.conjugate() if removed else s + 1
        moment = acb(0)
        for base, loss in zip(self._bases, self._losses, strict=True):
            moment += base * (p * loss).exp()
        if removed:
            moment = moment.conjugate()
        return s, moment**self._direction.law.count / (s * (s + 1)) * tangent


def _mixture(side: list[tuple[arb, arb]], x: acb) -> acb:
    total = acb(0)
    for weight, shift in side:
        total += weight * (shift * x - shift * shift / 2).exp()
    return total
