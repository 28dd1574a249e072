r"""The contour route: numerical inversion of the moment function (``inversion.py``) as an accountant, with a proved bracket."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import final

from zetadp.accountants.accountant import Accountant
from zetadp.accountants.arithmetic import UNIT, within_floats
from zetadp.accountants.densities.moments.either import Either
from zetadp.accountants.densities.transforms import LARGEST_SHIFT, SMALLEST_SHIFT, Transform, TransformUnavailable
from zetadp.accountants.dominating import pair_of, unsupported_reason
from zetadp.accountants.grids.hockey_stick import reverse as reverse_order
from zetadp.accountants.leaf import Leaf
from zetadp.accountants.pairs import Pair, widened
from zetadp.accountants.profile import Bound, DeltaBound, PrivacyProfile, check_delta, check_epsilon
from zetadp.accountants.routes.contour import complement, jumps
from zetadp.accountants.routes.contour.ends import Ends, agreed, around
from zetadp.accountants.routes.contour.engine import direction
from zetadp.accountants.routes.contour.inversion import Contour, Direction, tolerance_for
from zetadp.accountants.routes.contour.saddle import Saddle
from zetadp.accountants.routes.rdp.rdp import leaf_steps
from zetadp.accountants.routes.single.coupled import is_surely_zero, log_total_variation
from zetadp.mechanisms.base import Step
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.numerics import logspace

ROUTE = "contour"

MOST_RELEASES = 10**13
"""Beyond it only rounding, multiplied by the number of releases, would be visible."""

LOWER_SLACK = 1e-10
"""Relative slack of every lower end for the rounding of the shifts, which are 1e-14 too large for the upper end."""

_SHARPNESS = 5e-7
"""A bracket narrower than this share of epsilon is good enough; otherwise a second contour goes through the better epsilon."""

_LEAST_WIDTH = 1e-9
"""Of an epsilon near 0 a relative width makes no sense."""

_SPARE_NATS = 22.0
_INTEGRAL_NATS = 0.1
_MOST_CONTOURS = 3
_FEW_ATOMS = 30
"""So few losses with atoms hardly decay."""
_KEPT_CONTOURS = 8


@final
class ContourProfile(PrivacyProfile):
    """The profile of a composition, by inversion of its moment function in both directions of neighbours."""

    def __init__(self, parts: Mapping[Leaf, int], steps: tuple[Step, ...] | None = None) -> None:
        self._pairs = [(widened(pair_of(leaf)), count) for leaf, count in parts.items()]
        self._parts, self._steps = parts, steps
        self._depth = 0.0
        self._directions: tuple[_Side, ...] = ()

    @property
    def route(self) -> str:
        return ROUTE

    def delta(self, epsilon: float) -> DeltaBound:
        check_epsilon(epsilon)
        with within_floats(ROUTE):
            low, high = self._log_delta(epsilon)
        return DeltaBound(log_lower=low, log_upper=high, route=ROUTE)

    def epsilon(self, delta: float) -> Bound:
        check_delta(delta)
        return self.epsilon_at_log_delta(math.log(delta))

    def epsilon_at_log_delta(self, log_delta: float) -> Bound:
        """``epsilon`` at a delta given by its logarithm, so that it can be as small as 1e-400."""
        if not -math.inf < log_delta < 0.0:
            raise InvalidParameter("log_delta", "finite and < 0", log_delta)
        # A NaN in one direction would vanish in the maximum over both.
        with within_floats(ROUTE):
            low, high = self._epsilon(log_delta)
        return Bound(lower=max(low * (1.0 - LOWER_SLACK), 0.0), upper=high, route=ROUTE)

    def _epsilon(self, log_delta: float) -> Ends:
        if is_surely_zero(self._parts, log_delta):
            return 0.0, 0.0
        first, *others = self._sides(log_delta)
        low, high = first.epsilon(log_delta)
        if high == 0.0:
            # At epsilon 0 both directions have one delta, the total variation.
            return 0.0, 0.0
        for side in others:
            side.start_from(first)
            if side.is_surely_below(low, log_delta):
                continue
            try:
                other_low, other_high = side.epsilon(log_delta)
            except TransformUnavailable:
                other_low, other_high = 0.0, side.epsilon_by_chernoff(log_delta)
            low, high = max(low, other_low), max(high, other_high)
        return low, high

    def epsilon_upper(self, delta: float) -> float:
        return self.epsilon(delta).upper

    def derivation(self) -> tuple[Step, ...]:
        steps = leaf_steps(self._parts) if self._steps is None else self._steps
        return (
            *steps,
            Step(symbol="M(s)", value="product of M_i(s)^count_i", formula="M_i(s) = E_P[e^(s L_i)]", source="proofs/contour.md"),
            Step(
                symbol="delta(eps)",
                value="1/(2 pi i) int M(s) e^(-s eps) / (s (s + 1)) ds along Re s = t > 0, the larger of both directions",
                formula="trapezoid rule; aliasing, cut-off, quadrature and rounding bounded",
                source="proofs/contour.md",
            ),
        )

    def _log_delta(self, epsilon: float) -> Ends:
        if epsilon == math.inf:
            return -math.inf, -math.inf
        depth = 2.0 * _SPARE_NATS
        while True:
            first, *others = self._sides(-depth)
            low, high = first.log_delta(epsilon)
            if high > -self._depth or depth > 1e6:
                break
            # A delta this small depends on outcomes that a smaller depth leaves out.
            depth *= 8.0
        for side in others if epsilon > 0.0 else ():
            side.start_from(first)
            if side.log_delta_by_chernoff(epsilon) <= low:
                continue
            try:
                other_low, other_high = side.log_delta(epsilon)
            except TransformUnavailable:
                other_low, other_high = -math.inf, min(side.log_delta_by_chernoff(epsilon), _total_variation(first))
            low, high = max(low, other_low), max(high, other_high)
        low = low - LOWER_SLACK * max(1.0, -low) if low > -math.inf else low
        return agreed("log delta", (low, high), (-math.inf, log_total_variation(self._parts)))

    def _sides(self, log_delta: float) -> tuple[_Side, ...]:
        """Both directions, or one if it is enough; valid for deltas down to this one."""
        if -log_delta > self._depth or not self._directions:
            self._depth = -log_delta + _SPARE_NATS
            both = (False,) if all(pair.symmetric for pair, _ in self._pairs) else (False, True)
            improbable = self._depth + math.log(sum(count for _, count in self._pairs))
            self._directions = tuple(
                _Side(_direction(self._pairs, improbable, reverse=reverse), _in_order(self._pairs, reverse=reverse)) for reverse in both
            )
        return self._directions


@final
class _Side:
    """One direction of neighbours, and its contours so far."""

    def __init__(self, direction: Direction, pairs: tuple[tuple[Pair, int], ...]) -> None:
        self._direction, self._pairs = direction, pairs
        self._contours: list[Contour] = []
        self._saddles: dict[tuple[str, float], Saddle] = {}

    def start_from(self, other: _Side) -> None:
        """Starts the search near the tilt of the other direction's last contour."""
        if other._contours:
            self._direction.start = other._contours[0].tilt

    def _saddle_for(self, log_delta: float) -> Saddle:
        return self._kept(("delta", log_delta), lambda: self._direction.saddle_for(log_delta))

    def _saddle_at(self, epsilon: float) -> Saddle:
        return self._kept(("epsilon", epsilon), lambda: self._direction.saddle_at(epsilon))

    def _kept(self, key: tuple[str, float], find: Callable[[], Saddle]) -> Saddle:
        if key not in self._saddles:
            self._saddles = {key: find()}
        return self._saddles[key]

    def log_delta_by_chernoff(self, epsilon: float) -> float:
        """An upper bound on log delta(epsilon) that costs almost nothing; 0 if even that isn't available."""
        if epsilon >= self._direction.largest_loss:
            return -math.inf
        try:
            tilt = self._saddle_at(epsilon).tilt
            size, moved = self._direction.chernoff(tilt), tilt * epsilon
        except TransformUnavailable:
            return 0.0
        value = size - moved + 4.0 * UNIT * (abs(size) + moved)
        return min(0.0, logspace.log_add(value, self._direction.log_left_out))

    def epsilon_by_chernoff(self, log_delta: float) -> float:
        """The same for epsilon; the largest loss, or infinity, if it isn't available."""
        try:
            tilt = self._saddle_for(log_delta).tilt
            size = self._direction.chernoff(tilt)
        except TransformUnavailable:
            return self._direction.largest_loss
        return self._epsilon_from(size, tilt, log_delta)

    def is_surely_below(self, epsilon: float, log_delta: float) -> bool:
        """Whether this direction's epsilon is certainly no larger, by two bounds that cost less than a contour."""
        excess = self.epsilon_by_chernoff(log_delta) - epsilon
        if excess <= 0.0:
            return True
        try:
            saddle = self._saddle_for(log_delta)
            # The second bound is a tenth of a nat or more above delta; if that can't be enough, it isn't worth the time.
            if (epsilon - saddle.epsilon) * saddle.tilt < _INTEGRAL_NATS:
                return False
            return self._epsilon_from(self._direction.log_integral(saddle), saddle.tilt, log_delta) <= epsilon
        except TransformUnavailable:
            return False

    def _epsilon_from(self, size: float, tilt: float, log_delta: float) -> float:
        """The epsilon at which e^{size - tilt epsilon} plus what is left out equals e^log_delta."""
        lost = self._direction.log_left_out - log_delta
        if lost > -1.0:
            return self._direction.largest_loss
        rest = log_delta + math.log1p(-math.exp(lost))
        slack = 4.0 * UNIT * (abs(size) + abs(rest))
        return min(max(0.0, (size - rest + slack) / tilt), self._direction.largest_loss)

    def epsilon(self, log_delta: float) -> Ends:
        """(lower, upper) of epsilon at this delta, at least 0: by one contour, one for each number of jumps, or one of 1 - delta."""
        return _of_both(
            "epsilon",
            lambda: self._by_one(log_delta),
            lambda: (0.0, self.epsilon_by_chernoff(log_delta)),
            lambda: (complement if log_delta > complement.NEAREST else jumps).epsilon(self._pairs, log_delta),
            lambda found: found[1] == math.inf or found[1] - found[0] > max(jumps.ENOUGH * found[1], _LEAST_WIDTH),
        )

    def _by_one(self, log_delta: float) -> Ends:
        contour, root = self._root(log_delta)
        if root <= 0.0:
            if contour.bracket(0.0)[1] <= log_delta:
                return 0.0, 0.0
            root = 0.0
        lower, upper = around(contour, root, log_delta)
        return lower, upper if upper < math.inf else self.epsilon_by_chernoff(log_delta)

    def _root(self, log_delta: float) -> tuple[Contour, float]:
        """A contour with a narrow bracket where its trapezoid sum is e^log_delta, and the epsilon there."""
        for contour in self._contours:
            root = contour.solve(log_delta, contour.centre)
            if root > 0.0 and _is_sharp(contour, root):
                return contour, root
        contour, root = self._laid(self._saddle_for(log_delta), log_delta)
        for _ in range(_MOST_CONTOURS - 1):
            if root <= 0.0 or _is_sharp(contour, root):
                break
            try:
                better = self._laid(self._direction.saddle_at(root), log_delta)
            except TransformUnavailable:
                break  # the first contour's wider bracket stands
            contour, root = better
        return contour, root

    def _laid(self, saddle: Saddle, log_delta: float) -> tuple[Contour, float]:
        contour = self._keep(self._direction.contour(saddle, log_delta, tolerance_for(saddle.epsilon, saddle.tilt)))
        return contour, contour.solve(log_delta, saddle.epsilon)

    def _keep(self, contour: Contour) -> Contour:
        self._contours = [contour, *self._contours[: _KEPT_CONTOURS - 1]]
        return contour

    def log_delta(self, epsilon: float) -> Ends:
        """(lower, upper) of log delta(epsilon) in this direction."""
        if epsilon >= self._direction.largest_loss:
            return -math.inf, -math.inf
        return _of_both(
            "log delta",
            lambda: self._log_delta_by_one(epsilon),
            lambda: (-math.inf, self.log_delta_by_chernoff(epsilon)),
            lambda: jumps.log_delta(self._pairs, epsilon),
            lambda found: found[1] - found[0] > jumps.ENOUGH * max(1.0, -found[1]),
        )

    def _log_delta_by_one(self, epsilon: float) -> Ends:
        for contour in self._contours:
            if _is_sharp(contour, epsilon):
                return contour.bracket(epsilon)
        saddle = self._saddle_at(epsilon)
        guess = saddle.log_delta
        for _ in range(_MOST_CONTOURS):
            contour = self._keep(self._direction.contour(saddle, guess, tolerance_for(epsilon, saddle.tilt)))
            found = contour.estimate(epsilon)[0]
            if _is_sharp(contour, epsilon) or not -math.inf < found < guess:
                break
            guess = found
        low, high = contour.bracket(epsilon)  # pyright: ignore[reportPossiblyUnboundVariable]
        return low, min(high, self.log_delta_by_chernoff(epsilon))


def _total_variation(side: _Side) -> float:
    """log of delta at epsilon 0, which is the same in both directions and at least delta at any epsilon in either; or 0."""
    try:
        return side.log_delta(0.0)[1]
    except TransformUnavailable:
        return 0.0


def _of_both(
    quantity: str, one: Callable[[], Ends], bounds: Callable[[], Ends], parts: Callable[[], Ends], is_wide: Callable[[Ends], bool]
) -> Ends:
    """What one contour says and, if that is wide, or all it has is a bound, what one for each number of jumps says as well."""
    try:
        found, refusal = one(), None
    except TransformUnavailable as reason:
        found, refusal = bounds(), reason
    except ArithmeticError:
        found, refusal = bounds(), TransformUnavailable("a number on the way is larger than any float")
    if is_wide(found):
        try:
            further = parts()
        except (TransformUnavailable, ArithmeticError):
            pass  # the one contour's answer stands
        else:
            return agreed(quantity, found, further)
    if refusal is not None:
        raise refusal
    return found


def _is_sharp(contour: Contour, epsilon: float) -> bool:
    low, high = contour.bracket(epsilon)
    return high - low <= max(_SHARPNESS * abs(epsilon) * contour.tilt, 4.0 * contour.tolerance)


def _direction(pairs: list[tuple[Pair, int]], improbable: float, *, reverse: bool) -> Direction:
    transforms: list[Transform] = []
    squares: list[float] = []
    for pair, count in pairs:
        mu = pair.family.gdp_mu(pair.distance) if pair.is_whole else None
        if mu is not None:
            squares.append(0.5 * count * mu**2)
        else:
            transforms.append(_transform(pair, count, improbable, reverse=reverse))
    return direction(tuple(transforms), math.fsum(squares))


def _in_order(pairs: list[tuple[Pair, int]], *, reverse: bool) -> tuple[tuple[Pair, int], ...]:
    return tuple((reverse_order(pair) if reverse else pair, count) for pair, count in pairs)


def _transform(pair: Pair, count: int, improbable: float, *, reverse: bool) -> Transform:
    upper, lower = (pair.lower.mirrored, pair.upper.mirrored) if reverse else (pair.upper, pair.lower)
    own = pair.family.transform(upper, lower, count, improbable)
    if pair.crowded is None:
        return own
    return Either(own, _transform(pair.crowded.pair, count, improbable, reverse=reverse), pair.crowded.probability)


@final
class ContourAccountant(Accountant):
    """Gaussian, complex Gaussian and Laplace releases, sampled or not, repeated and composed: proved brackets at any delta."""

    name = ROUTE
    summary = "Numerical inversion of the moment function with a proved bracket; its cost doesn't depend on the number of releases."
    sources = ("proofs/contour.md", "Trefethen and Weideman 2014, SIAM Review 56(3)", "Zhu, Dong and Wang 2022, arXiv:2106.08567")

    def unsupported_parts(self, parts: Mapping[Leaf, int]) -> str | None:
        for leaf in parts:
            if (reason := unsupported_reason(leaf) or _pair_reason(pair_of(leaf))) is not None:
                return reason
        families = [pair_of(leaf).family for leaf in parts]
        is_hopeless = sum(parts.values()) < _FEW_ATOMS or all(family.is_discrete for family in families)
        if is_hopeless and all(family.has_atoms for family in families):
            return "its losses have atoms: without a Gaussian release beside them their moment function hardly decays"
        if sum(parts.values()) > MOST_RELEASES:
            return f"more than {MOST_RELEASES:.0e} releases: their rounding errors would swamp the result"
        return None

    def _profile(self, parts: Mapping[Leaf, int]) -> PrivacyProfile:
        return ContourProfile(parts)


def _pair_reason(pair: Pair) -> str | None:
    if not pair.is_whole and not 2.0 * SMALLEST_SHIFT <= pair.distance <= LARGEST_SHIFT:
        return (
            f"a sampled release moves its noise by {pair.distance:.3g} scales; this route supports {SMALLEST_SHIFT:g} to {LARGEST_SHIFT:g}"
        )
    if pair.worst_of_both or pair.shown < 1.0:
        return "a release that is shown only sometimes, or whose direction may change, has a loss with a kink, which hardly decays"
    if pair.crowded is not None and (reason := _pair_reason(pair.crowded.pair)) is not None:
        return reason
    if not pair.family.has_transform:
        return f"no moment function of {pair.family.name} is known here"
    return None
