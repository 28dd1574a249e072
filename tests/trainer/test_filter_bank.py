"""The public filter bank: what a filter answers to, and that every record is seen alone."""

from __future__ import annotations

import math

import pytest
import torch

from zetadp.trainer.layers.filter_bank import GaborModulus, gabor_filters


@pytest.fixture
def bank() -> GaborModulus:
    return GaborModulus((4.0, 8.0), orientations=4, size=9, pool=4)


def _wave(angle: float, wavelength: float, phase: float = 0.0) -> torch.Tensor:
    """A plane wave as the real image of one record; the imaginary image is zero: (1, 2, 28, 28)."""
    ruler = torch.arange(28.0)
    vertical, horizontal = torch.meshgrid(ruler, ruler, indexing="ij")
    image = torch.cos(2 * math.pi / wavelength * (horizontal * math.cos(angle) + vertical * math.sin(angle)) + phase)
    return torch.stack([image, torch.zeros_like(image)])[None]


def test_a_constant_image_is_seen_by_no_oriented_filter() -> None:
    assert gabor_filters((4.0, 8.0), 4, 9)[:, 0].sum(dim=(1, 2)).abs().max().item() < 1e-5


@pytest.mark.parametrize("k", range(4))
def test_a_wave_is_seen_most_by_the_filter_of_its_own_direction_and_length(bank: GaborModulus, k: int) -> None:
    answers = bank(_wave(math.pi * k / 4, 4.0))[0, :8, 2:5, 2:5].mean(dim=(1, 2))
    assert answers.argmax().item() == k


def test_the_answer_hardly_depends_on_the_phase_of_a_wave(bank: GaborModulus) -> None:
    first, second = (bank(_wave(0.0, 4.0, phase))[0, 0, 2:5, 2:5].mean() for phase in (0.0, 1.3))
    # The envelope is 0.4 wavelengths wide: the filter's negative frequency still answers with exp(-2 (2 pi 0.4)^2), under 1 in 10^5.
    assert torch.isclose(first, second, rtol=0.02)


def test_the_imaginary_image_is_seen_in_the_imaginary_planes_alone(bank: GaborModulus) -> None:
    wave = _wave(0.3, 5.0)
    answer, swapped = bank(wave), bank(wave.flip(1))
    assert torch.equal(answer[:, :9], swapped[:, 9:])
    assert torch.equal(swapped[:, :9], torch.zeros_like(swapped[:, :9]))


def test_no_record_sees_another(bank: GaborModulus) -> None:
    records = torch.randn(5, 2, 28, 28, generator=torch.Generator().manual_seed(3))
    one_by_one = torch.cat([bank(record[None]) for record in records])
    assert torch.allclose(bank(records), one_by_one, atol=1e-5)


def test_there_is_nothing_to_learn(bank: GaborModulus) -> None:
    assert not list(bank.parameters())
