r"""Formulas of the SPOF paper as printed (errata S1 to S18 and S25 to S31), for comparison only.

Habib, Chou and Kim, Stabilization of Perturbed Loss Function: Differential Privacy without Gradient Noise. Environmental noise is in
``spof_environment.py``.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from zetadp.mechanisms.analysis.cross_entropy import sigmoid, sigmoid_slope, softplus

Floats = NDArray[np.float64]

PRINTED_MINIMUM = 4.0348
"""The minimum of (58) that Appendix H states, at ``PRINTED_MINIMISER`` (S25)."""
PRINTED_MINIMISER = 0.9057

LARGEST_EXPONENT = 700.0
"""e^a beyond it leaves the range of floats."""


def second_derivatives(x: float, a: float) -> tuple[float, float]:
    """f''_{j,i,1}(a) and f''_{j,i,2}(a) of Section IV; the second has the wrong sign (S1)."""
    # 0 minus, so that x = 1 gives 0 and not -0.
    return x * sigmoid_slope(a), 0.0 - (1.0 - x) * sigmoid_slope(a)


def linear_coefficient(x: float, a: float) -> float:
    """Of z - a in (11), 1/(1 + e^-a) - x: right."""
    return sigmoid(a) - x


def quadratic_coefficient(x: float, a: float) -> float:
    """Of (z - a)^2 in (11), (2x - 1)/(2 + e^a + e^-a): without the 1/2 of (8), and with S1's sign it depends on x (S2, S3)."""
    return (2.0 * x - 1.0) * sigmoid_slope(a)


def loss(x: float, z: float) -> float:
    """L~ of (12) for one feature, at a = 0."""
    return math.log(2.0) + linear_coefficient(x, 0.0) * z + quadratic_coefficient(x, 0.0) * z**2


def sensitivity(dimension: int) -> float:
    """Delta-bar of (22) and (23), 3n/2 (S5)."""
    return 1.5 * dimension


def stabilised_coefficients(x: float, c: float) -> tuple[float, float, float]:
    """Of 1 (beyond log 2), z and z^2 in (31): c^2 alpha_3, alpha_2 (1 + 2c), alpha_3 (S10)."""
    alpha_2, alpha_3 = linear_coefficient(x, 0.0), quadratic_coefficient(x, 0.0)
    return c**2 * alpha_3, alpha_2 * (1.0 + 2.0 * c), alpha_3


def stabilised_sensitivity(dimension: int, c: float) -> float:
    """Delta-hat of Proposition 3 and (32), 3n/2 + n c (c/2 + 2), for c >= 0 (S11)."""
    return sensitivity(dimension) + dimension * c * (0.5 * c + 2.0)


def third_line_of_33(c: float) -> float:
    """The numerator of (33), third line, for one feature, at its largest: |alpha_2 (1 + 2c)| has become |alpha_2| + |alpha_2 c| (S12)."""
    return 2.0 * (0.5 + 0.25 + 0.5 * c + 0.25 * c**2)


def sensitivity_term(a: float) -> float | None:
    r"""(58): log(1 + e^a) + 2 [log(1 + e^-a)/log(1 + e^a) + 2 e^a/(1 + e^a)^2 + e^a/(1 + e^a)] (S25); None beyond floats (a < -700).

    >>> round(sensitivity_term(0.0), 4)
    4.6931
    """
    if a < -LARGEST_EXPONENT:
        return None
    return softplus(a) + 2.0 * (softplus(-a) / softplus(a) + 2.0 * sigmoid_slope(a) + sigmoid(a))


def algorithm_1_scale(dimension: int, c: float, epsilon: float) -> float:
    """Laplace scale of step 5 of Algorithm 1, Delta-hat / (sqrt(2) epsilon), on each alpha_2 and alpha_3 (S7)."""
    return stabilised_sensitivity(dimension, c) / (math.sqrt(2.0) * epsilon)


def section_5_scale(dimension: int, c: float, epsilon: float) -> float:
    """Laplace scale of M_{i,1} and M_{i,2} by Section V: each of variance (Delta-hat / epsilon)^2 / 2, and 2 d^2 is a scale's (S8)."""
    return stabilised_sensitivity(dimension, c) / (2.0 * epsilon)


def algorithm_1_gradients(x: Floats, encoder: Floats, decoder: Floats, c: float, noise: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    r"""Steps 3 to 6 of Algorithm 1 for one user: gradients of the perturbed loss at the user's own record (S14).

    Args:
      x: the raw record, shape (n,).
      encoder: W_j, shape (n, l).
      decoder: W-hat's rows of this user, shape (l, n).
      c: every entry of the vector c_j.
      noise: what step 5 adds to alpha_2 and alpha_3, each of shape (n,).
    Returns:
      the gradients for the encoder, (n, l), and the decoder, (l, n).
    """
    code = 1.0 / (1.0 + np.exp(-(encoder.T @ x)))
    stabilised = (decoder + c).T @ code
    by_output = (0.5 - x + noise[0]) + 2.0 * (0.5 * x - 0.25 + noise[1]) * stabilised
    return _backpropagated(x, code, decoder + c, by_output)


def algorithm_2_gradients(x: Floats, encoder: Floats, decoder: Floats, a: float, bound: float, noise: Floats) -> tuple[Floats, Floats]:
    r"""Steps 3 to 7 of Algorithm 2 for one user: the clipped and perturbed derivative by z, propagated through the raw record (S31).

    Args:
      x, encoder, decoder: as for ``algorithm_1_gradients``.
      a: the expansion point, at which the derivative s - x is taken.
      bound: C.
      noise: what step 6 adds, of shape (n,).
    """
    code = 1.0 / (1.0 + np.exp(-(encoder.T @ x)))
    derivative = sigmoid(a) - x
    clipped = derivative / max(1.0, float(np.linalg.norm(derivative)) / bound)
    return _backpropagated(x, code, decoder, clipped + noise)


def _backpropagated(x: Floats, code: Floats, decoder: Floats, by_output: Floats) -> tuple[Floats, Floats]:
    return np.outer(x, code * (1.0 - code) * (decoder @ by_output)), np.outer(code, by_output)


def unclipped_gradient_sensitivity(dimension: int, a: float) -> float:
    """The first branch of (26), with (65) at any a: n 2 e^a/(1 + e^a), which is n at a = 0 (S27)."""
    return dimension * 2.0 * sigmoid(a)


def clipped_gradient_sensitivity(dimension: int, bound: float) -> float:
    """The second branch of (26) and (27), 2 n C (S28, S30)."""
    return 2.0 * dimension * bound


def gradient_sensitivity(dimension: int, a: float, bound: float, norm: float) -> float:
    """Delta_SGD of (26): the branch is chosen by the norm of the record's own gradient (S29)."""
    return unclipped_gradient_sensitivity(dimension, a) if norm < bound else clipped_gradient_sensitivity(dimension, bound)


def noisy_gradient_sensitivity(dimension: int, a: float, bound: float, factor: float, norm: float) -> float:
    """Delta_SGD^[N] of (27): b_j in the first branch, but not in the second, although b_j multiplies both (S30)."""
    return factor * unclipped_gradient_sensitivity(dimension, a) if norm < bound else clipped_gradient_sensitivity(dimension, bound)


def functional_mechanism_scale(dimension: int, epsilon: float) -> float:
    """Delta / epsilon of Zhang et al. 2012 with the paper's Delta = 3n/2, on each alpha_2 and alpha_3 summed over the records (S17)."""
    return sensitivity(dimension) / epsilon
