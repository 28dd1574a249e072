r"""Decides who is in a step's sample."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from zetadp.mechanisms.sampling.source import RandomStream


def poisson_sample(units: int, probability: float, stream: RandomStream) -> NDArray[np.intp]:
    r"""The numbers of the units in a Poisson sample, ascending; often empty if few are expected.

    Uniforms are multiples of 2^-53 in (0, 1], so a unit joins with probability floor(2^53 q) / 2^53: at most q.

    Args:
      units: the number of units to sample from; >= 0.
      probability: q for each unit, in (0, 1].
    """
    return np.flatnonzero(stream.uniform(units) <= probability)
