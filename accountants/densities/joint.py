r"""A Gaussian and a Laplace coordinate that move together: releases of both kinds of noise of one sample. proofs/pairs.md, Lemma 6

A copy at s is N(s, 1) with the Laplace law at ``slope`` s. Given the Laplace coordinate y a mixture of copies is one of Gaussian copies,
with other weights. Seen only up to the cell of a grid that y lies in, the pair loses some of what it shows; with the mass of each cell
moved to both of its ends, so that all means stay, it shows more. Lower ends are of the first, upper ends of the second:
proofs/fft.md, (1.10).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, final

import numpy as np

from zetadp.accountants import deadline
from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.densities import gaussian, quadrature
from zetadp.accountants.densities.base import TINY, Calls, Density, Floats, LossLaw, RatioNodes
from zetadp.accountants.densities.mixtures import SMALLEST_WEIGHT, Mixture
from zetadp.mechanisms.loss import JointLoss, PrivacyLoss

_GAUSSIAN = gaussian.DENSITY
_FEWEST, _MOST = 6, 48
"""Cells between two neighbouring shifts."""
_VARIANCE = 5e-5
"""Share by which moving a cell's mass to its ends may raise the variance of a loss, about."""
_CELLS_EACH = 2.0
"""Cells for each scale of the Laplace noise that a move by one of the Gaussian noise goes with, at least, up to the most."""
_FOR_ESTIMATES = 6
_FOR_MOMENTS = 24


@final
@dataclass(frozen=True)
class JointDensity(Density):
    """Shifts are in scales of the Gaussian noise.

    Attributes:
      slope: scales of the Laplace noise by which a copy moves for each scale of the Gaussian noise; > 0.
    """

    loss_type = JointLoss
    name = "Gaussian with Laplace"
    norm = "l2"
    is_discrete = False
    has_atoms = False
    width = 3e-4
    slope: float

    def of(self, loss: PrivacyLoss) -> Density:
        assert isinstance(loss, JointLoss)  # of this type
        return JointDensity(loss.epsilon / loss.mu)

    def loss(self, distance: float) -> PrivacyLoss:
        return JointLoss(distance, self.slope * distance)

    def largest_loss(self, upper: Mixture, lower: Mixture) -> float:
        del upper, lower
        return math.inf

    def calls(self, upper: Mixture, lower: Mixture, epsilons: Floats) -> Calls:
        number = _number(self.slope, upper, lower)
        low, tail, doubt, high = (np.zeros_like(epsilons) for _ in range(4))
        for atom in _atoms(self.slope, upper, lower, number, False):
            at = _GAUSSIAN.calls(atom.upper, atom.lower, epsilons - atom.log_ratio + atom.loss_error)
            low += atom.mass * (1.0 - atom.mass_error) * at.lower
            tail += atom.mass * at.tail
            doubt += atom.mass * (at.doubt + (atom.mass_error + 4.0 * atom.loss_error) * at.tail)
        for atom in _atoms(self.slope, upper, lower, number, True):
            deadline.check()
            at = _GAUSSIAN.calls(atom.upper, atom.lower, epsilons - atom.log_ratio - atom.loss_error)
            high += atom.mass * (1.0 + atom.mass_error) * at.upper
        return Calls(low, np.minimum(high + TINY, 1.0), tail, doubt)

    def losses(self, upper: Mixture, lower: Mixture) -> LossLaw:
        parts = list[tuple[Floats, Floats]]()
        for atom in _atoms(self.slope, upper, lower, _FOR_ESTIMATES, False):
            law = _GAUSSIAN.losses(atom.upper, atom.lower)
            parts.append((law.losses + atom.log_ratio, law.log_weights + math.log(atom.mass)))
        losses, logs = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(losses)
        return LossLaw(losses[order], logs[order], ())

    def ratio_nodes(self, upper: Mixture, lower: Mixture, order: float, *, upper_half: bool) -> RatioNodes | None:
        """Those of the pair that shows more: its moments at powers outside [0, 1] are larger."""
        parts = list[RatioNodes]()
        for atom in _atoms(self.slope, upper, lower, min(_number(self.slope, upper, lower), _FOR_MOMENTS), True):
            found = atom.ratio_nodes(order, upper_half)
            if found is None:
                return None
            parts.append(found)
        return RatioNodes(*(np.concatenate(column) for column in zip(*parts, strict=True)))


DENSITY = JointDensity(1.0)


@final
class _Atom(NamedTuple):
    """What is known of the Laplace coordinate, and the Gaussian one's pair given that.

    Attributes:
      upper, lower: P's and Q's law of the Gaussian coordinate; weights of moved copies are rounded up, or down.
      log_ratio: log of P's probability of this over Q's; ``loss_error`` is a bound on its error.
      mass: P's probability; ``mass_error`` is a bound on its relative error.
    """

    upper: Mixture
    lower: Mixture
    log_ratio: float
    loss_error: float
    mass: float
    mass_error: float

    def ratio_nodes(self, order: float, upper_half: bool) -> RatioNodes | None:
        start = quadrature.crossing(_GAUSSIAN, self.upper, self.lower, -self.log_ratio) if upper_half else -math.inf
        own = quadrature.nodes_from(_GAUSSIAN, self.upper, self.lower, order, start)
        if own is None:
            return None
        log_weight = own.log_weight + (math.log(self.mass) - self.log_ratio)
        log_ratio = own.log_ratio + self.log_ratio
        rise = math.expm1(self.log_ratio)
        alone = np.where(np.abs(own.log_ratio) < quadrature.CLOSE, own.minus_one, np.expm1(np.minimum(own.log_ratio, 1.0)))
        minus_one = np.where(np.abs(log_ratio) < quadrature.CLOSE, alone + rise * (1.0 + alone), 1.0)
        share = self.mass * math.exp(-self.log_ratio)
        weighted = share * (own.weighted_minus_one * (1.0 + rise) + np.exp(own.log_weight) * rise)
        return RatioNodes(log_weight, log_ratio, minus_one, weighted)


def _number(slope: float, upper: Mixture, lower: Mixture) -> int:
    """Of cells between two shifts of the Laplace coordinate: a choice, which only makes brackets narrow."""
    move = upper.shifts[-1] - lower.shifts[0]
    far = slope * move
    by_variance = far * math.sqrt(-math.expm1(-far) / (6.0 * _VARIANCE * (move * move + far * far)))
    return min(max(_FEWEST, math.ceil(max(by_variance, _CELLS_EACH * slope))), _MOST)


@lru_cache(maxsize=32)
def _atoms(slope: float, upper: Mixture, lower: Mixture, number: int, ends: bool) -> tuple[_Atom, ...]:
    """P and Q seen up to cells of the Laplace coordinate, or with the mass of each cell moved to its ends.

    Args:
      number: of cells between neighbouring shifts of the Laplace coordinate.
      ends: whether mass is moved to the ends, by which the pair dominates; else it is dominated.
    """
    kinks = sorted({0.0, *(slope * shift for mixture in (upper, lower) for shift in mixture.shifts)})
    masses: dict[float, float] = {kinks[0]: 0.5 * math.exp(kinks[0])}
    masses[kinks[-1]] = masses.get(kinks[-1], 0.0) + 0.5 * math.exp(-kinks[-1])
    for left, right in pairwise(kinks):
        edges = [left + (right - left) * (k / number) for k in range(number)] + [right]
        for a, b in pairwise(edges):
            near, far = (a, b) if a >= 0.0 else (b, a)
            mass = -0.5 * math.exp(-abs(near)) * math.expm1(a - b)
            if ends:
                share = 1.0 / (1.0 + math.exp(b - a))
                for place, part in ((near, mass * (1.0 - share)), (far, mass * share)):
                    masses[place] = masses.get(place, 0.0) + part
            else:
                masses[0.5 * (a + b)] = mass
    return tuple(_atom(slope, upper, lower, (y, mass), ends) for y, mass in sorted(masses.items()))


def _atom(slope: float, upper: Mixture, lower: Mixture, at: tuple[float, float], ends: bool) -> _Atom:
    """Args: at: the Laplace coordinate, and how probable it is where nothing moves."""
    y, mass = at
    above, below = _given(slope, upper, 0, y, ends), _given(slope, lower, len(lower.shifts) - 1, y, ends)
    log_ratio = above.log_share - below.log_share
    loss_error = above.error + below.error + 2.0 * UNIT * abs(log_ratio)
    furthest = abs(y) + slope * max(abs(shift) for shift in (*upper.shifts, *lower.shifts))
    mass_error = 2.0 * above.error + UNIT * (64.0 + 8.0 * _MOST + 16.0 * furthest)
    return _Atom(above.mixture, below.mixture, log_ratio, loss_error, mass * math.exp(above.log_share), mass_error)


@final
class _Given(NamedTuple):
    """Of a mixture, given the Laplace coordinate: the Gaussian one's law, and log of how much likelier it is than where nothing moves."""

    mixture: Mixture
    log_share: float
    error: float


def _given(slope: float, mixture: Mixture, base: int, y: float, ends: bool) -> _Given:
    """Args: base: the copy that is nearest to the other half, whose weight stands for 1 minus the others."""
    far = [slope * shift for shift in mixture.shifts]
    log_base = abs(y) - abs(y - far[base])
    if len(far) == 1:
        return _Given(mixture, log_base, UNIT * (4.0 * abs(y) + 2.0 * abs(far[base])))
    rises = [abs(y - far[base]) - abs(y - shift) for shift in far]
    others = [j for j in range(len(far)) if j != base]
    rest = math.fsum(mixture.weights[j] * math.expm1(rises[j]) for j in others)
    log_share = log_base + math.log1p(rest)
    # An exponent is off by units of what it is a difference of.
    sizes = [UNIT * (8.0 + 4.0 * abs(y) + 4.0 * abs(far[j]) + 4.0 * abs(far[base])) for j in range(len(far))]
    moved = math.fsum(mixture.weights[j] * (math.exp(rises[j]) + 1.0) * sizes[j] for j in others) / (1.0 + rest)
    error = moved + UNIT * (4.0 * abs(log_share) + 2.0 * abs(log_base)) + (0.0 if far[base] == 0.0 else sizes[base])
    # Mass moved to further copies dominates: Lemmas 2 and 3 of proofs/pairs.md.
    step = 1.0 if ends else -1.0
    shares = [weight * math.exp(rise) / (1.0 + rest) for weight, rise in zip(mixture.weights, rises, strict=True)]
    weights = [share * (1.0 + step * (2.0 * moved + 2.0 * size)) for share, size in zip(shares, sizes, strict=True)]
    for j in sorted(others, key=lambda j: abs(far[j] - far[base])):
        # What is too much for 1 goes from the nearest copy to those beyond.
        excess = math.fsum(weights[i] for i in others) - 1.0
        weights[j] -= min(max(excess, 0.0), weights[j])
    weights[base] = 1.0 - math.fsum(weights[j] for j in others)
    return _Given(Mixture(tuple(max(weight, SMALLEST_WEIGHT) for weight in weights), mixture.shifts), log_share, error)
