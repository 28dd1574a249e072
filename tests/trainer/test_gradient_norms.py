r"""The gradient norms that the zeta-DP paper compares (its Figure 4) differ by the convention alone (errata Z15)."""

from __future__ import annotations

import pytest

from benchmarks.gradient_norms import TwoMatrices, gradient_norm, network, points, trained_norm
from zetadp.trainer.layers import ComplexLinear

pytest.importorskip("torch")


def test_a_complex_network_and_two_real_matrices_a_layer_have_the_same_gradient_by_their_parts() -> None:
    for seed in range(3):
        norms = [gradient_norm(network(layer, seed), *points(seed)) for layer in (ComplexLinear, TwoMatrices)]
        assert norms[0] == pytest.approx(norms[1], rel=1e-5)


def test_training_both_from_one_seed_keeps_them_the_same() -> None:
    # Adam of a complex parameter takes its parts as numbers of their own, so both take the same steps; float32 rounds them apart.
    assert trained_norm(ComplexLinear, 0, steps=5) == pytest.approx(trained_norm(TwoMatrices, 0, steps=5), rel=1e-3)
