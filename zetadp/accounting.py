r"""The commonest questions about privacy, each in one call.

Every answer is an interval with the name of its proof's route; its safe end is the guarantee. A question that these functions have no
word for (other neighbours, other units, several mechanisms, samples of fixed size) is asked with an event and ``profile``.
"""

from __future__ import annotations

from typing import final

from zetadp.accountants import accountant_named, profile
from zetadp.accountants.calibration import NoiseScale, Parameter, Steps, Target, solve
from zetadp.accountants.conversions import advantage, bayes_success, true_positive_rate
from zetadp.accountants.events import Event
from zetadp.accountants.notions import convert
from zetadp.accountants.profile import Bound, DeltaBound, PrivacyProfile, check_delta, check_epsilon
from zetadp.accountants.short_forms import complex_gaussian, dp_sgd, gaussian, laplace
from zetadp.mechanisms.base import Value

__all__ = [
    "AttackRisk",
    "Calibrated",
    "attack_risk",
    "complex_gaussian",
    "convert",
    "delta",
    "dp_sgd",
    "epsilon",
    "gaussian",
    "laplace",
    "noise_multiplier",
    "profile",
    "steps",
]


@final
class Calibrated(Value):
    r"""The least safe value that was found to meet a target, and the proof that it does.

    Attributes:
      value: the noise multiplier, or the number of steps.
      epsilon: the interval that holds epsilon at this value and the target's delta; its upper end is at most the target.
      misses_at: the nearest less safe value that was tried and isn't proved to meet the target; None if there is none.
      event: what was accounted, with this value.
    """

    value: float
    epsilon: Bound
    misses_at: float | None
    event: Event

    def __float__(self) -> float:
        return self.value

    def __int__(self) -> int:
        return int(self.value)


@final
class AttackRisk(Value):
    r"""How well anybody can tell from everything released whether one unit's data were used: each is an upper bound.

    Attributes:
      advantage: true positive rate minus false positive rate of the best test.
      true_positive_rate: of the best test with ``false_positive_rate``.
      success: probability of the right answer if the unit was in with probability ``prior``.
    """

    advantage: float
    false_positive_rate: float
    true_positive_rate: float
    prior: float
    success: float


def epsilon(*, noise_multiplier: float, delta: float, sampling_probability: float = 1.0, steps: int = 1) -> Bound:
    r"""The interval that holds epsilon at ``delta`` of DP-SGD: ``steps`` noisy sums, each of a Poisson sample.

    Args:
      noise_multiplier: standard deviation of each real component of the noise, divided by the clipping bound; in [1e-50, 1e50].
      delta: in (0, 1).
      sampling_probability: with which each record joins a sample, independently; in [1e-50, 1]. Fixed-size samples have another guarantee.
      steps: noisy sums that are released, >= 1.
    Raises:
      InvalidParameter: a number is out of its range.
    Assumes: neighbours differ by one record that one of them lacks; for others see ``profile``.

    >>> found = epsilon(noise_multiplier=1.0, sampling_probability=0.01, steps=1000, delta=1e-5)
    >>> round(found.lower, 5), round(found.upper, 5), found.route
    (1.82824, 1.82824, 'contour')
    """
    return profile(dp_sgd(noise_multiplier=noise_multiplier, sampling_probability=sampling_probability, steps=steps)).epsilon(delta)


def delta(*, noise_multiplier: float, epsilon: float, sampling_probability: float = 1.0, steps: int = 1) -> DeltaBound:
    r"""The interval that holds delta at ``epsilon`` >= 0; the other arguments, errors and assumptions are those of ``epsilon``.

    >>> found = delta(noise_multiplier=1.0, epsilon=1.0)
    >>> round(found.upper, 9)
    0.126936738
    """
    return profile(dp_sgd(noise_multiplier=noise_multiplier, sampling_probability=sampling_probability, steps=steps)).delta(epsilon)


def noise_multiplier(*, epsilon: float, delta: float, sampling_probability: float = 1.0, steps: int = 1) -> Calibrated:
    r"""The least noise multiplier with which DP-SGD is proved to stay at or below ``epsilon`` at ``delta``.

    Raises:
      InvalidParameter: a number is out of its range.
      CalibrationFailed: no noise multiplier in [1e-50, 1e50] is proved to meet the target.

    >>> found = noise_multiplier(epsilon=2.0, delta=1e-5, sampling_probability=0.01, steps=1000)
    >>> round(found.value, 4), found.epsilon.upper <= 2.0
    (0.9591, True)
    """
    event = dp_sgd(noise_multiplier=1.0, sampling_probability=sampling_probability, steps=steps)
    return _solved(event, NoiseScale(), epsilon, delta)


def steps(*, noise_multiplier: float, epsilon: float, delta: float, sampling_probability: float = 1.0) -> Calibrated:
    r"""The most steps of DP-SGD that are proved to stay at or below ``epsilon`` at ``delta``.

    Raises:
      InvalidParameter: a number is out of its range.
      CalibrationFailed: one step alone isn't proved to meet the target.

    >>> int(steps(noise_multiplier=1.0, epsilon=2.0, delta=1e-5, sampling_probability=0.01))
    1202
    """
    return _solved(dp_sgd(noise_multiplier=noise_multiplier, sampling_probability=sampling_probability), Steps(), epsilon, delta)


def attack_risk(of: Event | PrivacyProfile, *, prior: float = 0.5, false_positive_rate: float = 0.01) -> AttackRisk:
    r"""What an attacker can find out at most about one unit's presence.

    Args:
      of: an event, or its profile where that is at hand.
      prior: the attacker's probability beforehand that the unit's data were used; in (0, 1).
      false_positive_rate: the rate at which the attacker may accuse those whose data weren't; in (0, 1).
    Raises:
      InvalidParameter: a rate or a prior is out of its range.

    >>> risk = attack_risk(dp_sgd(noise_multiplier=1.0, sampling_probability=0.01, steps=1000))
    >>> round(risk.success, 3), round(risk.true_positive_rate, 3)
    (0.581, 0.029)
    """
    found = of if isinstance(of, PrivacyProfile) else profile(of)
    return AttackRisk(
        advantage=advantage(found),
        false_positive_rate=false_positive_rate,
        true_positive_rate=true_positive_rate(found, false_positive_rate),
        prior=prior,
        success=bayes_success(found, prior),
    )


def _solved(event: Event, parameter: Parameter, epsilon: float, delta: float) -> Calibrated:
    check_epsilon(epsilon)
    check_delta(delta)
    accountant = accountant_named("auto")
    solution = solve(event, parameter, Target(epsilon=epsilon, delta=delta), accountant)
    reached = accountant.profile(solution.event).epsilon(delta)
    return Calibrated(value=solution.value, epsilon=reached, misses_at=solution.misses_at, event=solution.event)
