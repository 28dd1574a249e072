"""No floor under delta: noise that ends somewhere leaves outputs that one data set alone can give, at every epsilon. Ours has no end."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
import torch

from zetadp import accountants
from zetadp.accountants.events import Release
from zetadp.mechanisms import Adjacency, ComplexGaussian, Gaussian, Laplace, NumpySource, RandomStream, Sensitivity
from zetadp.mechanisms.base import AdditiveNoise
from zetadp.mechanisms.sampling import grid_normal
from zetadp.mechanisms.sampling.grid import BITS, STEP
from zetadp.trainer.engine import TorchSource

ONE = Sensitivity(l2=1.0, l1=1.0, adjacency=Adjacency.ADD_REMOVE, unit="record")
DELTA = 1e-100
FLOAT_END = math.sqrt(2.0 * 53.0 * math.log(2.0))
"""Of Box and Muller's normals from uniforms of 53 bits: 8.57 deviations."""


def farthest(octaves: int) -> RandomStream:
    """Words that say of every number: beyond the table, in the tail, accepted, and so many deviations further."""
    stream = RandomStream.from_seed(1, "tail")
    table, last = grid_normal.table(), int(grid_normal.table().ends[-1]) - 1
    column = int(np.flatnonzero(((table.columns & np.uint64(0xFFFF)) == 2048) & ((table.columns >> np.uint64(16)) == 0))[0])

    def fill_rest(target: np.ndarray) -> None:
        target.fill(0)
        if target.ndim == 2:
            # One candidate in the tail; the others lie in the first bin and are refused.
            target[2, 1:] = 2**64 - 1
            target[0, 0], target[3, 0] = last << (64 - last.bit_length()), 1 << octaves

    stream._stream = SimpleNamespace(reserve=lambda _count: None)  # pyright: ignore[reportAttributeAccessIssue] - no cipher in C makes them
    stream.fill = lambda target: target.fill(column << 52)  # pyright: ignore[reportAttributeAccessIssue]
    stream._second = SimpleNamespace(fill=fill_rest)  # pyright: ignore[reportAttributeAccessIssue]
    return stream


def smallest_words() -> RandomStream:
    stream = RandomStream.from_seed(1, "tail")
    stream.fill = lambda target: target.fill(0)  # pyright: ignore[reportAttributeAccessIssue]
    return stream


def floor_of_delta(end: float, mu: float) -> float:
    """log of the least delta, at any epsilon, of noise on [-end, end]: what a neighbour at distance mu gives beyond."""
    with mpmath.workdps(30):
        return float(mpmath.log(mpmath.ncdf(mu - end)))


MECHANISMS: list[AdditiveNoise] = [Gaussian(std=3.0, sensitivity=ONE), ComplexGaussian(std=3.0, sensitivity=ONE)]


@pytest.mark.parametrize("octaves", [0, 4, 20])
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=["real", "complex"])
def test_releases_reach_any_number_of_deviations(mechanism: AdditiveNoise, octaves: int) -> None:
    value = np.zeros(1, np.complex128 if mechanism.is_complex else np.float64)
    by_numpy = np.asarray(mechanism.release(value, NumpySource(farthest(octaves))))
    by_torch = mechanism.release(torch.from_numpy(value), TorchSource(farthest(octaves), torch.device("cpu"))).numpy()
    for released in (by_numpy, by_torch):
        assert np.abs(np.real(released)).min() / 3.0 == pytest.approx(8.0 + octaves, rel=1e-6)


def test_deltas_as_small_as_are_claimed_lie_above_no_floor() -> None:
    mu = 1.0 / 3.0
    reached = 8.0 + 20.0
    assert floor_of_delta(reached, mu) < math.log(DELTA)
    # The test sees an end: float normals stop here, whatever the bits.
    drawn = np.abs(smallest_words().normal(2)).max()
    assert drawn == pytest.approx(FLOAT_END, rel=1e-12)
    assert floor_of_delta(drawn, mu) > math.log(1e-17) > math.log(DELTA)


def test_laplace_noise_has_no_end_either() -> None:
    mechanism = Laplace(scale=3.0, sensitivity=ONE)
    for zeros in (2, 14):
        stream = RandomStream.from_seed(1, "tail")
        stream.fill = _zeros_and_then_ones(zeros)  # pyright: ignore[reportAttributeAccessIssue]
        assert abs(mechanism.release(np.zeros(1), NumpySource(stream))[0]) / 3.0 > 64.0 * zeros / 2.0


def _zeros_and_then_ones(zeros: int) -> Callable[[np.ndarray], None]:
    """The draw's words are 0, and so are as many single ones after it; the next is all ones. 64 scales more take two words at most."""
    asked = 0

    def fill(target: np.ndarray) -> None:
        nonlocal asked
        target.fill(0 if target.ndim == 2 or asked < zeros else 2**64 - 1)
        asked += target.ndim == 1

    return fill


@pytest.mark.parametrize("mu", [0.1, 1.0, 4.0])
def test_a_profile_at_1e_100_is_what_the_grid_s_own_law_has(mu: float) -> None:
    """The best test of two integers a whole number of steps apart: beyond which cell is the release?"""
    mechanism = Gaussian(std=1.0 / mu, sensitivity=ONE)
    epsilon = accountants.profile(Release(mechanism=mechanism)).epsilon_at_log_delta(math.log(DELTA)).upper
    with mpmath.workdps(160):
        step = mpmath.mpf(2) ** -BITS
        apart = mpmath.floor(mpmath.mpf(mu) / step)
        first = mpmath.floor((epsilon / mpmath.mpf(mu) + mpmath.mpf(mu) / 2) / step)
        deltas = [
            mpmath.erfc((cell - apart) * step / mpmath.sqrt(2)) / 2 - mpmath.exp(epsilon) * mpmath.erfc(cell * step / mpmath.sqrt(2)) / 2
            for cell in (first - 1, first, first + 1)
        ]
        assert 0.999 * DELTA < max(deltas) <= DELTA


@pytest.mark.parametrize("deviations", [8, 12, 21, 24])
def test_the_tail_is_drawn_with_its_own_mass_however_small(deviations: int) -> None:
    """A cell out there is accepted with as many digits as its probability takes."""
    cell = (deviations << BITS) + 12_345
    with mpmath.workdps(700):
        tail = [mpmath.erfc((cell + end) * mpmath.mpf(STEP) / mpmath.sqrt(2)) for end in (0, 1)]
        # Of the envelope's share: 2^-39, halved for each deviation beyond 8, over 2^32 cells.
        wanted = (tail[0] - tail[1]) * mpmath.mpf(2) ** (39 + 32 + deviations - 8 + 1)
        for share, is_below in ((1 - mpmath.mpf(2) ** -40, True), (1 + mpmath.mpf(2) ** -40, False)):
            assert _accepted(int(mpmath.floor(wanted * share * mpmath.mpf(2) ** 2048)), cell) is is_below


def _accepted(number: int, cell: int) -> bool:
    """Whether the random number ``number`` / 2^2048 lies below the cell's probability."""
    words = iter([(number >> (2048 - 64 * place)) & (2**64 - 1) for place in range(1, 33)])
    return grid_normal.is_below(next(words), cell, lambda target: target.fill(next(words)))
