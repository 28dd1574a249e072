r"""Where to cut jumps from bulk, and at which tilts their parts are inverted: plans for ``jumps``, from sums on a coarse grid.

Estimates choose where a jump begins, where P ends, how many jumps matter and each part's tilt. Nothing proved rests on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from zetadp.accountants import deadline
from zetadp.accountants.densities.heights import MOST_TERMS
from zetadp.accountants.densities.moments.windowed import REACH, Cut
from zetadp.accountants.densities.transforms import TransformUnavailable
from zetadp.accountants.routes.contour.parts import LARGEST_GAP, MOST_HEIGHTS, Jumps, Releases
from zetadp.accountants.routes.contour.ranking import TOO_LONG, Candidate, Piece, Plan, Ranking

Floats = NDArray[np.float64]

_MOST_JUMPS = 40
"""In one part of its own."""

_SHARES = np.array([0.0, 0.1, 0.25, 0.5, 0.75, 1.0])
_STEEPER = np.array([1.0, 2.0, 5.0, 12.0, 30.0])
_CENTRES, _FINER = 24, np.arange(-17, 18) / 18.0
_NEAR = np.array([-1.5, -1.0, -0.7, -0.5, -0.35, -0.25, -0.17, -0.1, -0.05])
_APART = 0.17
"""Steps between centres: where one plan fails, so do those that are nearer to it."""
_NODES, _TILTS = 3200, 192
_SURELY, _BULK_SHARES = (1.5, 12.0), (1.0, 3.0)
"""By how many times too many points or terms are surely too many, of jumps and of a bulk."""

_SPARSE = 4
"""Every so many nodes tell what a plan costs."""

ROOMS = 0.0, 10.0

_BEYOND_NATS = 19.0
"""-log of the share of delta that may come from beyond the end of P, or from parts that aren't computed."""
_FURTHER = 20.0
_DEEP, _SHALLOW = 38.0, 25.0
_EASY = 6.0
"""Parts whose moments outweigh delta by no more than this, as a logarithm, are as good as any."""
_FALLEN, _ALIAS_NATS, _LINE_NATS, _FEW_TERMS = 18.0, 19.0, 24.0, 1e6


@final
class _Sized(NamedTuple):
    """A cut with logarithms of Chernoff's bounds at epsilon 0, by tilt: ``exactly`` so many jumps and, last, any; ``at_least`` so many."""

    cut: Cut
    exactly: Floats
    at_least: Floats


@final
class Survey:
    """One direction's releases on a coarse grid, down to deltas of e^log_delta.

    Args:
      room: how much further than any probable outcome the grid reaches. The tilted law may be there; but the further P reaches, the larger
        are moments at larger tilts, which tell aliases apart.
    """

    def __init__(self, releases: Releases, log_delta: float, room: float) -> None:
        self._releases, self._log_delta = releases, log_delta
        self._log_count = math.log(releases.count)
        top = releases.upper.shifts[-1] + math.sqrt(2.0 * (60.0 - log_delta + self._log_count)) + room
        self._x = np.linspace(-REACH, top, _NODES)
        above, below = releases.upper.log(self._x), releases.lower.log(self._x)
        self._loss = above - below
        self._log_density = above - 0.5 * self._x**2 - 0.5 * math.log(2.0 * math.pi)
        self._spacing = float(self._x[1] - self._x[0])
        log_mass = self._log_density + math.log(self._spacing)
        self._beyond = np.logaddexp.accumulate(log_mass[::-1])[::-1] + self._log_count
        self._enough = int(np.argmax(self._beyond < log_delta - _BEYOND_NATS)) or _NODES - 1
        largest = float(self._loss[self._enough])
        if not largest > 0.0:
            raise TransformUnavailable("its losses are all below 0")
        self._tilts = np.geomspace(3e-3, 2e4, _TILTS) / largest
        exponent = log_mass + self._tilts[:, None] * self._loss
        self._before = np.logaddexp.accumulate(exponent, axis=1)
        ends = self._ends = self._enough + np.argmin(exponent[:, self._enough :], axis=1)
        exponent[np.arange(_NODES) > ends[:, None]] = -math.inf
        self._at_end = exponent[np.arange(_TILTS), ends] - math.log(self._spacing)
        self._peak = exponent.max(axis=1)
        self._terms = np.exp(exponent - self._peak[:, None])
        self._slope = np.gradient(self._loss, self._x)
        self._rate = -np.gradient(self._log_density, self._x)
        self._known: list[_Sized] | None = None

    def plans(self, epsilon: float) -> Iterator[Plan]:
        """Plans in the order in which they are worth a trial, for an epsilon of about the survey's delta."""
        sized = self._everywhere(epsilon)
        if not sized:
            return
        found = Ranking(one for cut in sized for one in self._chosen(cut, epsilon))
        first = found.first()
        if first is not None:
            best = first.centre
        else:
            best = min(
                sized, key=lambda one: self._largest(one, lambda sizes: _least(sizes - self._tilts * epsilon, self._tilts)[1])
            ).cut.centre
        step = float(self._x[self._enough]) / _CENTRES
        finer = best + step * _FINER
        found.add(one for cut in self._sized(finer[finer > 0.0]) for one in self._chosen(cut, epsilon))
        yield from found.unlike(_APART * step)

    def epsilon(self, guess: float) -> float:
        """About the epsilon of the survey's delta, from above: a guess, or the least that Chernoff's bounds on a cut's parts leave."""
        sized = self._everywhere(guess)
        bounds = [self._largest(one, lambda sizes: np.min((sizes - self._log_delta) / self._tilts, axis=1)) for one in sized]
        return min((bound for bound in (guess, *bounds) if bound > 0.0), default=guess)

    def _everywhere(self, epsilon: float) -> list[_Sized]:
        """Cuts all over the grid, and some where one jump exceeds epsilon by itself."""
        if self._known is None:
            high = float(self._x[self._enough])
            self._known = list(self._sized(np.linspace(min(1.5, 0.3 * high), high, _CENTRES)))
        # Where losses are as rare as they are large, everything else is below.
        alone = float(np.interp(epsilon, self._loss, self._x))
        return [*self._known, *self._sized(alone + _NEAR)]

    def _largest(self, sized: _Sized, bounds: Callable[[Floats], Floats]) -> float:
        """Of bounds on the parts without a jump and with any, at once or by their numbers: the largest."""
        rows = bounds(sized.exactly)
        numbered = [*rows[1:-1].tolist(), *bounds(sized.at_least)[-1:].tolist()]
        return max(float(rows[0]), min(float(rows[-1]), max(numbered)))

    def _sized(self, centres: Floats) -> Iterator[_Sized]:
        """Cuts there, with bounds on their parts."""
        deadline.check()
        rates = np.repeat(np.interp(centres, self._x, self._rate), len(_STEEPER))
        centres = np.repeat(centres, len(_STEEPER))
        steep = np.maximum(2.5, np.minimum(np.maximum(centres, 2.5), np.maximum(10.0, 1.3 * rates + 1.0)))
        steep *= np.tile(_STEEPER, len(centres) // len(_STEEPER))
        turned = np.clip(steep * (self._x[:, None] - centres), -700.0, 700.0)
        window = 1.0 / (1.0 + np.exp(-turned))
        # What has no jump ends earlier: its window falls as well.
        ends = np.argmax(self._beyond[:, None] - np.logaddexp(0.0, turned) < self._log_delta - _BEYOND_NATS - _FURTHER, axis=0)
        with np.errstate(divide="ignore"):
            jumps, bulk = (np.log(self._terms @ side) + self._peak[:, None] for side in (window, 1.0 - window))
        alone = self._alone(centres, steep, ends)
        for place, (centre, steepness) in enumerate(zip(centres.tolist(), steep.tolist(), strict=True)):
            cut = Cut(centre, steepness, float(self._x[ends[place]]))
            sizes = self._sizes(cut, (bulk[:, place], jumps[:, place], alone[:, place]))
            if sizes is not None:
                yield _Sized(cut, *sizes)

    def _alone(self, centres: Floats, steep: Floats, ends: NDArray[np.int64]) -> Floats:
        """log of the moments of what has no jump, up to these ends; infinite where what is beyond them would matter."""
        firsts = np.searchsorted(self._x, centres)
        # What is before the centre, and a few places after it: the sum over jumps would hide both.
        places = np.minimum(firsts + np.rint(np.maximum(ends - firsts, 0) * _SHARES[:, None]).astype(np.int64), _NODES - 1)
        fall = np.logaddexp(0.0, steep * (self._x[places] - centres))
        after = self._at(places) - fall + np.log(np.maximum(self._x[ends] - centres, self._spacing))
        found = np.logaddexp(self._before[:, np.maximum(firsts - 1, 0)], after.max(axis=1))
        return np.where(after[:, -1] < found - _SHALLOW - self._log_count, found, math.inf)

    def _at(self, places: NDArray[np.int64]) -> Floats:
        """log of P's density times e^{tilt loss} at these nodes, for each tilt."""
        return self._log_density[places] + np.multiply.outer(self._tilts, self._loss[places])

    def _sizes(self, short: Cut, columns: tuple[Floats, Floats, Floats]) -> tuple[Floats, Floats] | None:
        bulk, jumps, alone = columns
        count = self._releases.count
        numbers = np.arange(min(_MOST_JUMPS, count) + 1)
        # What is left at the end of P must be nothing beside the moments; else such a tilt is none. The bulk's window has fallen there.
        fallen = short.steepness * (self._x[self._ends] - short.centre)
        fine = (self._at_end < jumps - _DEEP) & (self._at_end - fallen < bulk + self._log_count - _DEEP)
        fine &= np.isfinite(jumps) & np.isfinite(bulk)
        if not fine.any() or jumps[0] == -math.inf:
            return None
        jumps, bulk = np.where(fine, jumps, -700.0), np.where(np.isfinite(bulk), bulk, 0.0)
        logs = np.array([0.0, *np.cumsum([math.log(count - k) - math.log(k + 1.0) for k in numbers[:-1].tolist()])])
        others, own = count - numbers[:, None], logs[:, None] + numbers[:, None] * jumps
        exactly, at_least = (np.where(fine, own + others * rest, math.inf) for rest in (bulk, np.logaddexp(bulk, jumps)))
        exactly[0] = count * alone
        any_size = np.where(fine, Jumps(None).log_size(count, bulk, jumps), math.inf)
        kernel = np.log(self._tilts) + np.log1p(self._tilts)
        # There are never more than there are releases.
        return np.vstack([exactly, any_size]) - kernel, np.vstack(
            [at_least, np.full(_TILTS, -math.inf if count < _MOST_JUMPS else math.inf)]
        ) - kernel

    def _chosen(self, sized: _Sized, epsilon: float) -> Iterator[Candidate]:
        """The plans for a cut that may be worth a trial: one part for any jumps, and one for each number of them."""
        short, log_delta = sized.cut, self._log_delta
        places, bounds = _least(sized.exactly - self._tilts * epsilon, self._tilts)
        gaps = bounds - log_delta

        def piece(row: int, jumps: Jumps) -> Piece:
            place = int(places[row])
            end = float(self._x[self._ends[place]]) if row else short.end
            return Piece(jumps, float(self._tilts[place]), end, float(gaps[row]), self._period(sized.exactly[row], place, epsilon))

        first = [piece(0, Jumps(0))] if gaps[0] > -_BEYOND_NATS else []
        fewer = () if first else (piece(0, Jumps(0)),)
        chosen = [((*first, piece(-1, Jumps(None))), fewer, None)]
        if gaps[-1] > _EASY:
            chosen += self._numbered(sized, epsilon, piece)
        for pieces, below, above in chosen:
            gap = max(one.gap for one in pieces)
            if not gap < LARGEST_GAP:
                continue
            plan = Plan(short.centre, short.steepness, pieces, below, above, epsilon)
            yield Candidate(max(gap - _EASY, 0.0) + 0.2 * len(pieces), plan, lambda plan=plan: self._cost(plan))

    def _cost(self, plan: Plan) -> float:
        """What so many points add to a plan's score; ``TOO_LONG`` more where they, or their nodes, are surely too many."""
        terms, more = 0.0, 0.0
        for piece in plan.pieces:
            cut = Cut(plan.centre, plan.steepness, piece.end)
            points = self._points(cut, piece)
            nodes = self._nodes(cut, piece)
            surely = _SURELY[piece.jumps.number == 0]
            if not (points < surely * MOST_HEIGHTS and points * nodes < surely * MOST_TERMS):
                more = TOO_LONG
            terms += points * nodes
        return max(math.log(terms / _FEW_TERMS), 0.0) + more

    def _nodes(self, cut: Cut, piece: Piece) -> float:
        """About how many nodes a line of the moment function takes."""
        below = self._releases.lower.span
        narrow = math.sqrt(40.0 / (piece.tilt + 1.0)) / below if below > 0.0 else math.inf
        highest = min(3.0, 3.0 / max(self._releases.upper.span, below), 2.6 / cut.steepness, narrow)
        return (cut.end + REACH) * (_LINE_NATS + math.log(self._releases.count) + max(piece.gap, 0.0)) / (2.0 * math.pi * 0.3 * highest)

    def _numbered(
        self, sized: _Sized, epsilon: float, piece: Callable[[int, Jumps], Piece]
    ) -> list[tuple[tuple[Piece, ...], tuple[Piece, ...], Piece | None]]:
        """(parts, what is below them, what is above them) of the numbers of jumps that matter, if those are few."""
        places, bounds = _least(sized.at_least - self._tilts * epsilon, self._tilts)
        more = np.flatnonzero(bounds < self._log_delta - _BEYOND_NATS)
        count = self._releases.count
        if len(more) == 0:
            return []
        last = int(more[0]) - 1
        pieces = [piece(k, Jumps(k)) for k in range(min(last, count) + 1)]
        first = next((k for k, one in enumerate(pieces) if one.gap > -_BEYOND_NATS), None)
        if first is None:
            return []
        place, above = int(places[last + 1]) if last < count else 0, None
        if last < count:
            gap = float(bounds[last + 1]) - self._log_delta
            above = Piece(Jumps(last + 1), float(self._tilts[place]), float(self._x[self._ends[place]]), gap, 0.0)
        return [(tuple(pieces[first:]), tuple(pieces[:first]), above)]

    def _period(self, sizes: Floats, place: int, epsilon: float) -> float:
        """About how far apart aliases are that are small at this tilt: those before, and those behind, which moments tell. (A)"""
        t, tilts = float(self._tilts[place]), self._tilts[place + 1 :]
        chernoff = sizes[place + 1 :] + np.log(tilts) - tilts * np.log1p(1.0 / tilts)
        above = float(np.min((chernoff - tilts * epsilon - self._log_delta + _ALIAS_NATS) / (tilts - t), initial=math.inf))
        # At the least tilt a moment is about the mass.
        log_mass = min(float(sizes[0]) + math.log(float(self._tilts[0])), 0.0)
        # Moments that the grid doesn't know aren't infinite.
        return max((log_mass - self._log_delta + _ALIAS_NATS) / t, 1.0 / t, above if above < math.inf else 0.0)

    def _points(self, cut: Cut, piece: Piece) -> float:
        """About how many points a contour takes until what bounds the moment function has fallen: where losses hardly rise it is slow."""
        span, below, count = max(self._releases.upper.span, self._releases.lower.span), self._releases.lower.span, self._releases.count
        narrow = math.sqrt(40.0 / (piece.tilt + 1.0)) / below if below > 0.0 else math.inf
        y = 0.8 * min(3.0, 0.5 * math.pi / span, 2.6 / cut.steepness, narrow)
        inside = slice(0, int(np.searchsorted(self._x, piece.end, "right")), _SPARSE)
        slopes, need = np.maximum(self._slope[inside], 0.0), _FALLEN + max(piece.gap, 0.0)
        turned = cut.steepness * (self._x[inside] - cut.centre)
        sizes = self._log_density[inside] + piece.tilt * self._loss[inside]
        sizes -= np.logaddexp(0.0, turned if piece.jumps.number == 0 else -turned)
        sizes -= float(np.max(sizes))
        if piece.jumps.number == 0:
            weights, heights = np.exp(sizes) / np.exp(sizes).sum(), np.geomspace(1.0, 1e7, 40) * piece.tilt
            height = math.inf
            for share in _BULK_SHARES:
                y_bulk = min(y, share / math.sqrt(count))
                fallen = -count * np.log(np.maximum(np.exp(-heights[:, None] * slopes * y_bulk) @ weights, 1e-300))
                good = np.flatnonzero(fallen > need - np.log(heights / piece.tilt) + 0.5 * count * y_bulk * y_bulk)
                height = min(height, float(heights[good[0]]) if len(good) else math.inf)
        else:
            # So many jumps fall so many times as fast.
            share = need / (piece.jumps.number or 1)
            height = float(np.max(np.maximum(sizes + share, 0.0) / np.maximum(slopes * y, 1e-300)))
        return height * piece.period / (2.0 * math.pi)


def _least(heights: Floats, tilts: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Of each row: the place of the least height, and about the logarithm of the integral of moduli there."""
    places = np.argmin(heights, axis=1)
    return places, heights[np.arange(len(heights)), places] + np.log(tilts[places])
