r"""From a clipped sum to its release through the plan's mechanism, and from there to a gradient.

Everything after ``release`` is post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, final

import torch
from torch import Tensor
from torch.nn.functional import pad

from zetadp.mechanisms import ComplexGaussian, Gaussian, Laplace, NoiseSource
from zetadp.mechanisms.sampling import grid_normal
from zetadp.mechanisms.sampling.grid import FEW, LARGEST
from zetadp.trainer.engine.noise.noise_watch import NoiseWatch
from zetadp.trainer.engine.noise.torch_source import TorchSource
from zetadp.trainer.engine.noise.weighted import Encoding
from zetadp.trainer.specs.execution_plan import LARGEST_BOUND, SMALLEST_BOUND, AdaptiveClipping, Clipping, ScheduledClipping

NARROW_LOT = 1024
r"""Expected units in a sample up to which sum and noise are float32; beyond, float64.

The clipping margin covers the rounding of sums of at most 2048 terms, and a Poisson sample of 1024 expected units has more than 2048
with probability below e^-390 (Chernoff: exp(-1024 (2 ln 2 - 1))).
"""

PART = 2 * grid_normal.TOGETHER
"""Numbers that are released and looked at together, a multiple of those whose rest is drawn together. Each part costs time besides its
numbers, and memory for them: vectors of no more than two such parts are taken in halves of them."""

HELD = LARGEST / 2.0
"""In units of the noise's scale. Half, for the contraction and rounding before a release compares with ``LARGEST``."""


class Clipped(Protocol):
    """The result of clipping one sample; none of it may leave the process before ``release``."""

    @property
    def total(self) -> Tensor:
        """Sum of the clipped gradients, (coordinates,), real."""
        ...

    @property
    def within(self) -> int:
        """The number of units whose norm was at most the bound."""
        ...


@final
@dataclass(frozen=True)
class Gradient:
    """The released coordinates of the gradient, (coordinates,), and the bound of the next step, if no schedule says another."""

    values: Tensor
    next_bound: float


def query(clipping: Clipping, clipped: Clipped, sampled: int, bound: float) -> Tensor:
    r"""The real vector that is released: the sum, or for adaptive clipping the joint vector of ``AdaptiveClipping``, one longer.

    Args:
      sampled: units in the sample.
      bound: C_t, the bound that the sample was clipped to; where it is scheduled the sum is in units of it.
    """
    if isinstance(clipping, ScheduledClipping):
        return clipped.total.double() / bound
    if not isinstance(clipping, AdaptiveClipping):
        return clipped.total
    # In float64: the sum was clipped with a margin that covers its own rounding in float32, not that of another factor.
    sums = clipped.total.double() * (math.sqrt(1.0 - clipping.count_share) / bound)
    count = math.sqrt(clipping.count_share) * 2.0 * (clipped.within - sampled / 2.0)
    return torch.cat((sums, sums.new_tensor([count])))


def numbers(clipping: Clipping, coordinates: int) -> int:
    """Real numbers of a release, for this many released coordinates of the gradient."""
    return coordinates + (1 if isinstance(clipping, AdaptiveClipping) else 0)


def silence(clipping: Clipping, coordinates: int, like: Tensor) -> Tensor:
    """What arrives in a round in which no site sends anything, for this many released coordinates; float32, on the device of ``like``."""
    return like.new_zeros(numbers(clipping, coordinates))


def held(mechanism: ComplexGaussian | Gaussian | Laplace, vector: Tensor) -> Tensor:
    r"""The vector with each number held within what its release adds noise to as it is (``grid.LARGEST``), in place; no two move apart.

    Beyond, a release holds numbers itself, and what the test of the noise takes for noise would say so. Correlated complex noise holds
    pairs, where holding their numbers could move two vectors apart: nothing is done.
    """
    if vector.numel() <= FEW or (isinstance(mechanism, ComplexGaussian) and mechanism.correlation != 0.0):
        return vector
    reach = HELD * _least_scale(mechanism)
    return vector.clamp_(-reach, reach)


def may_be_held(mechanism: ComplexGaussian | Gaussian | Laplace, largest: float) -> bool:
    """Whether ``held`` would change numbers of at most this size, rounding included."""
    return not 1.01 * largest < HELD * _least_scale(mechanism)


def _least_scale(mechanism: ComplexGaussian | Gaussian | Laplace) -> float:
    return min(mechanism.stds) if isinstance(mechanism, ComplexGaussian) else mechanism.noise_scale


def release(mechanism: ComplexGaussian | Gaussian | Laplace, vector: Tensor, source: NoiseSource[Tensor]) -> Tensor:
    r"""Adds noise. Complex noise treats neighbouring pairs of reals as complex numbers, which changes no norm; see ``ParameterLayout``.

    A vector of odd length is padded with a zero, which no unit moves; its noise is dropped.
    """
    if not isinstance(mechanism, ComplexGaussian):
        return mechanism.release(vector, source)
    length = len(vector)
    paired = vector if length % 2 == 0 else pad(vector, (0, 1))
    return torch.view_as_real(mechanism.release(torch.view_as_complex(paired.reshape(-1, 2)), source)).reshape(-1)[:length]


def released_over(
    mechanism: ComplexGaussian | Gaussian | Laplace,
    vector: Tensor,
    source: NoiseSource[Tensor],
    watch: NoiseWatch | None,
    place: int,
    encoding: Encoding | None = None,
) -> Tensor:
    r"""``release`` of a vector that nobody needs afterwards, which ``watch`` sees: over the vector itself, a part at a time, where it can
    be done and there is more than one part.

    Args:
      encoding: what it makes of the vector is released; the result has the vector's type, to which it is rounded after the noise.
    """
    # A part that isn't finite is refused where it comes, after others were released and seen: such a vector is refused as a whole.
    fits = vector.is_contiguous() and takes_parts(mechanism, len(vector), vector.device)
    is_seen_so = watch is None or watch.takes_parts_of(vector if encoding is None else encoding.kept, place)
    if not fits or not is_seen_so or not source.all_finite(vector):
        return released_whole(mechanism, vector, source, watch, place, encoding)
    assert not isinstance(mechanism, Laplace)
    if watch is not None:
        watch.begin(vector, place)
    done = _released_at_once(mechanism, vector, source, watch, encoding)
    rest = vector[done:]
    rows = rest if encoding is None or not len(rest) else encoding.behind(done).over(rest)
    length = PART if len(vector) > 2 * PART else PART // 2
    for first in range(0, len(rest) - FEW, length):
        here = slice(first, None if first + length >= len(rest) - FEW else first + length)
        released = _released_part(mechanism, rows[here], source, len(vector))
        if watch is not None:
            watch.see_part(rows[here], released, done + first)
        rest[here].copy_(released)
        del released  # or it would stand beside the next one
    if watch is not None:
        watch.end(place)
    return vector


def released_whole(
    mechanism: ComplexGaussian | Gaussian | Laplace,
    vector: Tensor,
    source: NoiseSource[Tensor],
    watch: NoiseWatch | None,
    place: int,
    encoding: Encoding | None,
) -> Tensor:
    """``released_over`` in new memory, by one call of the mechanism."""
    row = vector if encoding is None else encoding.over(vector)
    released = release(mechanism, row, source)
    if watch is not None:
        watch.see(row, released, place)
    return released if encoding is None else released.to(vector.dtype)


def takes_parts(mechanism: ComplexGaussian | Gaussian | Laplace, length: int, device: torch.device) -> bool:
    """Whether a vector of this length there is released a part at a time, over itself; where the kernel can, in one pass."""
    is_even = isinstance(mechanism, Gaussian) or (isinstance(mechanism, ComplexGaussian) and mechanism.is_circular)
    return is_even and device.type == "cpu" and length > PART // 2 + FEW


def _released_at_once(
    mechanism: ComplexGaussian | Gaussian,
    vector: Tensor,
    source: NoiseSource[Tensor],
    watch: NoiseWatch | None,
    encoding: Encoding | None,
) -> int:
    """How many numbers of the vector, from the first on, the kernel releases over themselves and looks at, in one call: mostly all."""
    is_odd = mechanism.is_complex and len(vector) % 2 == 1
    if not isinstance(source, TorchSource) or vector.dtype not in (torch.float32, torch.float64) or is_odd:
        return 0
    recursion = None if encoding is None else encoding.recursion
    return source.released_over(vector, mechanism.on_grid(len(vector)), None if watch is None else watch.watched, recursion)


def _released_part(mechanism: ComplexGaussian | Gaussian, part: Tensor, source: NoiseSource[Tensor], length: int) -> Tensor:
    """Of a vector of this length."""
    if isinstance(mechanism, Gaussian):
        return mechanism.release_part(part, source, length)
    paired = part if len(part) % 2 == 0 else pad(part, (0, 1))
    found = mechanism.release_part(torch.view_as_complex(paired.view(-1, 2)), source, (length + 1) // 2)
    return torch.view_as_real(found).view(-1)[: len(part)]


def gradient(clipping: Clipping, released: Tensor, divisor: int, bound: float, dtype: torch.dtype = torch.float32) -> Gradient:
    r"""The gradient for the optimizer, and the next bound.

    Args:
      released: the vector of ``query`` with its noise; overwritten.
      divisor: the public number of units expected in all sites' samples. The samples' actual sizes would leak (errata Z11).
      bound: C_t.
      dtype: of the parameters.
    """
    if isinstance(clipping, ScheduledClipping):
        return Gradient(released.mul_(bound / divisor).to(dtype), bound)
    if not isinstance(clipping, AdaptiveClipping):
        return Gradient(released.mul_(1.0 / divisor).to(dtype), bound)  # a division takes twice as long
    share = clipping.count_share
    values = released[:-1] * (bound / math.sqrt(1.0 - share) / divisor)
    fraction = 0.5 + released[-1].item() / (2.0 * math.sqrt(share)) / divisor
    # Andrew et al. 2021, section 2.2. Noise can push the fraction outside [0, 1], where it says no more than the nearer end does.
    following = bound * math.exp(-clipping.learning_rate * (min(max(fraction, 0.0), 1.0) - clipping.quantile))
    return Gradient(values.to(dtype), min(max(following, SMALLEST_BOUND), LARGEST_BOUND))
