r"""Several releases of one sample as one release of it: sum of the squared Gaussian distances, or of the Laplace distances.

The sample is drawn once, so these releases aren't a composition of sampled ones: who is in it is the same for all. proofs/pairs.md, Lemma 5
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from zetadp.mechanisms import AnyAccounted, Gaussian, Laplace, Sensitivity
from zetadp.mechanisms.base import LARGEST_SCALE, SMALLEST_SCALE, Mechanism, Step
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.local import LocalRelease
from zetadp.mechanisms.loss import GaussianLoss, LaplaceLoss

MOST_RELEASES = 10**15
"""Of one sample."""


def combined(kind: str, releases: Iterable[tuple[AnyAccounted, int]]) -> tuple[AnyAccounted, int]:
    r"""(the one mechanism that these of one sample amount to, how many they are). A single release stays as it is.

    Args:
      kind: the sampling's, for errors.
      releases: each mechanism and how often it is released; the same adjacency and unit.
    Raises:
      InvalidParameter: several that aren't all Gaussian or all Laplace noise, more than 10^15, or a distance beyond 1e50.

    >>> noise = Gaussian(std=2.0, sensitivity=Sensitivity(l2=1.0, adjacency="add_remove", unit="record"))
    >>> combined("poisson_sampled", [(noise, 16)])[0].privacy_loss()
    GaussianLoss(mu=2.0)
    """
    parts: dict[AnyAccounted, int] = {}
    for mechanism, count in releases:
        parts[mechanism] = parts.get(mechanism, 0) + count
    total = sum(parts.values())
    if total == 1:
        return next(iter(parts)), total
    if total > MOST_RELEASES:
        raise InvalidParameter(f"{kind}.event", f"at most {MOST_RELEASES:.0e} releases of one sample", f"{total:.3e}")
    noises = [(one, count) for one, count in parts.items() if isinstance(one, Mechanism) and not isinstance(one, LocalRelease)]
    losses = {type(one.privacy_loss()) for one, _ in noises}
    if len(noises) < len(parts) or losses not in ({GaussianLoss}, {LaplaceLoss}):
        names = " and ".join(dict.fromkeys(one.kind for one in parts))
        raise InvalidParameter(f"{kind}.event", "a single release, or several that are all of Gaussian or all of Laplace noise", names)
    return _as_one(kind, noises, "l2" if losses == {GaussianLoss} else "l1"), total


def _as_one(kind: str, noises: Sequence[tuple[Mechanism, int]], norm: str) -> Gaussian | Laplace:
    """Noise of scale 1 on all of their vectors, each divided by its own noise's scale and set one after the other."""
    alone = [
        (one.alone() if (one.sensitivity.l2_contribution if norm == "l2" else one.sensitivity.l1_contribution) else None, count)
        for one, count in noises
    ]
    bounds = {norm: _length(kind, norm, noises)}
    stated = [(one, count) for one, count in alone if one is not None]
    if len(stated) == len(alone):
        bounds[f"{norm}_contribution"] = _length(kind, norm, stated)
    given = noises[0][0].sensitivity
    sensitivity = Sensitivity.model_validate(bounds | {"adjacency": given.adjacency, "unit": given.unit})
    return Gaussian(std=1.0, sensitivity=sensitivity) if norm == "l2" else Laplace(scale=1.0, sensitivity=sensitivity)


def derivation(mechanism: AnyAccounted, releases: int) -> tuple[Step, ...]:
    """The line of a derivation that says what the one mechanism is."""
    name, sizes = ("mu", "root of the sum of (l2 / std)^2") if isinstance(mechanism, Gaussian) else ("epsilon", "sum of l1 / scale")
    formula = f"{sizes}: {releases} releases of one sample are one of all their vectors"
    return (Step(symbol=name, value=mechanism.privacy_loss().distance, formula=formula, source="proofs/pairs.md, Lemma 5"),)


def _length(kind: str, norm: str, noises: Sequence[tuple[Mechanism, int]]) -> float:
    """The norm of all moves together, in scales of the noise; to a few units in the last place, as every distance is."""
    moves = [(one.privacy_loss().distance, count) for one, count in noises]
    found = math.sqrt(math.fsum(count * d * d for d, count in moves)) if norm == "l2" else math.fsum(count * d for d, count in moves)
    if not found <= LARGEST_SCALE:
        raise InvalidParameter(f"{kind}.event", f"releases that together move by at most {LARGEST_SCALE:g} scales of their noise", found)
    return max(found, SMALLEST_SCALE)
