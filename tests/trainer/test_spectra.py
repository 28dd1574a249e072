r"""A layer's analysis matrix, and what a network releases in the place of its parameters."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

from zetadp.mechanisms import RandomStream
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.numerics.spectrum import low_pass
from zetadp.trainer.engine.gradients.spectral_vector import Spectra
from zetadp.trainer.layers import ComplexLinear
from zetadp.trainer.layers.flat_parameters import ParameterLayout
from zetadp.trainer.layers.rules.analysis import Analysis, axis_analysis
from zetadp.trainer.specs.projection import LayerSpectrum, SpectralProjection

CPU = torch.device("cpu")
ROUNDING = 1e-14
"""Of products of float64 matrices with up to 16 numbers in a row, whose entries are at most 1."""

LENGTHS = (1, 2, 3, 5, 8, 10, 16)


def _axes(length: int) -> list[tuple[int, int, int]]:
    """Length, transform, kept: with every number of kept frequencies."""
    transforms = sorted({long for long in (length, length + 1, 2 * length, 32, 33) if long >= length})
    return [(length, long, kept) for long in transforms for kept in range(1, long // 2 + 2)]


def _spectrum(layer: str, signals: int, shape: tuple[int, ...], transform: tuple[int, ...], kept: tuple[int, ...]) -> LayerSpectrum:
    return LayerSpectrum(layer=layer, signals=signals, shape=shape, transform=transform, kept=kept)


@pytest.mark.parametrize("length", LENGTHS)
def test_the_matrix_of_an_axis_is_a_root_of_the_padded_and_cropped_filter(length: int) -> None:
    for _, transform, kept in _axes(length):
        matrix = axis_analysis(length, transform, kept)
        # E^T P E by explicit transforms of the padded unit vectors.
        padded = np.zeros((length, transform))
        padded[:, :length] = np.eye(length)
        np.testing.assert_allclose(matrix.T @ matrix, low_pass(padded, (kept,))[:, :length], atol=ROUNDING)
        assert len(matrix) == _spectrum("layer", 1, (length,), (transform,), (kept,)).coordinates


@pytest.mark.parametrize("length", LENGTHS)
def test_the_matrix_of_an_axis_makes_nothing_longer(length: int) -> None:
    assert max(np.linalg.norm(axis_analysis(*axis), 2) for axis in _axes(length)) <= 1.0 + 2.0**-50


@pytest.mark.parametrize("length", LENGTHS)
def test_coordinates_of_a_projection_are_orthonormal(length: int) -> None:
    for kept in range(1, length // 2 + 2):
        matrix = axis_analysis(length, length, kept)
        np.testing.assert_allclose(matrix @ matrix.T, np.eye(len(matrix)), atol=ROUNDING)


def test_two_axes_filter_as_one_transform_of_two_axes() -> None:
    spectrum = _spectrum("layer", 4, (5, 3), (9, 8), (2, 1))
    analysis = Analysis(spectrum, CPU)
    signals = np.random.default_rng(1).normal(size=(4, 5, 3))
    padded = np.zeros((4, 9, 8))
    padded[:, :5, :3] = signals
    coordinates = analysis.coordinates(torch.from_numpy(signals))
    assert coordinates.shape == (4, spectrum.coordinates) == (4, 3)
    np.testing.assert_allclose(analysis.signals(coordinates), low_pass(padded, (2, 1))[:, :5, :3], atol=1e-13)
    # Lengths are those of the filtered, padded signal.
    np.testing.assert_allclose(coordinates.norm(dim=1), np.linalg.norm(low_pass(padded, (2, 1)), axis=(1, 2)), rtol=1e-13)


def _network() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(2, 3, 4), nn.Flatten(), nn.Linear(75, 2))


def _spectra(*layers: LayerSpectrum, network: nn.Module | None = None) -> Spectra:
    layout = ParameterLayout.of(_network() if network is None else network)
    return Spectra(SpectralProjection(order="project_then_clip", layers=layers), layout, CPU)


def test_what_is_released_has_coordinates_for_a_filtered_weight_and_all_of_the_rest() -> None:
    spectra = _spectra(_spectrum("0", 6, (4, 4), (4, 4), (2, 2)))
    shapes = dict(zip(spectra.layout.names, spectra.layout.shapes, strict=True))
    assert shapes == {"0.weight": (3, 2, 9), "0.bias": (3,), "2.weight": (2, 75), "2.bias": (2,)}


def test_a_released_vector_becomes_a_gradient_that_is_filtered_where_it_has_a_spectrum() -> None:
    spectra = _spectra(_spectrum("0", 6, (4, 4), (4, 4), (2, 2)))
    released = torch.randn(spectra.layout.coordinates, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    gradient = spectra.gradient(released)
    weight, rest = gradient[:96].reshape(6, 4, 4), gradient[96:]
    np.testing.assert_allclose(low_pass(weight.numpy(), (2, 2)), weight, atol=1e-14)
    assert torch.equal(rest, released[54:])
    assert gradient.norm().item() == pytest.approx(released.norm().item(), rel=1e-14)


@pytest.mark.parametrize("transform", [4, 9])
def test_a_layer_that_keeps_everything_is_left_as_it_is(transform: int) -> None:
    spectra = _spectra(_spectrum("0", 6, (4, 4), (transform,) * 2, (transform // 2 + 1,) * 2))
    released = torch.randn(spectra.layout.coordinates)
    assert spectra.layout == ParameterLayout.of(_network())
    assert torch.equal(spectra.gradient(released), released)


@pytest.mark.parametrize(
    ("spectrum", "message"),
    [
        (_spectrum("1", 6, (4, 4), (4, 4), (2, 2)), r"plan.projection.layers must be layers of the network with a weight: .*, got '1'"),
        (
            _spectrum("0", 6, (5, 5), (5, 5), (2, 2)),
            r"must be 6 signals of shape \[4, 4\], as the weight of 0 has, got '6 of shape \[5, 5\]'",
        ),
        (
            _spectrum("0", 5, (4, 4), (4, 4), (2, 2)),
            r"must be 6 signals of shape \[4, 4\], as the weight of 0 has, got '5 of shape \[4, 4\]'",
        ),
    ],
)
def test_a_projection_of_another_network_is_refused(spectrum: LayerSpectrum, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        _spectra(spectrum)


def test_complex_weights_are_refused() -> None:
    network = nn.Sequential(ComplexLinear(4, 4, RandomStream.from_seed(1, "layer")))
    with pytest.raises(InvalidParameter, match="layers with real weights, unlike 0, got 'complex weights'"):
        _spectra(_spectrum("0", 4, (4,), (4,), (2,)), network=network)


@pytest.mark.parametrize(("shape", "transform", "kept"), list(product([(3, 5)], [(3, 5), (7, 32)], [(1, 1), (2, 1), (1, 3)])))
def test_coordinates_are_counted_as_they_are_released(shape: tuple[int, ...], transform: tuple[int, ...], kept: tuple[int, ...]) -> None:
    spectrum = _spectrum("layer", 1, shape, transform, kept)
    assert spectrum.coordinates == len(Analysis(spectrum, CPU).matrix(torch.float64))
