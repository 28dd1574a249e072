r"""THE REGISTRY of densities: what accountants know of each family of pairs. To add one: a module, and one name in ``DENSITIES``.

A mechanism states its privacy loss (``mechanisms.loss``); the density that knows this loss stands for it in every route.
"""

from __future__ import annotations

from accountants.densities.base import TINY, Calls, Density, Floats, LossLaw, RatioNodes
from accountants.densities.gaussian import GaussianDensity
from accountants.densities.laplace import LaplaceDensity
from accountants.densities.location import LocationDensity
from accountants.densities.response import ResponseDensity
from mechanisms.loss import PrivacyLoss

GAUSSIAN, LAPLACE, RESPONSE = GaussianDensity(), LaplaceDensity(), ResponseDensity()
DENSITIES: tuple[Density, ...] = (GAUSSIAN, LAPLACE, RESPONSE)


def density_of(loss: PrivacyLoss) -> tuple[Density, float] | None:
    """(the density whose pairs have this loss, their distance), or None where none is known here.

    >>> from mechanisms import LaplaceLoss
    >>> density_of(LaplaceLoss(0.5)) == (LAPLACE, 0.5)
    True
    """
    return next(((density, distance) for density in DENSITIES if (distance := density.distance(loss)) is not None), None)


__all__ = [
    "DENSITIES",
    "GAUSSIAN",
    "LAPLACE",
    "RESPONSE",
    "TINY",
    "Calls",
    "Density",
    "Floats",
    "LocationDensity",
    "LossLaw",
    "RatioNodes",
    "density_of",
]
