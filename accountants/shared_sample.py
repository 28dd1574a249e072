r"""Several releases of one sample as one release of it: sum of the squared Gaussian distances, or of the Laplace distances.

The sample is drawn once, so these releases aren't a composition of sampled ones: who is in it is the same for all. proofs/pairs.md, Lemma 5
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast, final

from zetadp.mechanisms import AnyAccounted, Gaussian, Laplace, Sensitivity
from zetadp.mechanisms.base import LARGEST_SCALE, SMALLEST_SCALE, Adjacency, Assumption, Facts, Mechanism, PrivacyUnit, Step
from zetadp.mechanisms.declared.integers import IntegerNoise
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.local import LocalRelease
from zetadp.mechanisms.loss import GaussianLoss, JointLoss, LaplaceLoss

MOST_RELEASES = 10**15
"""Of one sample."""


@final
@dataclass(frozen=True, slots=True)
class GaussianWithLaplace:
    """Releases of both kinds of noise of one sample: takes a mechanism's place in a leaf.

    Attributes:
      gaussian: what the releases of Gaussian noise amount to.
      laplace: what those of Laplace noise do.
    """

    kind: ClassVar[str] = "gaussian_with_laplace"
    CAN_BE_SAMPLED: ClassVar[bool] = True
    FACTS: ClassVar[Facts] = Facts(
        summary="Gaussian and Laplace noise on several vectors that are computed from the same records.",
        assumptions=(Assumption.INDEPENDENT_NOISE, Assumption.SENSITIVITY_AS_COMPUTED),
        sources=("Zhu, Dong and Wang 2022, arXiv:2106.08567",),
        errata=(),
        proof="pairs.md",
    )

    gaussian: Gaussian
    laplace: Laplace

    @property
    def neighbours(self) -> tuple[Adjacency, PrivacyUnit]:
        return self.gaussian.neighbours

    def privacy_loss(self) -> JointLoss:
        return JointLoss(self.gaussian.privacy_loss().distance, self.laplace.privacy_loss().distance)

    def contribution(self) -> float | None:
        """The least shift of this loss's pair that goes as far as what one unit contributes in both; None if either isn't stated."""
        loss, gaussian, laplace = self.privacy_loss(), self.gaussian.sensitivity.l2_contribution, self.laplace.sensitivity.l1_contribution
        if gaussian is None or laplace is None:
            return None
        # Both noises have scale 1.
        return max(gaussian, laplace * (loss.mu / loss.epsilon) * (1.0 + 1e-15))

    def derivation(self) -> tuple[Step, ...]:
        return (*self.gaussian.derivation(), *self.laplace.derivation())


Contributing = Mechanism | GaussianWithLaplace | IntegerNoise
"""What may state how far one unit alone moves the value."""


def contribution(mechanism: Contributing, norm: str) -> float | None:
    """The shift of what one unit contributes; None if that isn't stated, or not in the norm that the noise needs."""
    if isinstance(mechanism, GaussianWithLaplace):
        return mechanism.contribution()
    if isinstance(mechanism, IntegerNoise):
        return None if mechanism.contribution is None else mechanism.contribution / mechanism.law.scale
    given = mechanism.sensitivity
    if (given.l1_contribution if norm == "l1" else given.l2_contribution) is None:
        return None
    alone = mechanism.alone()
    assert alone is not None
    return alone.privacy_loss().distance


def needed(mechanism: Contributing, norm: str) -> str:
    """The fields that ``contribution`` needs."""
    if isinstance(mechanism, GaussianWithLaplace):
        return "sensitivity.l2_contribution and l1_contribution"
    return "contribution" if isinstance(mechanism, IntegerNoise) else f"sensitivity.{norm}_contribution"


Combined = AnyAccounted | GaussianWithLaplace
"""What several releases of one sample amount to."""


def combined(kind: str, releases: Iterable[tuple[AnyAccounted, int]]) -> tuple[Combined, int]:
    r"""(the one mechanism that these of one sample amount to, how many they are). A single release stays as it is.

    Args:
      kind: the sampling's, for errors.
      releases: each mechanism and how often it is released; the same adjacency and unit.
    Raises:
      InvalidParameter: several that aren't all Gaussian or Laplace noise, more than 10^15, or a distance beyond 1e50.

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
    kinds = [[part for part in noises if type(part[0].privacy_loss()) is loss] for loss in (GaussianLoss, LaplaceLoss)]
    if sum(map(len, kinds)) < len(parts):
        names = " and ".join(dict.fromkeys(one.kind for one in parts))
        raise InvalidParameter(f"{kind}.event", "a single release, or several of Gaussian or Laplace noise", names)
    gaussian, laplace = (_as_one(kind, of_kind, norm) if of_kind else None for of_kind, norm in zip(kinds, ("l2", "l1"), strict=True))
    if gaussian is not None and laplace is not None:
        return GaussianWithLaplace(cast("Gaussian", gaussian), cast("Laplace", laplace)), total
    return cast("Gaussian | Laplace", gaussian or laplace), total


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


def derivation(mechanism: Combined, releases: int) -> tuple[Step, ...]:
    """The lines of a derivation that say what the one mechanism is."""
    if isinstance(mechanism, GaussianWithLaplace):
        return tuple(step for one in (mechanism.gaussian, mechanism.laplace) for step in derivation(one, releases))
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
