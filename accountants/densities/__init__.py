r"""What accountants know about each family of dominating pairs. To add one, add a module here with a ``DENSITY``; it is then found.

A mechanism states its privacy loss (``mechanisms.loss``); every route uses the density that belongs to this type of loss.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from importlib import import_module

from zetadp.accountants.densities import gaussian, laplace, response
from zetadp.accountants.densities.base import TINY, Calls, Density, Floats, LossLaw, RatioNodes
from zetadp.accountants.densities.location import LocationDensity
from zetadp.mechanisms.loss import PrivacyLoss

GAUSSIAN, LAPLACE, RESPONSE = gaussian.DENSITY, laplace.DENSITY, response.DENSITY


def _found() -> Mapping[type[PrivacyLoss], Density]:
    modules = [import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    densities = [density for module in modules if isinstance(density := getattr(module, "DENSITY", None), Density)]
    by_loss = {density.loss_type: density for density in densities}
    assert len(by_loss) == len(densities)  # no loss type belongs to two densities
    return by_loss


DENSITIES = _found()


def density_of(loss: PrivacyLoss) -> Density | None:
    """The density whose pairs have this loss at the loss's distance; None if none is known here.

    >>> from zetadp.mechanisms import LaplaceLoss
    >>> density_of(LaplaceLoss(0.5))
    LaplaceDensity()
    """
    found = DENSITIES.get(type(loss))
    return None if found is None else found.of(loss)


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
