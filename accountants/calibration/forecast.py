r"""A cheap forecast of a calibration: the composed event's mu by the central limit theorem, as a function of the parameter.

Nothing here is a bound and no answer depends on it: it says where to look first, and in which variable the accountant's answers are nearly
a straight line. A release with chi-square divergence c counts as mu^2 = log(1 + q^2 c), exact for whole Gaussian releases and the central
limit (Dong, Roth and Su 2022, Corollary 5.4) for many sampled ones. For a Renyi target the same is computed at its order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, final

from zetadp.accountants.calibration.parameters import ClippingBound, NoiseScale, Parameter, SampleSize, SamplingProbability, Steps
from zetadp.accountants.events import Event, leaves
from zetadp.accountants.leaf import Leaf, unfolded, unshuffled
from zetadp.mechanisms.base import Adjacency
from zetadp.mechanisms.loss import GaussianLoss, LaplaceLoss

_OTHER_FACTOR = 1.0078125
"""A factor by which two scales of one event hardly ever differ: parts are distinguished by what changes with the parameter."""

_SMALLEST = 1e-300
_Varies = Literal["divergence", "probability", "count"]


@final
@dataclass(frozen=True)
class _Part:
    """One kind of release: its count, the probability that a record is in the sample, and its mu (pure epsilon if ``pure``)."""

    count: float
    probability: float
    size: float
    pure: bool

    @property
    def pure_epsilon(self) -> float:
        """Of all of them together; infinite where it isn't the sum of their sizes."""
        return self.count * self.size if self.pure and self.probability == 1.0 else (math.inf if self.count > 0 else 0.0)

    def square(self, order: float, shrink: float, more: float) -> float:
        """mu^2 of all of them together with the noise ``shrink`` times smaller and the probability ``more`` times larger."""
        loss = LaplaceLoss(self.size * shrink) if self.pure else GaussianLoss(self.size * shrink)
        whole, probability = loss.renyi(order), min(1.0, self.probability * more)
        if probability == 1.0:
            return self.count * 2.0 * whole / order
        # The binomial sum of the moment of this order: its first term and, for orders above 2, its last.
        pairs = 0.5 * order * (order - 1.0)
        exponent = 2.0 * math.log(probability) + math.log(pairs) + _log_expm1(loss.renyi(2.0))
        if order > 2.0:
            last = order * math.log(probability) + math.log1p(-2.0 / order) + _log_expm1((order - 1.0) * whole)
            exponent = max(exponent, last) + math.log1p(math.exp(-abs(exponent - last)))
        return self.count * (max(exponent, 0.0) + math.log1p(math.exp(-abs(exponent)))) / pairs


def _log_expm1(value: float) -> float:
    return value if value > 40.0 else math.log(max(math.expm1(value), _SMALLEST))


@final
class Forecast:
    """log mu of the event against the parameter's value; rises with every parameter except noise.

    Args:
      order: of the Renyi divergence whose mu is meant; 2 is the central limit's.
    """

    def __init__(self, event: Event, parameter: Parameter, order: float) -> None:
        self._order = order
        self._varies, base, other = _reference(event, parameter)
        self._fixed, self._fixed_pure, self._parts = 0.0, 0.0, list[_Part]()
        # The best of several runs costs some times one run, at any value of the parameter.
        as_given = base == 1.0 and self._varies == "divergence"  # a factor
        before = unfolded(leaves(parameter.applied(event, other)))
        after = unfolded(leaves(event if as_given else parameter.applied(event, base)))
        if self._varies == "count":
            # One more step: what it adds is the part that varies.
            before, after = after, before
        for leaf, count in after.items():
            same = min(count, before.get(leaf, 0))
            changed = count - same
            if self._varies == "count":
                same -= changed
            self._fixed += (part := _part(leaf, same)).square(order, 1.0, 1.0)
            self._fixed_pure += part.pure_epsilon
            if changed > 0:
                self._parts.append(_part(leaf, changed))
        self._base = base
        self._whole = parameter.whole
        self._inverse = isinstance(parameter, NoiseScale)

    def log_mu(self, value: float) -> float:
        """At this value of the parameter."""
        ratio = value / self._base
        if self._varies == "count":
            varying = value * math.fsum(part.square(self._order, 1.0, 1.0) for part in self._parts)
        elif self._varies == "probability":
            varying = math.fsum(part.square(self._order, 1.0, ratio) for part in self._parts)
        else:
            shrink = 1.0 / ratio if self._inverse else ratio
            varying = math.fsum([part.square(self._order, shrink, 1.0) for part in self._parts])
        return 0.5 * math.log(max(self._fixed + varying, _SMALLEST))

    def pure_value(self, epsilon: float) -> float | None:
        """The value at which the pure epsilons of whole releases add up to this epsilon > 0: it is safe. None if there is none such."""
        left, varying = epsilon - self._fixed_pure, math.fsum(part.pure_epsilon for part in self._parts)
        if self._varies == "probability" or not (left > 0.0 and 0.0 < varying < math.inf):
            return None
        ratio = varying / left if self._inverse else left / varying
        # Whole numbers are rounded down: the middle between two is surely rounded to the right one.
        return max(math.floor(ratio * (1.0 + 4e-15)), 1.0) + 0.5 if self._whole else ratio * self._base


def _reference(event: Event, parameter: Parameter) -> tuple[_Varies, float, float]:
    """What varies, and two values at which the event is built to see which of its releases do."""
    limits = parameter.limits(event)
    match parameter:
        case NoiseScale() | ClippingBound():
            return "divergence", 1.0, _OTHER_FACTOR if limits.high >= _OTHER_FACTOR else 1.0 / _OTHER_FACTOR
        case SamplingProbability():
            return "probability", 0.5, 0.25
        case SampleSize():
            return "probability", limits.low, limits.high
        case Steps():
            return "count", 1.0, 2.0


def _part(leaf: Leaf, count: int) -> _Part:
    loss = leaf.mechanism.privacy_loss()
    (leaf,) = unshuffled({leaf: 1})
    size, count = loss.distance, count * leaf.steps
    # A sample of fixed size, one record more or less: two records swap places, errata Z12. Of a largest size: hardly ever.
    twice = leaf.scheme == "fixed_size" and leaf.mechanism.neighbours[0] is not Adjacency.REPLACE_ONE
    size *= 2.0 if twice else 1.0
    if leaf.is_whole:
        return _Part(count, 1.0, size * leaf.group, loss.pure_epsilon is not None)
    return _Part(count, min(1.0, leaf.probability * leaf.group), size, loss.pure_epsilon is not None)
