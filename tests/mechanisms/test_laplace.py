from __future__ import annotations

import math

import numpy as np
import pytest

from zetadp.mechanisms import LaplaceLoss


def _two_coordinate_delta(first: float, second: float, epsilon: float) -> float:
    """Hockey-stick divergence of Lap x Lap moved by (first, second), by quadrature on a fine grid of both losses' exact laws."""
    atoms: list[tuple[np.ndarray, np.ndarray]] = []
    for shift in (first, second):
        # L = |x - shift| - |x| under Lap(0, 1): atoms at both ends, density e^{-x} / 2 on (0, shift) between, L = shift - 2x.
        x = (np.arange(2000) + 0.5) * shift / 2000
        losses = np.concatenate(([shift, -shift], shift - 2 * x))
        weights = np.concatenate(([0.5, 0.5 * math.exp(-shift)], 0.5 * np.exp(-x) * shift / 2000))
        atoms.append((losses, weights))
    total = atoms[0][0][:, None] + atoms[1][0][None, :]
    weight = atoms[0][1][:, None] * atoms[1][1][None, :]
    return float((weight * np.where(total > epsilon, -np.expm1(np.minimum(epsilon - total, 0.0)), 0.0)).sum())


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 1.7])
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_one_moved_coordinate_dominates_two(epsilon, share):
    whole = 2.0
    one = math.exp(LaplaceLoss(whole).log_delta(epsilon))
    assert _two_coordinate_delta(share * whole, (1 - share) * whole, epsilon) < one


def test_delta_agrees_with_an_integral():
    # A vanishing second move leaves the one-dimensional pair.
    assert math.exp(LaplaceLoss(2.0).log_delta(0.5)) == pytest.approx(_two_coordinate_delta(2.0, 1e-9, 0.5), rel=1e-5)


def test_delta_is_zero_from_the_pure_epsilon_on():
    assert LaplaceLoss(2.0).log_delta(2.0) == -math.inf


@pytest.mark.parametrize("order", [1.5, 2.0, 8.0])
def test_renyi_divergence_agrees_with_an_integral(order):
    x = np.linspace(-40.0, 40.0, 2_000_001)
    exponent = -order * np.abs(x) + (order - 1.0) * np.abs(x - 0.7) - math.log(2.0)
    integral = float(np.trapezoid(np.exp(exponent), x))
    assert LaplaceLoss(0.7).renyi(order) == pytest.approx(math.log(integral) / (order - 1.0), rel=1e-6)


def test_renyi_divergence_of_a_tiny_loss_keeps_its_digits():
    assert LaplaceLoss(1e-9).renyi(2.0) == pytest.approx(1e-18, rel=1e-6)
