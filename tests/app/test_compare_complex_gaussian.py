from __future__ import annotations

import itertools
import json
import math

import pytest
from fastapi.testclient import TestClient

from tests.app.calculators_harness import SENSITIVITY, problem, release, without_cost
from tests.golden.oracles import oracle_rows
from zetadp.app.calculators.compare.complex_gaussian.means import (
    LipschitzComparison,
    MeansComparison,
    compare_zeta_dp_lipschitz,
    compare_zeta_dp_means,
)
from zetadp.app.calculators.compare.complex_gaussian.release import ComplexGaussianComparison, compare_complex_gaussian
from zetadp.app.calculators.compare.complex_gaussian.sgd_step import SgdStepComparison, compare_zeta_dp_sgd_step
from zetadp.app.calculators.noise_shapes import NoiseShapeRequest, create_noise_shape
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app

ROUTES = {
    "/v1/compare/complex_gaussian": (ComplexGaussianComparison, compare_complex_gaussian),
    "/v1/compare/zeta_dp_sgd_step": (SgdStepComparison, compare_zeta_dp_sgd_step),
    "/v1/compare/zeta_dp_means": (MeansComparison, compare_zeta_dp_means),
    "/v1/compare/zeta_dp_lipschitz": (LipschitzComparison, compare_zeta_dp_lipschitz),
    "/v1/noise-shapes": (NoiseShapeRequest, create_noise_shape),
}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    app = create_app(Settings(data_dir=tmp_path_factory.mktemp("data")))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


def _refuse(token):
    raise AssertionError(f"{token} in an answer")


def _posted(client, path, body):
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    return json.loads(response.text, parse_constant=_refuse)


def _compared(client, **body):
    return _posted(client, "/v1/compare/complex_gaussian", body)


def _noise(client, noise, sensitivity=None, **points):
    return _compared(client, noise=noise, sensitivity=sensitivity or SENSITIVITY, **points)


def _of(answer, row):
    return next(found for found in answer["published"] if found["erratum"] == row)


def _last(found):
    """The counterexample's numbers by their symbols."""
    return {step["symbol"]: step["value"] for step in found["counterexample"]["steps"]}


TOTAL = {"convention": "total", "sigma": 1.0}


@pytest.mark.parametrize("path", ROUTES)
def test_the_example_runs(client, path):
    example = ROUTES[path][0].model_config["json_schema_extra"]["examples"][0]
    assert _posted(client, path, example)


def test_every_row_has_a_finding_that_names_it(client):
    rows = {
        found["erratum"]
        for path, (request_type, _) in ROUTES.items()
        if path != "/v1/noise-shapes"
        for found in _posted(client, path, request_type.model_config["json_schema_extra"]["examples"][0])["published"]
    }
    assert rows == {"Z1", "Z2", "Z5", "Z6", "Z7", "Z8", "Z10", "Z11", "Z15", "C3", "C4", "C7", "C8", "C9", "C10"}


def test_every_finding_has_a_derivation_and_its_row_is_served(client):
    for path, (request_type, _) in ROUTES.items():
        for found in _posted(client, path, request_type.model_config["json_schema_extra"]["examples"][0]).get("published", ()):
            assert found["derivation"]
            assert client.get(f"/v1/errata/{found['erratum']}").status_code == 200


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("zeta_dp_delta"))
def test_theorem_1_is_shown_beside_the_true_delta(client, inputs, oracle):
    sensitivity = {**SENSITIVITY, "l2": float(inputs["Delta"])}
    answer = _noise(client, {"convention": "total", "sigma": float(inputs["sigma"])}, sensitivity, epsilons=[float(inputs["eps"])])
    found, proven = _of(answer, "Z2"), float(oracle["value"]["correct"])
    at = found["delta"][0]
    assert at["printed"] == pytest.approx(float(oracle["value"]["published_overclaims"]), rel=1e-11)
    assert proven <= at["proven"] <= proven * (1 + 1e-11)
    assert proven <= answer["proven"]["delta"][0]["upper"] <= proven * (1 + 1e-11)
    assert (found["direction"], at["direction"]) == ("overclaims", "overclaims")
    assert found["ratio"] == pytest.approx(math.sqrt(0.5), rel=1e-13)


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("rdp_complex_gaussian"))
def test_theorem_2_is_shown_beside_the_true_divergence(client, inputs, oracle):
    sensitivity, order = {**SENSITIVITY, "l2": float(inputs["Delta"])}, float(inputs["alpha"])
    answer = _noise(client, {"convention": "total", "sigma": float(inputs["sigma"])}, sensitivity, orders=[order])
    found, exact = _of(answer, "Z5"), float(oracle["value"]["N_C_total_sigma_correct"])
    assert exact <= found["proven"] <= exact * (1 + 1e-12)
    assert exact <= answer["proven"]["rdp"][0]["value"] <= exact * (1 + 1e-12)
    assert (found["ratio"], found["direction"]) == (pytest.approx(0.5, rel=1e-12), "overclaims")


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("gaussian_calibration"))
def test_theorem_3_is_shown_beside_the_noise_that_is_needed(client, inputs, oracle):
    sensitivity = {**SENSITIVITY, "l2": float(inputs["Delta"])}
    found = _of(_noise(client, TOTAL, sensitivity, mus=[float(oracle["value"]["mu"])]), "Z7")
    exact = float(oracle["value"]["sigma_total"])
    assert exact * (1 - 1e-15) <= found["proven"] <= exact * (1 + 1e-12)
    assert found["printed"] == pytest.approx(float(oracle["value"]["sigma_component"]), rel=1e-13)
    assert found["direction"] == "overclaims"


def test_what_definition_7_says_of_components_is_twice_the_truth(client):
    component, simulated = (found for found in _noise(client, {**TOTAL, "sigma": 3.0})["published"] if found["erratum"] == "Z1")
    assert (component["printed"], component["proven"]) == pytest.approx((3.0 * math.sqrt(2.0), 3.0 / math.sqrt(2.0)), rel=1e-15)
    assert (component["direction"], simulated["direction"]) == ("overclaims", "loose")
    assert (simulated["printed"], simulated["proven"]) == pytest.approx((6.0, 3.0 / math.sqrt(2.0)), rel=1e-15)


@pytest.mark.parametrize("correlation", [0.5, -0.9])
def test_zeta_dp_statements_do_not_apply_to_correlated_noise(client, correlation):
    answer = _compared(client, mechanism=release(correlation=correlation)["mechanism"], epsilons=[1.0])
    for row in ("Z1", "Z2", "Z5", "Z7"):
        assert (_of(answer, row)["direction"], _of(answer, row)["printed"]) == ("does_not_apply", None)
    assert _of(answer, "Z2")["delta"] == []


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("cgm_noncircular_mu"))
def test_equation_3_is_shown_beside_the_tight_mu(client, inputs, oracle):
    whole = float(inputs["Delta"])
    sensitivity = {
        **SENSITIVITY,
        "l2": whole,
        "l2_real": min(whole, float(inputs["Delta_re"])),
        "l2_imag": min(whole, float(inputs["Delta_im"])),
    }
    noise = {"convention": "per_component", "sigma": float(inputs["sigma_component"]), "rho": float(inputs["rho"])}
    answer = _noise(client, noise, sensitivity)
    tight, published = float(oracle["value"]["tight"]), float(oracle["value"]["published"])
    for row in ("C3", "C4"):
        found = _of(answer, row)
        assert found["printed"] == pytest.approx(published, rel=1e-13)
        assert tight <= found["proven"] <= tight * (1 + 1e-13)
        assert found["direction"] == ("equal" if math.isclose(tight, published, rel_tol=1e-12) else "loose")
    assert answer["proven"]["gdp_mu"] == pytest.approx(tight, rel=1e-13)


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("cgm_general_covariance_mu"))
def test_a_covariance_is_accepted_by_name(client, inputs, oracle):
    noise = {
        "convention": "covariance",
        "v_real": float(inputs["v_re"]),
        "v_imag": float(inputs["v_im"]),
        "covariance": float(inputs["cov"]),
    }
    sensitivity = {
        **SENSITIVITY,
        "l2": float(inputs["Delta"]),
        "l2_real": float(inputs["Delta_re"]),
        "l2_imag": float(inputs["Delta_im"]),
    }
    answer = _noise(client, noise, sensitivity)
    assert answer["proven"]["gdp_mu"] == pytest.approx(float(oracle["value"]), rel=1e-12)
    assert [step["symbol"] for step in answer["conversion"]] == ["v_real", "v_imag", "c", "std_real", "std_imag", "rho"]


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("cgm_equal_mse_optimum"))
def test_circular_noise_is_shown_beside_the_optimal_shape(client, inputs, oracle):
    whole = float(inputs["Delta"])
    sensitivity = {**SENSITIVITY, "l2": whole, "l2_real": float(inputs["Delta_re"]), "l2_imag": float(inputs["Delta_im"])}
    found = _of(_noise(client, {"convention": "total", "sigma": math.sqrt(float(inputs["V"]))}, sensitivity), "C8")
    assert found["printed"] == pytest.approx(float(oracle["value"]["mu_circular"]), rel=1e-12)
    assert found["proven"] == pytest.approx(float(oracle["value"]["mu_opt"]), rel=1e-12)


@pytest.mark.parametrize(("rho", "squared"), [(0.0, 2.0), (0.5, 4.0 / 3.0), (0.9, 2.0 / 1.9), (-0.5, 4.0 / 3.0)])
def test_a_query_of_one_phase_is_served_better_by_correlated_noise(client, rho, squared):
    sensitivity = {**SENSITIVITY, "l2": math.sqrt(2.0)}
    found = _of(_noise(client, {"convention": "per_component", "sigma": 1.0, "rho": rho}, sensitivity), "C7")
    assert found["proven"] ** 2 == pytest.approx(squared, rel=1e-12)
    assert found["printed"] == pytest.approx(math.sqrt(2.0), rel=1e-15)
    assert found["direction"] == ("equal" if rho == 0.0 else "loose")


def test_a_part_that_never_moves_has_no_phase(client):
    found = _of(_noise(client, TOTAL, {**SENSITIVITY, "l2_imag": 0.0}), "C7")
    assert (found["direction"], found["proven"]) == ("does_not_apply", None)


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("gdp_group"))
def test_a_group_of_k_has_k_times_the_mu(client, inputs, oracle):
    noise = {"convention": "per_component", "sigma": 1.0 / float(inputs["mu"])}
    answer = _noise(client, noise, group=int(inputs["k"]), deltas=[1e-3])
    exact = float(oracle["value"])
    assert answer["proven"]["gdp_mu"] == pytest.approx(exact, rel=1e-14)
    found = _of(answer, "C10")
    assert exact <= found["proven"] <= exact * (1 + 1e-12)
    assert found["printed"] == pytest.approx(float(inputs["mu"]), rel=1e-14)
    assert found["epsilon"][0]["proven"] == pytest.approx(answer["proven"]["epsilon"][0]["upper"], rel=1e-12)


def test_the_units_of_a_group_are_named(client):
    assert _noise(client, TOTAL, group=80)["proven"]["unit"] == "group_of_80_record"
    long = {**SENSITIVITY, "unit": "a" * 64}
    assert _noise(client, TOTAL, long, group=2)["proven"]["unit"] == ("group_of_2_" + "a" * 64)[:64]
    same = {**SENSITIVITY, "unit": ("group_of_2_" * 6)[:64]}
    assert _noise(client, TOTAL, same, group=2)["proven"]["unit"] == "group_of_2"


def test_a_single_unit_is_what_the_paper_says_of_patients(client):
    assert _of(_noise(client, TOTAL), "C10")["direction"] == "equal"


def test_replacing_doubles_every_bound(client):
    sensitivity = {**SENSITIVITY, "l2_real": 0.8, "l2_imag": 0.7}
    stated, read = (_noise(client, TOTAL, sensitivity, **reading) for reading in ({}, {"reading": "replace_one"}))
    assert read["proven"]["gdp_mu"] == pytest.approx(2.0 * stated["proven"]["gdp_mu"], rel=1e-15)
    assert read["proven"]["adjacency"] == read["mechanism"]["sensitivity"]["adjacency"] == "replace_one"
    assert read["mechanism"]["sensitivity"]["l2_contribution"] == 1.0
    assert _of(stated, "C9")["proven"] == pytest.approx(read["proven"]["gdp_mu"], rel=1e-13)
    assert _of(stated, "C9")["direction"] == "overclaims"


def test_replacing_and_groups_multiply(client):
    answer = _noise(client, {"convention": "per_component", "sigma": 2.0}, reading="replace_one", group=3)
    assert answer["proven"]["gdp_mu"] == pytest.approx(3.0, rel=1e-15)
    assert _of(answer, "C10")["proven"] == pytest.approx(3.0, rel=1e-13)


def test_a_sensitivity_for_other_neighbours_is_not_read_as_one_for_adding(client):
    body = {"noise": TOTAL, "sensitivity": {**SENSITIVITY, "adjacency": "replace_one"}}
    assert _of(_compared(client, **body), "C9")["direction"] == "does_not_apply"
    detail = problem(client.post("/v1/compare/complex_gaussian", json={**body, "reading": "replace_one"}))["detail"]
    assert "must be add_remove where it is to be read as replace_one, got 'replace_one'" in detail


def test_counterexamples_have_the_known_figures(client):
    answer = _noise(client, TOTAL)
    event = _last(_of(answer, "Z2"))
    assert event["delta attained"] == pytest.approx(event["delta in closed form"], rel=1e-12)
    assert (event["delta attained"], event["delta printed"]) == (pytest.approx(0.286208, abs=1e-6), pytest.approx(0.126937, abs=1e-6))
    assert _last(_of(answer, "C9"))["epsilon, added"] == pytest.approx(1.352, abs=5e-4)
    assert _last(_of(answer, "C9"))["epsilon, replaced"] == pytest.approx(3.139, abs=5e-4)
    patient = _last(_of(answer, "C10"))
    assert (patient["mu, image"], patient["epsilon, patient"]) == (pytest.approx(0.388, abs=5e-4), pytest.approx(577.8, abs=0.05))
    assert _last(_of(answer, "C8"))["mu^2 of that noise"] == pytest.approx(0.786, abs=5e-4)
    assert _last(_of(answer, "Z5"))["D_2"] == pytest.approx(2.0, rel=1e-14)
    assert _last(_of(answer, "C3"))["mu printed"] / _last(_of(answer, "C3"))["mu"] == pytest.approx(1.155, abs=5e-4)


def test_far_deltas_are_told_apart_though_no_float_can(client):
    at = _of(_noise(client, TOTAL, epsilons=[400.0]), "Z2")["delta"][0]
    assert (at["printed"], at["proven"]) == (5e-324, 5e-324)
    assert at["direction"] == "overclaims"
    assert at["ratio"] == 0.0


def test_one_convention_means_another_noise(client):
    total, component = (_noise(client, {"convention": name, "sigma": 2.0}) for name in ("total", "per_component"))
    assert total["proven"]["gdp_mu"] == pytest.approx(math.sqrt(2.0) * component["proven"]["gdp_mu"], rel=1e-15)


def test_stated_noise_is_the_mechanism_it_is_converted_to(client):
    stated = _noise(client, TOTAL, epsilons=[1.0])
    direct = _compared(client, mechanism=stated["mechanism"], epsilons=[1.0])
    assert without_cost((direct["proven"], direct["published"])) == without_cost((stated["proven"], stated["published"]))
    assert (direct["conversion"], stated["conversion"] != []) == ([], True)


BAD = {
    "neither": ({}, "mechanism: must be given, or noise and sensitivity without it, got 'neither'"),
    "both": ({"mechanism": release()["mechanism"], "noise": TOTAL, "sensitivity": SENSITIVITY}, "got 'both'"),
    "noise alone": ({"noise": TOTAL}, "sensitivity: must be given together with noise"),
    "sensitivity beside a mechanism": ({"mechanism": release()["mechanism"], "sensitivity": SENSITIVITY}, "given together with noise"),
    "no convention": ({"noise": {"sigma": 1.0}, "sensitivity": SENSITIVITY}, "convention"),
    "group 0": ({"noise": TOTAL, "sensitivity": SENSITIVITY, "group": 0}, "group: must be >= 1, got 0"),
    "group of 2.5": ({"noise": TOTAL, "sensitivity": SENSITIVITY, "group": 2.5}, "group"),
    "order 1": ({"noise": TOTAL, "sensitivity": SENSITIVITY, "orders": [1.0]}, "orders[0]: must be > 1, got 1.0"),
    "mu 0": ({"noise": TOTAL, "sensitivity": SENSITIVITY, "mus": [0.0]}, "mus[0]: must be >= 1e-50, got 0.0"),
    "no l2": ({"noise": TOTAL, "sensitivity": {"l1": 1.0, "adjacency": "add_remove", "unit": "record"}}, "sensitivity.l2"),
    "rho -1": ({"noise": {"convention": "per_component", "sigma": 1.0, "rho": -1.0}, "sensitivity": SENSITIVITY}, "rho: must be > -1"),
    "not positive definite": (
        {"noise": {"convention": "covariance", "v_real": 1.0, "v_imag": 1.0, "covariance": 1.0}, "sensitivity": SENSITIVITY},
        "covariance: must be strictly between -1.0 and 1.0 (a positive definite matrix), got 1.0",
    ),
    "doubled beyond the largest": (
        {"noise": TOTAL, "sensitivity": {**SENSITIVITY, "l2": 1e50}, "reading": "replace_one"},
        "must be at most 5e+49, to be doubled",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_comparisons_are_refused_with_what_was_expected(client, name):
    body, text = BAD[name]
    assert text in problem(client.post("/v1/compare/complex_gaussian", json=body))["detail"]


def test_absurd_comparisons_are_answered_without_nan(client):
    ends = (1e-50, 1.0, 1e50)
    for sigma, l2, group in itertools.product(ends, ends, (1, 10**6)):
        body = {
            "noise": {"convention": "per_component", "sigma": sigma, "rho": 1.0 - 2.0**-53},
            "sensitivity": {**SENSITIVITY, "l2": l2},
            "epsilons": [0.0, 1e-50, 1.0, 1e50],
            "deltas": [1e-300, 0.5],
            "orders": [1.0000001, 1e6],
            "mus": list(ends),
            "group": group,
        }
        answer = _compared(client, **body)
        for found in answer["published"]:
            assert found["proven"] is None or float(found["proven"]) >= 0.0
            assert all(float(at["proven"]) >= 0.0 for at in found["delta"] + found["epsilon"])
