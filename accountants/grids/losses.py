r"""One pair's privacy loss as a quadrature, for estimates: no bound depends on it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np

from zetadp.accountants.grids.grid import Floats, Stretches
from zetadp.accountants.pairs import Pair

_NEGLIGIBLE = 1e-11
"""Share of the relevant mass that may fall off the ends of the leaves' laws, for all releases together."""

_LEAST_MASS = 1e-22

_CLUSTERS, _LEAST_SHARE = 8, 0.02
"""The most clusters, and the least share of one, that a lattice is aligned to."""


@final
@dataclass(frozen=True)
class Losses:
    """One pair's privacy loss under P as a quadrature.

    Attributes:
      losses: nodes, in ascending order.
      log_weights: logarithms of their weights.
      atoms: losses of positive probability.
      low: the smallest loss, approximately.
      high: the largest loss, approximately.
    """

    losses: Floats
    log_weights: Floats
    atoms: tuple[float, ...]
    low: float
    high: float

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        """log E e^{tilt L} and its first two derivatives."""
        turned = self.log_weights + tilt * self.losses
        peak = float(turned.max())
        shares = np.exp(turned - peak)
        total = float(shares.sum())
        mean = float(shares @ self.losses) / total
        centred = self.losses - mean
        return peak + math.log(total), mean, float(shares @ (centred * centred)) / total

    def log_moments(self, tilts: Floats) -> Floats:
        """log E e^{tilt L} at each tilt."""
        turned = self.log_weights + tilts[:, None] * self.losses
        peaks = turned.max(axis=1)
        return peaks + np.log(np.exp(turned - peaks[:, None]).sum(axis=1))

    def cut(self, log_probability: float) -> Losses:
        """Drops the largest losses, of total probability less than this: what is beyond counts as infinite, or as the last.

        Also removes the smallest ones, whose mass is tiny compared with the rounding of 1: they are moved up, or dropped.
        """
        with np.errstate(under="ignore"):
            beyond = np.cumsum(np.exp(self.log_weights[::-1]))[::-1]
        last = int(np.flatnonzero(beyond > math.exp(max(log_probability, -700.0)))[-1]) + 2
        first = max(int(np.argmax(np.cumsum(np.exp(self.log_weights)) > _LEAST_MASS)) - 1, 0)
        return Losses(self.losses[first:last], self.log_weights[first:last], self.atoms, self.low, self.high)

    def ended(self, loss: float) -> Losses:
        """The same with all that is above a loss moved there."""
        last = int(np.searchsorted(self.losses, loss))
        if last >= len(self.losses) - 1:
            return self
        beyond = float(np.logaddexp.reduce(self.log_weights[last:]))
        losses, logs = np.append(self.losses[:last], loss), np.append(self.log_weights[:last], beyond)
        return Losses(losses, logs, tuple(atom for atom in self.atoms if atom <= loss), self.low, self.high)

    def without_jumps(self, tilts: Floats, jumps: Floats) -> Floats:
        """log E[e^{tilt L}; L < jump], of shape (tilts, jumps)."""
        turned = np.logaddexp.accumulate(self.log_weights + tilts[:, None] * self.losses, axis=1)
        last = np.searchsorted(self.losses, jumps) - 1
        return np.where(last >= 0, turned[:, np.maximum(last, 0)], -math.inf)

    def first(self, tilt: float, count: int) -> float:
        """Loss below which the tilted law of ``count`` such leaves has almost no mass, even if moved up to it."""
        below = np.log(np.cumsum(np.exp(self.log_weights)) + 1e-300) + tilt * self.losses - self.cumulants(tilt)[0] + math.log(count)
        return float(self.losses[max(int(np.argmax(below > math.log(_NEGLIGIBLE))) - 1, 0)])

    def last_index(self, start: float, step: float) -> int:
        """Lattice index beyond the largest loss."""
        return math.ceil((max(float(self.losses[-1]), 0.0) - start) / step - 1e-9) + 2

    def stretches(self, start: float, step: float, tilt: float, weight: float) -> Stretches:
        """Where on the lattice spacings of 1, 2, 4, ... steps are enough, from the middle outwards.

        A spacing of 2^j steps squared, times the share of delta that comes through it, is at most an eighth of the cost of single steps
        everywhere. That share is at most the tilted mass times ``weight``, the tilted bound on delta over delta.
        """
        count = self.last_index(start, step)
        levels = 0 if self.atoms else int(max(math.log2(max(0.25 / (tilt * step), 1.0)), 0.0))
        shares = weight * np.exp(self.log_weights + tilt * self.losses - self.cumulants(tilt)[0])
        small = 0.125 * 0.25 ** np.arange(1.0, levels + 1.0)
        right = np.searchsorted(-np.cumsum(shares[::-1])[::-1], -small)
        left = np.searchsorted(np.cumsum(shares), small) - 1
        padded: list[float] = [-math.inf, *self.losses.tolist(), math.inf]
        stops = [*(_index_at(padded[int(place) + 1], start, step, count) for place in right), count]
        begins = [*(_index_at(padded[int(place) + 1], start, step, count) for place in left), 0]
        return Stretches(tuple(begins), tuple(stops))

    def clusters(self, tilt: float, length: float) -> tuple[Floats, Floats]:
        """(centres, shares of the tilted law) of the few heaviest intervals of this length."""
        turned = np.exp(self.log_weights + tilt * self.losses - self.cumulants(tilt)[0])
        # From each node on, what is within the length; the heaviest first, and what overlaps it no more.
        sums = np.append(0.0, np.cumsum(turned))
        ends = np.searchsorted(self.losses, self.losses + length, "right")
        held = sums[ends] - sums[:-1]
        places: list[float] = []
        shares: list[float] = []
        while len(places) < _CLUSTERS and float(held.max()) > _LEAST_SHARE:
            first = int(np.argmax(held))
            part = slice(first, int(ends[first]))
            places.append(float(turned[part] @ self.losses[part] / turned[part].sum()))
            shares.append(float(held[first]))
            held[np.abs(self.losses - self.losses[first]) <= length] = 0.0
        return np.array(places), np.array(shares)

    def likeliest(self, tilt: float) -> Floats:
        """The few losses that are likeliest under the tilted law."""
        return self.losses[np.argsort(-(self.log_weights + tilt * self.losses), kind="stable")[:_CLUSTERS]]

    def offsets(self, steps: Floats, tilt: float) -> Floats:
        """How far losses are above their nodes in the mean of the tilted law, in steps, of shape (steps, anchors).

        There is a node at one of the likeliest losses, the anchor.
        """
        turned = self.log_weights + tilt * self.losses
        shares = np.exp(turned - turned.max())
        places = (self.losses - self.likeliest(tilt)[:, None]) / steps[:, None, None]
        # At an anchor a rounding mustn't count as a whole step.
        return np.mod(places + 1e-9, 1.0) @ (shares / shares.sum())

    def spread_share(self, tilt: float) -> float:
        """Share of the tilted law that isn't in atoms."""
        if not self.atoms:
            return 1.0
        turned = np.exp(self.log_weights + tilt * self.losses - self.cumulants(tilt)[0])
        near = np.zeros(len(self.losses), dtype=bool)
        for atom in self.atoms:
            near |= np.abs(self.losses - atom) <= 1e-9 * abs(atom)
        return float(turned[~near].sum())


def _index_at(loss: float, start: float, step: float, count: int) -> int:
    """The lattice index nearest to a loss, within 0 ... count."""
    return round(min(max((loss - start) / step, 0.0), float(count)))


@lru_cache(maxsize=256)
def losses_of(pair: Pair) -> Losses:
    """The losses of a pair, cached."""
    if pair.crowded is not None:
        return _mixed(losses_of(pair.uncrowded), losses_of(pair.crowded.pair), pair.crowded.probability)
    if pair.shown < 1.0:
        return _shown(losses_of(Pair(pair.family, pair.upper, pair.lower)), pair.shown)
    losses, logs, atoms = pair.family.losses(pair.upper, pair.lower)
    if not pair.family.mixes:
        return Losses(losses, logs, atoms, float(losses[0]), float(losses[-1]))
    if pair.worst_of_both:
        # For losses above 0 the law of (P, Q), below 0 its mirror image, and the rest at 0: approximately the law of the larger curve.
        above = losses > 0.0
        logs, losses = logs[above], losses[above]
        rest = max(1.0 - float(np.exp(logs).sum() + np.exp(logs - losses).sum()), 1e-300)
        losses = np.concatenate((-losses[::-1], [0.0], losses))
        logs = np.concatenate(((logs - losses[-len(logs) :])[::-1], [math.log(rest)], logs))
        top = max((abs(atom) for atom in atoms), default=0.0)
        atoms = (-top, 0.0, top) if top > 0.0 else (0.0,)
    kept = logs > -690.0
    return Losses(losses[kept], logs[kept], atoms, float(losses[0]), float(losses[-1]))


def _mixed(often: Losses, rarely: Losses, share: float) -> Losses:
    """The losses of one or of the other."""
    losses = np.concatenate((often.losses, rarely.losses))
    logs = np.concatenate((often.log_weights + math.log1p(-share), rarely.log_weights + math.log(share)))
    order = np.argsort(losses, kind="stable")
    atoms = tuple(sorted({*often.atoms, *rarely.atoms}))
    return Losses(losses[order], logs[order], atoms, min(often.low, rarely.low), max(often.high, rarely.high))


def _shown(base: Losses, shown: float) -> Losses:
    """The same losses with probability ``shown``, and the rest at 0."""
    place = int(np.searchsorted(base.losses, 0.0))
    logs = np.insert(base.log_weights + math.log(shown), place, math.log1p(-shown))
    return Losses(np.insert(base.losses, place, 0.0), logs, (*base.atoms[:1], 0.0, *base.atoms[1:]), base.low, base.high)


def spread(places: Floats, weights: Floats, points: int) -> Floats:
    """Weights at real places moved to so many cyclic lattice points by cubic interpolation, which keeps three moments."""
    whole = np.floor(places)
    s, index = places - whole, whole.astype(int)
    shares = (-s * (s - 1) * (s - 2) / 6, (s + 1) * (s - 1) * (s - 2) / 2, -(s + 1) * s * (s - 2) / 2, (s + 1) * s * (s - 1) / 6)
    law = np.zeros(points)
    for offset, share in enumerate(shares, -1):
        law += np.bincount((index + offset) % points, weights * share, points)
    return law
