r"""What the routes need from a family of dominating pairs. Each family is one file; nothing outside this package distinguishes families.

Pairs are given as their halves, P above Q: two mixtures of shifted copies. The methods are for a pair that is always shown, in this order;
``pairs.Pair`` covers the rest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.densities.sums.profile import Sum
from zetadp.accountants.densities.transforms import Transform, TransformUnavailable
from zetadp.mechanisms.loss import PrivacyLoss

Floats: TypeAlias = NDArray[np.float64]

TINY = 1e-300
"""Added to every error of a call: an underflowing product loses at most this much."""


@final
@dataclass(frozen=True)
class Calls:
    r"""Values at several epsilons, all of one shape.

    Attributes:
      lower: at most H_{e^eps}(P || Q).
      upper: at least H_{e^eps}(P || Q).
      tail: about e^eps Q(L > eps): H(eps') >= lower + tail (1 - e^{eps' - eps}) for every eps' ...
      doubt: ... except for the rounding of ``tail``, which this bounds.
    """

    lower: Floats
    upper: Floats
    tail: Floats
    doubt: Floats


@final
class LossLaw(NamedTuple):
    """An approximate distribution of L under P: losses in ascending order, their log weights, and the losses of positive probability."""

    losses: Floats
    log_weights: Floats
    atoms: tuple[float, ...]


@final
class RatioNodes(NamedTuple):
    """Quadrature nodes of Q with R = dP/dQ at each: the first four attributes of ``moments.PairMoments``."""

    log_weight: Floats
    log_ratio: Floats
    minus_one: Floats
    weighted_minus_one: Floats


class Density(ABC):
    """A family of pairs: shifted copies of one noise density of scale 1, or two points that swap their probabilities.

    Attributes:
      loss_type: the type of privacy loss that mechanisms state for these pairs.
      name: the noise's name, as used in sentences.
      norm: the norm in which a query's sensitivity bounds the distance of its pair.
      is_discrete: losses take only separate values: the moment function never decays.
      mixes: whether the halves of pairs may be mixtures: only of a noise.
      is_loose: whether Renyi divergences of what the pair stands for are smaller than the pair's, so that they may give a smaller bound.
      is_bound: whether the pair is only a bound of the release, so that it says nothing from below, and Renyi divergences may say more.
      has_atoms: the losses -distance and distance of a whole pair have positive probability.
      is_even: a whole pair, mirrored, is the same pair in the other order.
      exponential_tail: the share of a copy that lies above its shift a, if its density at every x > a is this share times e^{a - x}
        (1/2 for Laplace noise); None if the density has no such form.
      is_infinitesimal: losses are so small that e^L - 1 = L: then composing adds multiples of numbers, up to their scale.
      width: relative width to which the family's own curve is known, where that isn't rounding: no grid of it needs to be finer.
      is_laid_out: a curve is laid out only as far as it is asked for, so that what is far away is better not asked for in vain.
      is_normal: a whole pair at distance d has the ratio e^{d Z - d^2 / 2}, Z standard normal under its second half.
      has_transform: the pairs have a moment function whose inversion is proved (``transform``).
      dp_accounting_name: the noise's name in dp-accounting's ``from_<name>_mechanism``; None if it has no such noise.
    """

    loss_type: ClassVar[type[PrivacyLoss]]
    name: ClassVar[str]
    norm: ClassVar[Literal["l1", "l2"]]
    is_discrete: ClassVar[bool]
    mixes: ClassVar[bool] = True
    is_loose: ClassVar[bool] = False
    is_bound: ClassVar[bool] = False
    has_atoms: ClassVar[bool]
    is_even: ClassVar[bool] = True
    exponential_tail: ClassVar[float | None] = None
    is_infinitesimal: ClassVar[bool] = False
    width: ClassVar[float] = 0.0
    is_laid_out: ClassVar[bool] = False
    is_normal: ClassVar[bool] = False
    has_transform: ClassVar[bool] = False
    dp_accounting_name: ClassVar[str | None] = None

    def of(self, loss: PrivacyLoss) -> Density:
        """The family to which this loss belongs, where losses of its type have several."""
        del loss
        return self

    @abstractmethod
    def loss(self, distance: float) -> PrivacyLoss:
        """The privacy loss of the whole pair at this distance."""

    def ratio_error(self, upper: Mixture, lower: Mixture, order: float) -> float:
        """Relative error of both densities behind ``ratio_nodes``, besides quadrature and rounding."""
        del upper, lower, order
        return 0.0

    def gdp_mu(self, distance: float) -> float | None:
        """mu if the whole pair is N(mu, 1) against N(0, 1), so that such pairs compose into one; otherwise None."""
        return self.loss(distance).gdp_mu

    @abstractmethod
    def largest_loss(self, upper: Mixture, lower: Mixture) -> float:
        """The largest loss in either direction, rounded up; infinity if losses are unbounded."""

    @abstractmethod
    def calls(self, upper: Mixture, lower: Mixture, epsilons: Floats) -> Calls:
        """H_{e^eps}(P || Q) at each epsilon, with a proved error."""

    @abstractmethod
    def losses(self, upper: Mixture, lower: Mixture) -> LossLaw:
        """The distribution of the loss under P, for estimates."""

    @abstractmethod
    def ratio_nodes(self, upper: Mixture, lower: Mixture, order: float, *, upper_half: bool) -> RatioNodes | None:
        """Nodes for moments of dP/dQ at powers from 1 - order to order, or None if there would be too many.

        Args:
          upper_half: whether they cover only the half-line where P exceeds Q.
        """

    def transform(self, upper: Mixture, lower: Mixture, count: int, improbable: float) -> Transform:
        """The moment function of one release.

        Args:
          count: how often it is released.
          improbable: negative logarithm of the probability of outcomes that may be left out.
        Raises:
          TransformUnavailable: there is none for these numbers, or for this family (``has_transform``).
        """
        del upper, lower, count, improbable
        raise TransformUnavailable(f"no moment function of {self.name} is known here")

    def repeated(self, distance: float, count: int, shown: float) -> Sum | None:
        """The exact composed loss of ``count`` pairs at this distance; None if no short sum for them is known here.

        Args:
          shown: probability that a pair is shown at all.
        """
        del distance, count, shown
        return None
