"""The central limit theorem's mu against 40 digits, at its ends, and as what it is: no bound."""

from __future__ import annotations

import math

import mpmath
import pytest

from tests.golden.oracles import oracle_rows
from zetadp.accountants import PoissonSampled, Release, Repeated, profile
from zetadp.accountants.routes.closed.closed_form import GdpProfile
from zetadp.mechanisms import ComplexGaussian, Sensitivity
from zetadp.mechanisms.published.clt import clt_mu_poisson, clt_mu_uniform


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("gdp_clt_approximation_NOT_A_BOUND"))
def test_both_formulas_match_forty_digits(inputs, oracle):
    q, s, t = (float(inputs[name]) for name in ("q", "s", "T"))
    assert clt_mu_poisson(q, s, t) == pytest.approx(float(oracle["value"]["mu_poisson"]), rel=1e-12)
    assert clt_mu_uniform(q, s, t) == pytest.approx(float(oracle["value"]["mu_uniform"]), rel=1e-12)


def _exact_uniform(q, s, t):
    with mpmath.workdps(200):
        u = 1 / mpmath.mpf(s)
        excess = mpmath.e ** (u**2) * mpmath.ncdf(1.5 * u) + 3 * mpmath.ncdf(-u / 2) - 2
        return mpmath.sqrt(2 * t * excess) * q


@pytest.mark.parametrize("s", [0.04, 0.3, 1.0, 10.0, 19.0, 21.0, 200.0, 1e5, 1e9, 1e40])
def test_the_uniform_formula_keeps_its_digits_from_the_smallest_to_the_largest_noise(s):
    assert clt_mu_uniform(0.01, s, 100.0) == pytest.approx(float(_exact_uniform(0.01, s, 100)), rel=1e-12)


@pytest.mark.parametrize("formula", [clt_mu_poisson, clt_mu_uniform])
def test_no_noise_to_speak_of_is_no_privacy(formula):
    assert formula(0.5, 1e-50, 1e12) == math.inf
    assert formula(1e-50, 1e-200, 1.0) == math.inf


def test_it_promises_more_than_holds():
    noise = ComplexGaussian(std=0.61, sensitivity=Sensitivity(l2=1.0, adjacency="add_remove", unit="record"))
    event = Repeated(count=4000, event=PoissonSampled(probability=0.005, event=Release(mechanism=noise)))
    limit = GdpProfile(clt_mu_poisson(0.005, 0.61, 4000), ()).epsilon(1e-5).upper
    assert limit < 0.8 * profile(event).epsilon(1e-5).lower
