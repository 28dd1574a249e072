"""The library's FFT against wider floats: the error that every composition on a lattice allows for."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import fft

from zetadp.accountants.grids.convolution import FFT_ERROR


@pytest.mark.parametrize("levels", [4, 10, 16])
def test_fft_is_well_within_its_stated_error(levels):
    size = 2**levels
    random = np.random.default_rng(levels)
    values = random.exponential(size=size) * (random.random(size) < 0.2)
    exact = np.fft.rfft(values.astype(np.longdouble)) if hasattr(np, "float128") else None
    if exact is None or exact.dtype == np.complex128:
        pytest.skip("no wider floats on this machine")
    error = np.linalg.norm((fft.rfft(values) - exact).astype(complex)) / np.linalg.norm(exact.astype(complex))
    assert error <= 0.25 * FFT_ERROR * levels
