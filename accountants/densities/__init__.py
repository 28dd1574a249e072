r"""THE REGISTRY of densities: what accountants know of each family of pairs. To add one: a module, and one name in ``DENSITIES``.

A mechanism states its privacy loss (``mechanisms.loss``); the density that knows this loss stands for it in every route.
"""

from __future__ import annotations

from collections.abc import Mapping

from accountants.densities.base import TINY, Calls, Density, Floats, LossLaw, RatioNodes
from accountants.densities.gaussian import GaussianDensity
from accountants.densities.laplace import LaplaceDensity
from accountants.densities.location import LocationDensity
from accountants.densities.response import ResponseDensity
from mechanisms.loss import GaussianLoss, LaplaceLoss, PrivacyLoss, ResponseLoss

GAUSSIAN, LAPLACE, RESPONSE = GaussianDensity(), LaplaceDensity(), ResponseDensity()
DENSITIES: Mapping[type[PrivacyLoss], Density] = {GaussianLoss: GAUSSIAN, LaplaceLoss: LAPLACE, ResponseLoss: RESPONSE}


def density_of(loss: PrivacyLoss) -> Density | None:
    """The density whose pairs have such a loss, at the loss's distance; None where none is known here.

    >>> density_of(LaplaceLoss(0.5))
    LaplaceDensity()
    """
    return DENSITIES.get(type(loss))


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
