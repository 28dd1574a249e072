r"""The registry of accountants: functions from an event to a privacy profile. To add one, add a module and its name in ``ACCOUNTANTS``."""

from __future__ import annotations

from zetadp.accountants.accountant import Accountant
from zetadp.accountants.calibration import Target, calibrate, calibrate_scale
from zetadp.accountants.events import (
    Composed,
    Event,
    FixedSizeSampled,
    Grouped,
    NonPrivate,
    PoissonSampled,
    RandomlyAllocated,
    RandomlyWeighted,
    Release,
    Repeated,
    RepeatedAndSelected,
    Shuffled,
    TruncatedPoissonSampled,
    leaves,
    neighbourhood,
    non_private_reason,
    releases,
)
from zetadp.accountants.leaf import Leaf
from zetadp.accountants.profile import Bound, DeltaBound, PrivacyProfile
from zetadp.accountants.routes.auto import AutoAccountant
from zetadp.accountants.routes.closed.closed_form import GdpAccountant
from zetadp.accountants.routes.contour.contour import ContourAccountant
from zetadp.accountants.routes.fft.fft import FftAccountant
from zetadp.accountants.routes.lattice.lattice import LatticeAccountant
from zetadp.accountants.routes.pld import PldAccountant
from zetadp.accountants.routes.rdp.rdp import RdpAccountant
from zetadp.accountants.routes.single.single import SingleAccountant
from zetadp.mechanisms.errors import InvalidParameter

ACCOUNTANTS: tuple[Accountant, ...] = (
    AutoAccountant(),
    GdpAccountant(),
    SingleAccountant(),
    ContourAccountant(),
    LatticeAccountant(),
    FftAccountant(),
    RdpAccountant(),
    PldAccountant(),
)


def accountant_named(name: str) -> Accountant:
    """The accountant with this name. Raises InvalidParameter, listing the existing names, if there is none."""
    for accountant in ACCOUNTANTS:
        if accountant.name == name:
            return accountant
    raise InvalidParameter("accountant", "one of " + ", ".join(a.name for a in ACCOUNTANTS), name)


def profile(event: Event, accountant: str = "auto") -> PrivacyProfile:
    """The event's privacy profile by the named accountant.

    Raises:
      InvalidParameter: no accountant has this name.
      UnsupportedEvent: the accountant can't bound this event.

    >>> from zetadp.mechanisms import ComplexGaussian, Sensitivity
    >>> noise = ComplexGaussian(std=1.0, sensitivity=Sensitivity(l2=1.0, adjacency="add_remove", unit="record"))
    >>> round(profile(Release(mechanism=noise)).delta(1.0).upper, 9)
    0.126936738
    """
    return accountant_named(accountant).profile(event)


__all__ = [
    "ACCOUNTANTS",
    "Accountant",
    "Bound",
    "Composed",
    "DeltaBound",
    "Event",
    "FixedSizeSampled",
    "Grouped",
    "Leaf",
    "NonPrivate",
    "PoissonSampled",
    "PrivacyProfile",
    "RandomlyAllocated",
    "RandomlyWeighted",
    "Release",
    "Repeated",
    "RepeatedAndSelected",
    "Shuffled",
    "Target",
    "TruncatedPoissonSampled",
    "accountant_named",
    "calibrate",
    "calibrate_scale",
    "leaves",
    "neighbourhood",
    "non_private_reason",
    "profile",
    "releases",
]
