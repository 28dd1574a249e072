r"""What a noise density f on the line provides; ``curve.py`` and ``quadrature.py`` compute the answers about mixtures from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from zetadp.accountants.densities.base import Floats
from zetadp.accountants.densities.mixtures import Mixture


class Noise(ABC):
    r"""A log-concave density f, symmetric around 0, of scale 1. S is its upper tail.

    Attributes:
      underflow: distance from every shift beyond which no search goes: tails underflow there, or nearly do.
      reach: distance beyond the outermost shifts that a quadrature of the loss covers.
    """

    underflow: ClassVar[float]
    reach: ClassVar[float]

    @abstractmethod
    def tail(self, x: Floats, log_factor: Floats) -> tuple[Floats, Floats]:
        """(e^log_factor S(x), bound on the relative error of S).

        If the factor or the tail leaves the range of floats, the two are combined before the exponential is taken.
        """

    @abstractmethod
    def relative(self, x: Floats, shift: float) -> tuple[Floats, Floats]:
        """(log f(x - shift) - log f(x), bound on its error in units of ``UNIT``)."""

    @abstractmethod
    def moment_relative(self, x: Floats, shift: float) -> Floats:
        """The same, as quadratures of moments compute it: without a bound and with different rounding."""

    @abstractmethod
    def log_density(self, x: Floats) -> Floats:
        """log f(x)."""

    def plateaus(self, upper: Mixture, lower: Mixture) -> tuple[float, float] | None:
        """A point below all shifts and one above, where the mixtures' log ratio is constant and the loss has atoms; otherwise None."""
        del upper, lower
        return None

    def closed_thresholds(self, upper: Mixture, lower: Mixture, epsilons: Floats) -> Floats | None:
        """Points where the log ratio is about epsilon, if a closed form gives them; otherwise None."""
        del upper, lower, epsilons
        return None

    @abstractmethod
    def table_nodes(self, shifts: list[float]) -> Floats:
        """Ascending points between which the log ratio of mixtures with these shifts, ascending, is nearly straight."""

    @abstractmethod
    def panel_width(self, span: float) -> float:
        """The largest width of a panel in a quadrature of the loss, for shifts this far apart."""

    @abstractmethod
    def moment_nodes(self, upper: Mixture, lower: Mixture, order: float, start: float) -> tuple[Floats, Floats] | None:
        """(x, log of f dx) for moments at powers from 1 - order to order; None if there would be too many.

        Args:
          start: the start of the half-line that they cover, or -infinity.
        """
