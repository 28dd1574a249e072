r"""Who knows all data but one record sees a release, and asks which of the two values the noise can have been added to.

The attacker knows the mechanism, the machine and the value with and without the record. First: lies release - value on the noise's lattice
for one value and not for the other? Then that one it is. Else: which of the two is likelier? Float noise falls to the first question.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from zetadp import accountants
from zetadp.accountants.events import Event
from zetadp.mechanisms import ComplexGaussian, Gaussian, Laplace, LocalGaussian, LocalLaplace, NoiseSource, RandomStream, SpofCoefficients
from zetadp.mechanisms.local import LocalRelease
from zetadp.mechanisms.sampling.grid import LARGEST, STEP, contraction
from zetadp.trainer.engine import TorchSource

RUNS = 200
"""In each world."""

FEW = 30
"""Against a broken build: what it gives away needs no more."""

Noise = Gaussian | ComplexGaussian | Laplace | LocalGaussian | LocalLaplace | SpofCoefficients
Numbers = NDArray[np.float64]
Original = Callable[[Any, Tensor, NoiseSource[Tensor]], Tensor]
Build = Callable[[Original, Noise, Tensor, NoiseSource[Tensor]], Tensor]
"""The mechanism's own release, the mechanism, a value, a source -> what such a build releases."""

WORDS = 24
"""Random bits of a uniform number in float32."""

MOST_PAIRS = 16
"""Of a release, that the attack on float noise looks at."""


@dataclass(frozen=True)
class Case:
    r"""One algorithm's release.

    Attributes:
      run: releases once, in the world without the record (0) or with it (1), with the noise of this seed.
      event: what it is accounted as.
    """

    mechanism: Noise
    event: Event
    run: Callable[[int, int], object]


@dataclass(frozen=True)
class Sights:
    r"""What the attacker saw in each world, (runs, numbers), and the two values, (numbers,); float64.

    Attributes:
      spacings: of the released type, at the released numbers.
    """

    seen: tuple[Numbers, Numbers]
    spacings: tuple[Numbers, Numbers]
    values: tuple[Numbers, Numbers]


@dataclass(frozen=True)
class Rates:
    """Of the answer "the record is there": right (``true``) and wrong (``false``); ``told_apart``: releases that the lattice decided."""

    true: float
    false: float
    told_apart: int

    @property
    def gap(self) -> float:
        return self.true - self.false


# Builds


def sound(original: Original, mechanism: Noise, value: Tensor, source: NoiseSource[Tensor]) -> Tensor:
    """As it is; of coefficients the noisy record behind them."""
    found = original(mechanism, value, source)
    return mechanism.recovered(found) if isinstance(mechanism, SpofCoefficients) else found


def float_noise(_original: Original, mechanism: Noise, value: Tensor, source: NoiseSource[Tensor]) -> Tensor:
    """Drawn in float32, by Box and Muller or as a logarithm, and added in float32: the way of most libraries, and ours once."""
    pairs = value.is_complex()
    real = (torch.view_as_real(value) if pairs else value).numpy().astype(np.float32)
    size = real.size + real.size % 2
    first, second = (np.ceil(source.uniform((size,)).numpy() * 2.0**WORDS) for _ in range(2))
    if _is_laplace(mechanism):
        noise = _laplace(first, np.where(second > 2.0 ** (WORDS - 1), 1.0, -1.0))
    else:
        noise = np.concatenate(_box_muller(first[: size // 2], second[: size // 2]))
    released = torch.from_numpy(real + (noise[: real.size] * np.float32(mechanism.noise_scale)).reshape(real.shape))
    return torch.view_as_complex(released) if pairs else released


def unrounded(_original: Original, mechanism: Noise, value: Tensor, source: NoiseSource[Tensor]) -> Tensor:
    """Exact noise on its grid, added to a value that isn't on it."""
    pairs = value.is_complex()
    real = (torch.view_as_real(value) if pairs else value).double()
    draw = source.standard_laplace if _is_laplace(mechanism) else source.standard_normal
    released = real + draw(tuple(real.shape)) * mechanism.noise_scale
    return torch.view_as_complex(released) if pairs else released


def _is_laplace(mechanism: Noise) -> bool:
    return isinstance(mechanism, Laplace | LocalLaplace | SpofCoefficients)


def _box_muller(radius: Numbers, angle: Numbers) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """From words in 1 .. 2^24; in float64 until it is rounded, so that no library's float32 logarithm matters."""
    length = np.sqrt(-2.0 * np.log(radius * 2.0**-WORDS)).astype(np.float32)
    turn = angle * (2.0 * np.pi * 2.0**-WORDS)
    return np.cos(turn).astype(np.float32) * length, np.sin(turn).astype(np.float32) * length


def _laplace(words: Numbers, sign: Numbers) -> NDArray[np.float32]:
    return (-sign * np.log(words * 2.0**-WORDS)).astype(np.float32)


# Lattices


def on_the_grid(mechanism: Noise, seen: Numbers, spacing: Numbers, value: Numbers) -> NDArray[np.bool_]:
    """Whether release - value may be a number of the noise's grid, (runs, numbers); true where the released type hides it."""
    return _are_whole(mechanism, _in_steps(mechanism, seen, None) - _in_steps(mechanism, value, None), spacing)


def on_the_unmoved_grid(mechanism: Noise, seen: Numbers, spacing: Numbers, value: Numbers) -> NDArray[np.bool_]:
    """The same for noise that nothing was contracted for."""
    return _are_whole(mechanism, _in_steps(mechanism, seen, 1.0) - _in_steps(mechanism, value, 1.0), spacing)


def on_one_grid(mechanism: Noise, seen: Numbers, spacing: Numbers) -> NDArray[np.bool_]:
    """Whether the release itself may be a number of the grid, whatever the value."""
    return _are_whole(mechanism, _in_steps(mechanism, seen, None), spacing)


def _are_whole(mechanism: Noise, numbers: Numbers, spacing: Numbers) -> NDArray[np.bool_]:
    cells = numbers / STEP - 0.5
    blur = 0.5 * np.abs(spacing) / mechanism.noise_scale / STEP + 2.0**-10
    return (np.abs(cells - np.rint(cells)) <= blur) | (blur >= 0.25)


def in_float32(mechanism: Noise, seen: Numbers, _spacing: Numbers, value: Numbers) -> NDArray[np.bool_]:
    """Whether ``float_noise`` can give the release from this value, for some of its numbers."""
    scale, half = np.float32(mechanism.noise_scale), (len(value) + len(value) % 2) // 2
    if _is_laplace(mechanism):
        noise = (seen - value) / scale
        around = np.rint(np.exp(-np.abs(noise)) * 2.0**WORDS)
        found = np.zeros(noise.shape, np.bool_)
        for near in range(-3, 4):
            words = np.clip(around + near, 1.0, 2.0**WORDS)
            found |= value.astype(np.float32) + _laplace(words, np.sign(noise)) * scale == seen
        return found | (np.abs(noise) < 1e-3)
    first, second = slice(0, min(MOST_PAIRS, len(value) - half)), slice(half, half + min(MOST_PAIRS, len(value) - half))
    real, other = (seen - value)[:, first] / scale, (seen - value)[:, second] / scale
    length, turn = np.hypot(real, other), np.arctan2(other, real) % (2.0 * np.pi)
    near_radius, near_angle = np.rint(np.exp(-0.5 * length**2) * 2.0**WORDS), np.rint(turn / (2.0 * np.pi) * 2.0**WORDS)
    found = np.zeros(real.shape, np.bool_)
    for by_radius in range(-5, 6):
        for by_angle in range(-3, 4):
            words = np.clip(near_radius + by_radius, 1.0, 2.0**WORDS), (near_angle + by_angle - 1.0) % 2.0**WORDS + 1.0
            one, two = (part * scale for part in _box_muller(*words))
            found |= (value[first].astype(np.float32) + one == seen[:, first]) & (value[second].astype(np.float32) + two == seen[:, second])
    # Where float32 is finer than the search is wide.
    return found | (length < 0.5) | (length > 4.0)


def _in_steps(mechanism: Noise, numbers: Numbers, kept: float | None) -> Numbers:
    """Released numbers, (..., numbers), in units of the noise's scale, whitened; ``kept`` as of one release of so many numbers."""
    size = numbers.shape[-1]
    if isinstance(mechanism, LocalRelease):
        kept = contraction(mechanism.width / mechanism.noise_scale, 1, "l2", STEP) if kept is None else kept
        return (numbers - (0.5 * mechanism.lower + 0.5 * mechanism.upper)) * (kept / mechanism.noise_scale)
    rho = mechanism.correlation if isinstance(mechanism, ComplexGaussian) else 0.0
    rest = math.sqrt((1.0 - rho) * (1.0 + rho))
    each = STEP + 2.0**-48 * LARGEST / rest if rho else None
    if kept is None:
        kept = contraction(mechanism.least_distance(), size, "l1" if _is_laplace(mechanism) else "l2", each)
    if not isinstance(mechanism, ComplexGaussian):
        return numbers * (kept / mechanism.noise_scale)
    real, imaginary = (numbers[..., part::2] * (kept / std) for part, std in enumerate(mechanism.stds))
    imaginary = (imaginary - rho * real) / rest
    return np.stack((real, imaginary), axis=-1).reshape(numbers.shape)


# The attack


def watched(case: Case, build: Build, runs: int = RUNS) -> Sights:
    """The first release of each run, by such a build."""
    noted = _Noted()
    kind = type(case.mechanism)
    original: Any = kind.release
    seen, spacings, values = [], [], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "release", lambda *given: noted.add(given[1], build(original, *given)))
        for world in (0, 1):
            every = [noted.of(case, world, seed) for seed in range(world * runs, (world + 1) * runs)]
            assert all(np.array_equal(value, every[0][0]) for value, _, _ in every)  # the attacker knows it
            values.append(every[0][0])
            seen.append(np.stack([released for _, released, _ in every]))
            spacings.append(np.stack([spacing for _, _, spacing in every]))
    return Sights((seen[0], seen[1]), (spacings[0], spacings[1]), (values[0], values[1]))


@dataclass
class _Noted:
    releases: list[tuple[Numbers, Numbers, Numbers]] = field(default_factory=list)

    def add(self, value: Tensor, released: Tensor) -> Tensor:
        real = (torch.view_as_real(released) if released.is_complex() else released).numpy().reshape(-1)
        known = (torch.view_as_real(value) if value.is_complex() else value).numpy().reshape(-1)
        self.releases.append((known.astype(np.float64), real.astype(np.float64), np.spacing(real).astype(np.float64)))
        return released

    def of(self, case: Case, world: int, seed: int) -> tuple[Numbers, Numbers, Numbers]:
        """Value, release and spacing of a run's first release."""
        self.releases.clear()
        case.run(world, seed)
        return self.releases[0]


Lattice = Callable[[Noise, Numbers, Numbers, Numbers], NDArray[np.bool_]]


def attacked(case: Case, sights: Sights, lattice: Lattice) -> Rates:
    """How often the attacker names the record, where it is and where it isn't."""
    rates, decided = [], 0
    for seen, spacing in zip(sights.seen, sights.spacings, strict=True):
        without, with_it = (lattice(case.mechanism, seen, spacing, value).all(axis=1) for value in sights.values)
        likelier = _is_likelier(case.mechanism, seen, sights.values)
        rates.append(float(np.where(without == with_it, likelier, with_it).mean()))
        decided += int((without != with_it).sum())
    return Rates(true=rates[1], false=rates[0], told_apart=decided)


def _is_likelier(mechanism: Noise, seen: Numbers, values: tuple[Numbers, Numbers]) -> NDArray[np.bool_]:
    at = _in_steps(mechanism, seen, None)
    without, with_it = (at - _in_steps(mechanism, value, None) for value in values)
    if _is_laplace(mechanism):
        return np.abs(with_it).sum(axis=1) < np.abs(without).sum(axis=1)
    return np.square(with_it).sum(axis=1) < np.square(without).sum(axis=1)


def largest_gap(event: Event, runs: int = RUNS) -> float:
    """TPR - FPR that the accounting allows, delta at epsilon 0, and three standard errors."""
    allowed = accountants.profile(event).delta(0.0).upper
    return allowed + 3.0 * math.sqrt((1.0 - min(1.0, allowed) ** 2) / (2.0 * runs))


def source_of(seed: int) -> TorchSource:
    return TorchSource(RandomStream.from_seed(seed, "lattice attack"), torch.device("cpu"))
