r"""Epsilon of Poisson-sampled Gaussian training to eleven and more digits, computed apart from this project's code.

``python -m tests.golden.truth 0 1 2`` adds or replaces those questions in random_points.json (seconds or minutes each). It is an inverse
Laplace transform, like the contour route, but written by itself, without bounds, in arithmetic of 64 bits instead of 53, with lines, steps
and reaches of its own choice. For P = (1-q) N(0, 1) + q N(mu, 1), Q = N(0, 1), mu = 1 / multiplier and r = dP/dQ,

    delta(eps) = 1/(2 pi i) int_{Re s = c} M(s)^T e^{-s eps} / (s (s+1)) ds,   M(s) = E_Q r^{s+1} (remove) or E_Q r^{-s} (add),

by the trapezoid rule in s on a line beside the saddle point, and in x on a line beside the real axis: above it for r^{s+1} and below it
for r^{-s}, where r^{i Im s} decays for Im s > 0. A value counts as settled when halving the step in s moves it by less than 1e-11,
relatively, the first time with half the step in x and a reach a thousand times longer as well; questions that don't settle are left out.
One step is done by the closed form to 40 digits instead.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import mpmath
import numpy as np

FILE = Path(__file__).with_name("random_points.json")
SETTLED = 1e-11
MOST_NODES = 400_000

Real, Complex = np.longdouble, np.clongdouble
PI = Real("3.14159265358979323846264338327950288")


class Unsettled(Exception):
    """This method doesn't reach its accuracy here."""


def _log1p(z):
    x, y = z.real, z.imag
    with np.errstate(divide="ignore"):
        return 0.5 * np.log1p(x * (2 + x) + y * y) + Complex(1j) * np.arctan2(y, 1 + x)


class Direction:
    """One direction of neighbours: P against Q (sign +1, remove) or Q against P (sign -1, add)."""

    def __init__(self, probability, multiplier, count, sign, level):
        self.q, self.mu, self.count, self.sign, self.level = Real(probability), 1 / Real(multiplier), count, sign, level
        distance = min(math.pi / (2 * float(self.mu)), 2.5)
        self.shift = sign * distance
        self.step = Real(2 * math.pi * distance / (96.0 if level else 48.0))

    @property
    def largest_loss(self):
        """The largest loss of all steps together."""
        return math.inf if self.sign > 0 or self.q == 1 else float(-self.count * np.log1p(-self.q))

    def nodes(self, c, shift):
        """Losses log r and weights on a line of x that holds everything down to e^-80 of the largest term."""
        q, mu, top = float(self.q), float(self.mu), 60.0
        while True:
            x = np.linspace(-18.0, top, 8001)
            loss = np.logaddexp(math.log1p(-q) if q < 1 else -math.inf, math.log(q) + mu * x - mu * mu / 2)
            size = -x * x / 2 + np.maximum(self._power(c) * loss, 0.0)
            if size[-1] < size.max() - 100.0:
                break
            top *= 2.0
        kept = x[size > size.max() - 100.0]
        line = Real(kept[0]) + self.step * np.arange(int((kept[-1] - kept[0]) / float(self.step)) + 2, dtype=Real)
        line = line + Complex(1j) * Real(shift)
        z = self.mu * line - self.mu * self.mu / 2
        big = z.real > 100
        loss = np.where(big, z + np.log(self.q), _log1p(self.q * np.expm1(np.where(big, 0, z))))
        return loss, -line * line / 2 + np.log(self.step / np.sqrt(2 * PI))

    def _power(self, s):
        return s + 1 if self.sign > 0 else -s

    def log_moment(self, s, losses, log_weights):
        """count * log M at an array of s."""
        result, weights = np.empty(len(s), dtype=Complex), np.exp(log_weights)
        rows = max(1, 1_000_000 // len(losses))
        for i in range(0, len(s), rows):
            exponents = np.multiply.outer(self._power(s[i : i + rows]), losses)
            small = exponents.real.max() < 50
            terms = np.expm1(exponents) * weights if small else np.exp(exponents + log_weights) - weights
            result[i : i + rows] = _log1p(terms.sum(axis=1))
        # Part by part: M may vanish far out, and infinity times a complex number is no number.
        result.real *= self.count
        result.imag *= self.count
        return result

    def cumulants(self, c):
        """count * log M and its two first derivatives at a real c."""
        losses, log_weights = (part.real for part in self.nodes(c, 0.0))
        exponents = self._power(Real(c)) * losses
        with np.errstate(over="ignore", invalid="ignore"):
            terms = np.exp(exponents + log_weights)
            moment = terms.sum()
            mean = (terms * losses).sum() / moment
            variance = (terms * (losses - mean) ** 2).sum() / moment
        excess = np.log1p((np.expm1(exponents) * np.exp(log_weights)).sum()) if exponents.max() < 50 else np.log(moment)
        return float(self.count * excess), float(self.sign * self.count * mean), float(self.count * variance)

    def saddle(self, epsilon):
        """The point c where M^count e^{-s eps} / (s (s+1)) is smallest, and the approximate log delta there."""

        def slope(c):
            return self.cumulants(c)[1] - epsilon - 1.0 / c - 1.0 / (1.0 + c)

        low = high = 1.0
        while slope(low) > 0.0:
            low /= 4.0
        while slope(high) < 0.0:
            high *= 4.0
        while high > low * 1.0001:
            middle = math.sqrt(low * high)
            low, high = (middle, high) if slope(middle) <= 0.0 else (low, middle)  # overflow counts as beyond
        value, _, variance = self.cumulants(low)
        variance += low**-2 + (1.0 + low) ** -2
        return low, value - low * epsilon - math.log(low * (1.0 + low)) - 0.5 * math.log(2.0 * math.pi * variance)

    def line(self, c, epsilon, log_delta):
        """Points s above c and the integrand there over the target, as far as it matters."""
        losses, log_weights = self.nodes(c, self.shift)
        # The rule adds delta(eps + k K) e^{c k K}, K = 2 pi / step: K lies beyond all losses that matter under the tilt, thrice.
        step = Real(2 * math.pi / max((60.0 - log_delta) / c, 3.0 * float(losses.real.max())) / 2**self.level)
        points, values, start, size = [], [], 0, 256
        while True:
            s = Real(c) + Complex(1j) * step * np.arange(start, start + size, dtype=Real)
            value = np.exp(self.log_moment(s, losses, log_weights) - s * Real(epsilon) - Real(log_delta)) / (s * (s + 1))
            points.append(s)
            values.append(value)
            if np.abs(value[-64:]).max() * s[-1].imag < np.abs(values[0][0]) * c * (1e-19 if self.level else 1e-16):
                break
            start, size = start + size, min(2 * size, 32768)
            if start > MOST_NODES:
                raise Unsettled
        s, value = np.concatenate(points), np.concatenate(values)
        value[0] /= 2
        return s, value * (step / PI)

    def log_ratio(self, epsilon, delta):
        """log(delta(e) / delta) as a function of e near epsilon, with its slope."""
        log_delta = math.log(delta)
        # A little to the left of the saddle, where one huge loss, possible but rare, weighs nothing.
        s, value = self.line(0.8 * self.saddle(epsilon)[0], epsilon, log_delta)
        value /= Real(delta) / np.exp(Real(log_delta))

        def at(root):
            terms = value * np.exp(-s * (root - Real(epsilon)))
            total = terms.sum().real
            if not total > 0:
                raise Unsettled
            return np.log(total), -(terms * s).sum().real / total

        return at

    def epsilon(self, delta, guess):
        """The epsilon of this direction, or 0 where delta(0) is below the target."""
        if self.log_ratio(0.0, delta)(Real(0))[0] <= 0:
            return Real(0)
        epsilon = guess
        for _ in range(30):
            at, root = self.log_ratio(epsilon, delta), Real(epsilon)
            for _ in range(50):
                value, slope = at(root)
                # Far from its own epsilon the line loses digits: there it is laid anew.
                change = value / slope
                root -= change
                if not 0.9 * epsilon < root < 1.1 * epsilon or abs(change) < 1e-17 * root:
                    break
            if abs(root - epsilon) < 1e-3 * root:
                return root
            epsilon = min(max(float(root), 0.25 * epsilon), 4.0 * epsilon)
        raise Unsettled

    def guess(self, delta):
        """Epsilon by the saddle point approximation."""
        low, high = 0.0, min(1e-3, 0.999 * self.largest_loss)
        while self.saddle(high)[1] > math.log(delta):
            if high >= 0.999 * self.largest_loss or high > 1e6:
                raise Unsettled
            low, high = high, min(4.0 * high, 0.999 * self.largest_loss)
        while high > low * 1.001 and high > 1e-9:
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.saddle(middle)[1] > math.log(delta) else (low, middle)
        return high


def contour_epsilon(probability, multiplier, count, delta):
    """The larger of both directions' epsilon. Raises Unsettled."""
    ends = []
    for sign in (1, -1):
        directions = [Direction(probability, multiplier, count, sign, level) for level in range(8)]
        before, after = Real(math.inf), directions[0].epsilon(delta, directions[0].guess(delta))
        for finer in directions[1:]:
            if after == 0 or abs(before - after) <= SETTLED * after:
                break
            before, after = after, finer.epsilon(delta, float(after))
        else:
            raise Unsettled
        ends.append(after)
    return max(ends)


def one_step_epsilon(probability, multiplier, delta):
    """The closed form for one step, to 40 digits; adding never loses more than removing (Zhu, Dong and Wang 2022) for one step."""
    with mpmath.workdps(40):
        q, mu, target = mpmath.mpf(probability), 1 / mpmath.mpf(multiplier), mpmath.mpf(delta)

        def excess(epsilon):
            edge = mpmath.log1p(mpmath.expm1(epsilon) / q) / mu + mu / 2
            return q * mpmath.ncdf(mu - edge) + (1 - q - mpmath.exp(epsilon)) * mpmath.ncdf(-edge) - target

        if excess(mpmath.mpf(0)) <= 0:
            return mpmath.mpf(0)
        high = mpmath.mpf(1)
        while excess(high) > 0:
            high *= 2
        return mpmath.findroot(excess, (mpmath.mpf(0), high), solver="illinois", tol=1e-70, maxsteps=500)


def truth(probability, multiplier, count, delta):
    """Epsilon as a string of 13 digits. Raises Unsettled."""
    if count == 1:
        return mpmath.nstr(one_step_epsilon(probability, multiplier, delta), 13)
    value = contour_epsilon(probability, multiplier, count, delta)
    return np.format_float_scientific(value, precision=12)


def main(indices):
    """Puts these of the random questions into the file, those that settle."""
    from benchmarks.random_points import questions

    asked = list(questions())
    rows = {row["index"]: row for row in json.loads(FILE.read_text())} if FILE.exists() else {}
    for index in indices:
        try:
            rows[index] = {"index": index, **asked[index]._asdict(), "epsilon": truth(*asked[index])}
        except Unsettled:
            continue
        sys.stdout.write(f"{rows[index]}\n")
        sys.stdout.flush()
        FILE.write_text(json.dumps([rows[key] for key in sorted(rows)], indent=1) + "\n")


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]])
