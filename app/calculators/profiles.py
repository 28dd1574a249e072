r"""Profiles at the requested points, without HTTP: the command line and the REST routes call the same functions."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar, final

from zetadp.accountants import Event, PrivacyProfile, conversions, deadline, neighbourhood, profile
from zetadp.accountants.attack_sentences import Neighbours, guessing_sentence, naming_sentence
from zetadp.accountants.conversions import PosteriorBound
from zetadp.app.calculators.caveats import caveats_of
from zetadp.app.calculators.points import epsilon_at
from zetadp.app.calculators.schemas import DeltaAt, EpsilonAt, PosteriorAt, Profile, ProfileRequest, RdpAt, SuccessAt, TradeOffAt
from zetadp.mechanisms import Step

_Point = TypeVar("_Point")
_Answer = TypeVar("_Answer")


@final
class Answers:
    """One event's profile and all of its answers: each is computed only once."""

    def __init__(self, event: Event, accountant: str) -> None:
        begun = time.thread_time()
        self._profile = profile(event, accountant)
        self._neighbours = neighbourhood(event)
        self._caveats = caveats_of(event)
        self._derivation: tuple[Step, ...] | None = None
        self._advantage: float | None = None
        self._delta: dict[float, DeltaAt] = {}
        self._epsilon: dict[float | str, EpsilonAt] = {}
        self._rdp: dict[float, RdpAt] = {}
        self._trade_off: dict[float, TradeOffAt] = {}
        self._success: dict[float, SuccessAt] = {}
        self._posterior: dict[PosteriorAt, PosteriorBound] = {}
        self._untold_seconds = time.thread_time() - begun

    @property
    def count(self) -> int:
        """The number of cached answers."""
        kept = (self._delta, self._epsilon, self._rdp, self._trade_off, self._success, self._posterior)
        return sum(map(len, kept)) + (self._advantage is not None) + (self._derivation is not None)

    def at(self, points: ProfileRequest) -> Profile:
        """The profile at these points; the request's event must be this one. Raises the accountants' errors."""
        begun = time.thread_time() - self._untold_seconds
        self._untold_seconds = 0.0
        profile = self._profile
        if points.advantage and self._advantage is None:
            self._advantage = conversions.advantage(profile)
        if points.derivation and self._derivation is None:
            self._derivation = profile.derivation()
        return Profile(
            adjacency=None if self._neighbours is None else self._neighbours[0],
            unit=None if self._neighbours is None else self._neighbours[1],
            caveats=self._caveats,
            delta=_kept(self._delta, points.epsilons, self._delta_at),
            epsilon=_kept(self._epsilon, points.deltas, self._epsilon_at),
            rdp=_kept(self._rdp, points.orders, lambda order: RdpAt(order=order, value=profile.rdp(order))),
            gdp_mu=profile.gdp_mu,
            trade_off=_kept(self._trade_off, points.alphas, self._trade_off_at),
            advantage=self._advantage if points.advantage else None,
            bayes_success=_kept(self._success, points.priors, self._success_at),
            posterior=_kept(self._posterior, points.posteriors, self._posterior_at),
            route=profile.route,
            derivation=self._derivation if points.derivation else None,
            processor_seconds=time.thread_time() - begun,  # the arguments before are evaluated first
        )

    def _delta_at(self, epsilon: float) -> DeltaAt:
        bound = self._profile.delta(epsilon)
        return DeltaAt(epsilon=epsilon, lower=bound.lower, upper=bound.upper, log_upper=bound.log_upper, route=bound.route)

    def _epsilon_at(self, delta: float | str) -> EpsilonAt:
        bound = epsilon_at(self._profile, delta)
        return EpsilonAt(delta=delta, lower=bound.lower, upper=bound.upper, route=bound.route)

    def _trade_off_at(self, alpha: float) -> TradeOffAt:
        return trade_off_at(self._profile, alpha, self._neighbours)

    def _success_at(self, prior: float) -> SuccessAt:
        success = conversions.bayes_success(self._profile, prior)
        return SuccessAt(prior=prior, success=success, sentence=guessing_sentence(prior, success, self._neighbours))

    def _posterior_at(self, asked: PosteriorAt) -> PosteriorBound:
        return conversions.posterior_bound(self._profile, asked.prior, asked.failure_probability)


def _kept(known: dict[_Point, _Answer], points: tuple[_Point, ...], answer: Callable[[_Point], _Answer]) -> tuple[_Answer, ...]:
    for point in points:
        if point not in known:
            deadline.check()
            known[point] = answer(point)
    return tuple(known[point] for point in points)


def trade_off_at(profile: PrivacyProfile, alpha: float, neighbours: Neighbours | None) -> TradeOffAt:
    """A point of the trade-off curve with what it means. Raises the accountants' errors."""
    beta = profile.trade_off(alpha)
    return TradeOffAt(alpha=alpha, beta=beta, sentence=naming_sentence(alpha, beta, neighbours))


def compute_profile(request: ProfileRequest) -> Profile:
    """The profile of the request's event at the requested points. Raises the accountants' errors."""
    return Answers(request.event, request.accountant).at(request)
