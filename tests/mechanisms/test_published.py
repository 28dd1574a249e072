from __future__ import annotations

import math

import pytest

from mechanisms import ComplexGaussian, Sensitivity
from mechanisms.published import claims_on_complex_gaussian, complex_dp_federated, zeta_dp
from tests.golden.oracles import oracle_rows


def _noise(**parameters):
    return ComplexGaussian(sensitivity=Sensitivity(l2=1.0, adjacency="add_remove", unit="record"), **parameters)


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("zeta_dp_delta"))
def test_zeta_dp_formula_is_as_printed(inputs, oracle):
    printed = zeta_dp.theorem_1_log_delta(float(inputs["Delta"]), float(inputs["sigma"]), float(inputs["eps"]))
    assert math.exp(printed) == pytest.approx(float(oracle["value"]["published_overclaims"]), rel=1e-12)


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("zeta_dp_delta"))
def test_proven_delta_of_the_papers_noise_is_the_correct_one(inputs, oracle):
    sensitivity = Sensitivity(l2=float(inputs["Delta"]), adjacency="add_remove", unit="record")
    noise = ComplexGaussian(std=float(inputs["sigma"]) / math.sqrt(2.0), sensitivity=sensitivity)
    assert math.exp(noise.privacy_loss().log_delta(float(inputs["eps"]))) == pytest.approx(float(oracle["value"]["correct"]), rel=1e-12)


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("cgm_noncircular_mu"))
def test_federated_formula_is_as_printed(inputs, oracle):
    parts = [float(inputs[name]) for name in ("Delta", "Delta_re", "Delta_im", "sigma_component", "rho")]
    assert complex_dp_federated.theorem_1_mu(*parts) == pytest.approx(float(oracle["value"]["published"]), rel=1e-13)


def test_zeta_dp_claim_overclaims_by_sqrt_two():
    claim = claims_on_complex_gaussian(_noise(std=1.0))[0]
    assert (claim.verdict, claim.ratio) == ("overclaims privacy", pytest.approx(math.sqrt(0.5), rel=1e-15))


def test_zeta_dp_claim_does_not_apply_to_correlated_noise():
    assert claims_on_complex_gaussian(_noise(std=1.0, correlation=0.5))[0].verdict == "does not apply"


@pytest.mark.parametrize(("correlation", "verdict"), [(0.0, "exact"), (0.5, "valid but loose"), (-0.9, "valid but loose")])
def test_federated_claim_is_valid_and_loose_only_with_correlation(correlation, verdict):
    assert claims_on_complex_gaussian(_noise(std=1.0, correlation=correlation))[1].verdict == verdict
