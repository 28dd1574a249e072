r"""Events of the commonest questions, from the numbers that people know: what they expand to is an ordinary event that says everything.

Noise multipliers are relative to the sensitivity, so the sensitivity here is 1. Neighbours differ in one record that one of them lacks
(``add_remove``), as Poisson sampling is usually accounted; a question about other neighbours or units is asked with an event.
"""

from __future__ import annotations

from numbers import Real

from zetadp.accountants.events import Event, PoissonSampled, Release, Repeated
from zetadp.mechanisms.base import LARGEST_SCALE, SMALLEST_SCALE, Adjacency, Sensitivity
from zetadp.mechanisms.complex_gaussian import ComplexGaussian
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.gaussian import Gaussian
from zetadp.mechanisms.laplace import Laplace

MOST_STEPS = 10**9


def dp_sgd(*, noise_multiplier: float, sampling_probability: float = 1.0, steps: int = 1) -> Event:
    r"""``steps`` releases of a sum of clipped gradients with Gaussian noise, each over a Poisson sample of the records.

    The noise is real, or complex and circular: the guarantee is the same, since a noise multiplier is per real component. With probability
    1 and one step it is the Gaussian mechanism.

    Args:
      noise_multiplier: standard deviation of each real component of the noise, divided by the clipping bound; in [1e-50, 1e50].
      sampling_probability: with which each record joins a sample, independently; in [1e-50, 1].
      steps: noisy sums that are released, >= 1.
    Raises:
      InvalidParameter: a number is out of its range.

    >>> dp_sgd(noise_multiplier=1.0, sampling_probability=0.01, steps=1000).count
    1000
    """
    multiplier = _scale("noise_multiplier", noise_multiplier)
    once = Release(mechanism=Gaussian(std=multiplier, sensitivity=_one(l2=1.0)))
    return _repeated(once, sampling_probability, steps)


def gaussian(*, noise_multiplier: float) -> Event:
    """One release with Gaussian noise; ``noise_multiplier`` as in ``dp_sgd``."""
    return dp_sgd(noise_multiplier=noise_multiplier)


def complex_gaussian(*, noise_multiplier: float, correlation: float = 0.0) -> Event:
    r"""One release of complex values with complex Gaussian noise.

    Args:
      noise_multiplier: standard deviation of the real part, which is that of the imaginary part, divided by the l2 sensitivity.
      correlation: of the two parts; in (-1, 1), 0 for circular noise.
    Raises:
      InvalidParameter: a number is out of its range.
    """
    multiplier = _scale("noise_multiplier", noise_multiplier)
    if not -1.0 < _number("correlation", correlation) < 1.0:
        raise InvalidParameter("correlation", "in (-1, 1)", correlation)
    return Release(mechanism=ComplexGaussian(std=multiplier, correlation=correlation, sensitivity=_one(l2=1.0)))


def laplace(*, noise_multiplier: float) -> Event:
    """One release with Laplace noise of scale b; ``noise_multiplier`` is b divided by the l1 sensitivity, so epsilon is its reciprocal."""
    return Release(mechanism=Laplace(scale=_scale("noise_multiplier", noise_multiplier), sensitivity=_one(l1=1.0)))


def _repeated(once: Event, sampling_probability: float, steps: int) -> Event:
    if not SMALLEST_SCALE <= _number("sampling_probability", sampling_probability) <= 1.0:
        raise InvalidParameter("sampling_probability", f"in [{SMALLEST_SCALE!r}, 1]", sampling_probability)
    if not 1 <= _number("steps", steps) <= MOST_STEPS or int(steps) != steps:
        raise InvalidParameter("steps", f"a whole number from 1 to {MOST_STEPS}", steps)
    sampled = once if sampling_probability == 1.0 else PoissonSampled(probability=float(sampling_probability), event=once)
    return sampled if steps == 1 else Repeated(count=int(steps), event=sampled)


def _one(**norm: float) -> Sensitivity:
    return Sensitivity(**norm, adjacency=Adjacency.ADD_REMOVE, unit="record")


def _scale(name: str, value: float) -> float:
    if not SMALLEST_SCALE <= _number(name, value) <= LARGEST_SCALE:
        raise InvalidParameter(name, f"in [{SMALLEST_SCALE!r}, {LARGEST_SCALE!r}]", value)
    return float(value)


def _number(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidParameter(name, "a number", value)
    return float(value)
