r"""Which engine inverts a composed loss: the compiled one (``_contour.c``) where there was a compiler, or NumPy's (``inversion.py``).

Both make the same choices and prove the same bounds (proofs/contour.md). The compiled one knows Gaussian mixtures, whole Laplace releases
and whole Gaussian ones; whatever is composed with anything else is NumPy's.
"""

from __future__ import annotations

from typing import Any, Final

from zetadp.accountants import deadline
from zetadp.accountants.densities.compiled import compiled
from zetadp.accountants.densities.transforms import Transform
from zetadp.accountants.routes.contour.inversion import Direction

COMPILED: Any = compiled("zetadp.accountants.routes.contour._contour", ("Direction",))

MOST_TRANSFORMS: Final = 10_000
"""A compiled step runs through all of them without a look at the time limit."""


def direction(transforms: tuple[Transform, ...], gaussian: float) -> Direction:
    """The composed loss in one direction of neighbours. Arguments as those of ``inversion.Direction``."""
    if COMPILED is not None and len(transforms) <= MOST_TRANSFORMS:
        plain = tuple(transform.plain for transform in transforms)
        if None not in plain:
            return COMPILED.Direction(plain, gaussian, deadline.check)
    return Direction(transforms, gaussian)
