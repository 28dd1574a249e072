r"""Figures with 95 % intervals over victims: Clopper-Pearson for shares, the percentile bootstrap for means and medians."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast, final

import numpy as np
import scipy
from numpy.typing import NDArray
from torch import Generator, Tensor, randint

from zetadp.trainer.specs.findings.attacks import CONFIDENCE, AttackFigure, AttackName, Measure

RESAMPLES = 1000
_AT_ONCE = 2**22
"""Drawn indices held at a time."""

Numbers = NDArray[np.float64]


def clopper_pearson(successes: float, trials: float) -> tuple[float, float]:
    r"""The exact 95 % interval of a probability (Clopper and Pearson 1934).

    Args:
      successes: in [0, trials]; of dependent trials, rate * independent trials, which needn't be whole.
      trials: independent ones; > 0.

    >>> [round(end, 4) for end in clopper_pearson(0, 100)]
    [0.0, 0.0362]
    """
    error = 0.5 * (1.0 - CONFIDENCE)
    lower = 0.0 if successes <= 0.0 else float(scipy.special.betaincinv(successes, trials - successes + 1.0, error))
    upper = 1.0 if successes >= trials else float(scipy.special.betaincinv(successes + 1.0, trials - successes, 1.0 - error))
    return lower, upper


def bootstrap(values: Numbers, statistic: Callable[[Numbers], Numbers], source: np.random.Generator) -> tuple[float, float]:
    r"""The percentile interval of a statistic over resampled victims (Efron 1979).

    Args:
      values: one a victim (victims,).
      statistic: of the last axis of (resamples, victims).
      source: draws the resamples.
    """
    drawn: list[Numbers] = []
    count, left = len(values), RESAMPLES
    while left:
        rows = min(left, max(1, _AT_ONCE // count))
        drawn.append(statistic(values[source.integers(count, size=(rows, count))]))
        left -= rows
    error = 0.5 * (1.0 - CONFIDENCE)
    lower, upper = np.quantile(np.concatenate(drawn), [error, 1.0 - error])
    return float(lower), float(upper)


@final
class Figures:
    """Makes figures of what was measured, one number or verdict a victim."""

    def __init__(self, generator: Generator) -> None:
        self._source = np.random.default_rng(int(randint(2**62, (), generator=generator, device=generator.device)))

    def mean(self, attack: AttackName, measure: Measure, values: Tensor, *, chance: float) -> AttackFigure:
        """Of numbers (victims,)."""
        return self._of_numbers(attack, measure, values, lambda rows: cast("Numbers", rows.mean(axis=-1)), chance)

    def median(self, attack: AttackName, measure: Measure, values: Tensor, *, chance: float) -> AttackFigure:
        """Of numbers (victims,)."""
        return self._of_numbers(attack, measure, values, lambda rows: cast("Numbers", np.median(rows, axis=-1)), chance)

    def share(self, attack: AttackName, measure: Measure, hits: Tensor, *, chance: float, victims: int | None = None) -> AttackFigure:
        r"""Of verdicts, bool (trials,).

        Args:
          attack, measure: what was tried.
          hits: of all trials.
          chance: of somebody who sees nothing.
          victims: where several trials share a victim: their interval is then that of as few trials as there are victims, as if all of a
            victim's came out alike, which is the widest.
        """
        trials = len(hits)
        value = float(hits.double().mean())
        independent = trials if victims is None else victims
        lower, upper = clopper_pearson(value * independent, independent)
        return AttackFigure(
            attack=attack, measure=measure, value=value, lower=min(lower, value), upper=max(upper, value), chance=chance, trials=trials
        )

    def _of_numbers(
        self, attack: AttackName, measure: Measure, values: Tensor, statistic: Callable[[Numbers], Numbers], chance: float
    ) -> AttackFigure:
        numbers = values.detach().double().cpu().numpy()
        value = float(statistic(numbers[None])[0])
        lower, upper = bootstrap(numbers, statistic, self._source)
        # Rounding, and few victims, can put the estimate a hair outside the resamples' quantiles.
        return AttackFigure(
            attack=attack,
            measure=measure,
            value=value,
            lower=min(lower, value),
            upper=max(upper, value),
            chance=chance,
            trials=len(numbers),
        )
