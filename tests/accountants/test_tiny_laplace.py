"""Sampled Laplace noise whose losses are tiny, at tilts as large as they are small. proofs/contour.md, (D3) and (Q4)"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from tests.accountants.references import group, poisson, replaced, reverse
from tests.accountants.test_transforms import exact_density, exact_laplace
from zetadp.accountants.densities import LAPLACE
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.densities.moments import laplace as laplace_transforms
from zetadp.accountants.densities.moments.laplace import MixedLaplace

PAIRS = {
    "rare": poisson(1e-9, 2.0, LAPLACE),
    "rare, added": reverse(poisson(1e-9, 2.0, LAPLACE)),
    "rare group": group(3e-6, 0.3, 3),
    "rare, replaced": replaced(1e-7, 1.0),
}


@pytest.mark.parametrize("name", PAIRS)
def test_tiny_losses_of_sampled_laplace_are_known_as_well_as_they_are_small(name):
    pair = PAIRS[name]
    transform = MixedLaplace(pair.upper, pair.lower, 10**6)
    tilt, step = 2.0 / transform.scale, 2.0 / transform.scale
    line = transform.line(tilt, step, 20, 1e-16)
    bound = float(transform.log_moment_upper(np.array([tilt]))[0])
    with mpmath.workdps(22):
        for k in (0, 19):
            truth = exact_laplace(pair, mpmath.mpc(tilt, step * k))
            assert abs(truth - mpmath.mpc(complex(line.minus_one[k]))) <= float(line.error[k]) <= 1e-10
        assert float(mpmath.log(1 + exact_laplace(pair, mpmath.mpf(tilt)))) <= bound


@pytest.mark.parametrize("name", PAIRS)
def test_a_large_tilt_magnifies_the_rounding_of_a_weight_beyond_1e_9_and_is_counted(name):
    """A tilt of 1e10 and losses of 1e-9 to 1e-7."""
    pair, tilt = PAIRS[name], 1e10
    transform = MixedLaplace(pair.upper, pair.lower, 10**6)
    x = np.linspace(float(transform._breaks[0]), float(transform._breaks[-1]), 37)[1:-1] + 1e-3
    loss, _, error = transform._loss(x)
    with mpmath.workdps(40):
        truth = [mpmath.log(exact_density(pair.upper, mpmath.mpf(one)) / exact_density(pair.lower, mpmath.mpf(one))) for one in x]
        off = np.array([float(abs(mpmath.mpf(own) - exact)) for own, exact in zip(loss, truth, strict=True)])
        slopes = [mpmath.diff(lambda y: mpmath.log(exact_density(pair.upper, y) / exact_density(pair.lower, y)), one) for one in x]
    assert np.all(off <= error)
    # As plain differences of logarithms they were off by 1e-16 each, 1e-6 times the tilt.
    assert float(np.max(off)) * tilt < 1e-9
    found = [transform._rises(np.array([one]), float(one)) for one in x]
    for own, exact in zip(found, slopes, strict=True):
        assert abs(own.rise[0] - float(exact)) <= 1e-9 * float(exact)
        assert own.relative[0] < 1e-12
        assert own.absolute == 0.0


def test_slopes_without_a_copy_at_0_are_known_to_their_smallest_weight():
    transform = MixedLaplace(Mixture((1.0 - 1e-12, 1e-12), (1.0, 30.0)), Mixture((1.0,), (-2.0,)), 10)
    found = transform._rises(np.array([5.0]), 5.0)
    assert found.absolute >= laplace_transforms.ELEMENTARY * (4.0 + 60.0 - math.log(1e-12))
