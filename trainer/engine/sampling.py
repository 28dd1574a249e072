r"""Who is in a step's sample."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.source import RandomStream
from trainer.plan import PoissonSampling


def poisson_sample(sampling: PoissonSampling, stream: RandomStream) -> NDArray[Any]:
    r"""Row numbers of a Poisson sample, ascending, int64; often empty where the expected batch is small.

    Uniforms are multiples of 2^-53 in (0, 1], so a record joins with floor(2^53 q) / 2^53: at most q.
    """
    return np.flatnonzero(stream.uniform(sampling.records) <= sampling.probability)
