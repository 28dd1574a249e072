r"""The numbers of a complex Gaussian mechanism that the papers' statements refer to."""

from __future__ import annotations

from zetadp.mechanisms import ComplexGaussian


def bounds(mechanism: ComplexGaussian) -> tuple[float, float, float]:
    """(l2, bound on the real part, bound on the imaginary part) of the mechanism's sensitivity."""
    stated = mechanism.sensitivity
    assert stated.l2 is not None  # a complex Gaussian has one
    return stated.l2, stated.l2 if stated.l2_real is None else stated.l2_real, stated.l2 if stated.l2_imag is None else stated.l2_imag
