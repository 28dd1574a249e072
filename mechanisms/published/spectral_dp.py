r"""Formulas of the Spectral-DP paper as printed (errata section 5), for comparison only.

sigma is the noise multiplier and S the clipping bound there: noise N(0, sigma^2 S^2). Some are right, some overclaim: each names its row.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray


def theorem_1_noise_multiplier(epsilon: float, delta: float) -> float:
    r"""Theorem 1: sigma = sqrt(2 log(1.25 / delta)) / epsilon, printed without the theorem's condition epsilon < 1 (P11)."""
    return math.sqrt(2.0 * (math.log(1.25) - math.log(delta))) / epsilon


def algorithm_1_gdp_mu(noise_multiplier: float) -> float:
    r"""What Theorem 1's proof assumes Algorithm 1 to be: the Gaussian mechanism of sensitivity S and deviation sigma S (P1, P2)."""
    return 1.0 / noise_multiplier


def algorithm_1_sensitivity(clip: float) -> float:
    r"""Algorithm 1 clips one query to S and calls S its l2 sensitivity (P7; P8 under replacement; P9 where noise meets F unclipped)."""
    return clip


def proposition_3_variance_ratio(length: int, kept: int) -> float:
    r"""Proposition 3: filtering leaves K / N of the noise variance (P3, P4)."""
    return kept / length


def corollary_1_variance_ratio(shape: tuple[int, ...], kept: tuple[int, ...]) -> float:
    r"""Corollary 1: K^2 / N^2 for square filters, hence prod K / prod N (P5); in one dimension Proposition 3."""
    return math.prod(kept) / math.prod(shape)


def filtering_ratio(length: int, kept: int) -> float:
    r"""Section 3.1.2: rho = (K - N) / N, which is negative (P6)."""
    return (kept - length) / length


def algorithm_4_sensitivity(clips: tuple[float, ...]) -> float:
    r"""Algorithm 4, line 11: C = sqrt(sum C_l^2), which is right for terms clipped to C_l (P15), not for those of its line 7 (P10)."""
    return math.hypot(*clips)


def algorithm_4_clipped(gradient: ArrayLike, clip: float) -> NDArray[np.float64]:
    r"""Algorithm 4, line 7: (G / max(1, ||G|| / C_l)) / ||G||, with its outer division (P10). ``gradient`` isn't zero; any shape."""
    vector = np.asarray(gradient, dtype=np.float64)
    norm = float(np.linalg.norm(vector))
    return vector / max(1.0, norm / clip) / norm


def corollary_2_noise_epsilon(order: float, epsilon: float, delta: float) -> float:
    r"""Corollary 2: epsilon' = epsilon + log(1 / delta) / (alpha - 1), for which Theorem 1 gives the noise (P12)."""
    return epsilon - math.log(delta) / (order - 1.0)


def corollary_2_total_epsilon(order: float, epsilon: float, delta: float, iterations: int) -> float:
    r"""Corollary 2: T epsilon + log(1 / delta) / (alpha - 1) after T iterations (P12)."""
    return iterations * epsilon - math.log(delta) / (order - 1.0)


def equation_5_gradient(upstream: ArrayLike, signal: ArrayLike) -> NDArray[np.float64]:
    r"""Equation (5) with the paper's unitary transforms: F^-1[F(dJ/dA) F(X)], of one axis; without conjugate and factor (P17)."""
    product = np.fft.fft(np.asarray(upstream), norm="ortho") * np.fft.fft(np.asarray(signal), norm="ortho")
    return np.real(np.fft.ifft(product, norm="ortho"))


def circulant_output(first_row: ArrayLike, signal: ArrayLike) -> NDArray[np.float64]:
    r"""Section 3.3: w * X, the circular convolution, for the circulant matrix whose first row is w (P21)."""
    return np.real(np.fft.ifft(np.fft.fft(np.asarray(first_row)) * np.fft.fft(np.asarray(signal))))
