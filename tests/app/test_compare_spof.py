from __future__ import annotations

import json
import math

import numpy as np
import pytest
from fastapi.testclient import TestClient

from tests.app.calculators_harness import problem
from tests.app.spof_harness import EXAMPLES, FAMILIES, ask, found, plain
from tests.golden.oracles import oracle_rows
from zetadp.app.calculators.compare.spof.noise import scale_log_ratio
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app
from zetadp.mechanisms import NumpySource
from zetadp.mechanisms.errata import erratum


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with TestClient(create_app(Settings(data_dir=tmp_path_factory.mktemp("data"))), base_url="http://127.0.0.1") as client:
        yield client


# --- over HTTP ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_the_documented_example_is_answered_without_nan(client, family):
    response = client.post(f"/v1/compare/{family}", json=EXAMPLES[family])
    assert response.status_code == 200, response.text
    assert "NaN" not in response.text
    body = response.json()
    assert body["published"]
    assert client.get(body["proof"]).status_code == 200


@pytest.mark.parametrize("family", FAMILIES)
def test_every_finding_names_a_row_of_the_errata(family):
    for each in ask(family).published:
        assert erratum(each.erratum).row == each.erratum


def test_every_row_is_there():
    rows = {each.erratum for name in FAMILIES for each in ask(name).published}
    assert rows >= {f"S{k}" for k in (*range(1, 4), *range(5, 19), *range(25, 32))}


def test_the_mechanism_of_the_answer_has_the_profile_asked_for(client):
    body = client.post("/v1/compare/spof", json=EXAMPLES["spof"]).json()
    event = {"kind": "release", "mechanism": body["mechanism"]}
    found = client.post("/v1/profiles", json={"event": event, "deltas": [1e-12]}).json()
    # The coordinates' composition at its exact price: a hair below the pure epsilon, which holds at delta 0.
    assert 1.0 - 1e-7 < found["epsilon"][0]["upper"] <= 1.0


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("spof", {"dimension": 0}, ">= 1"),
        ("spof", {"stabilisation": "c_j^T h_j"}, "fixed before the data is seen"),
        ("spof", {"stabilisation": {"depends_on": "h"}}, "fixed before the data is seen"),
        ("spof", {"stabilisation": True}, "fixed before the data is seen"),
        ("spof", {"stabilisation": [1.0, 2.0]}, "fixed before the data is seen"),
        ("spof", {"stabilisation": 1e50}, "<= 1e+06"),
        ("spof", {"stabilisation": 10**400}, "stabilisation"),
        ("spof", {"expansion_point": 1e50}, "<= 1e+06"),
        ("spof", {"epsilon": 0.0}, ">= "),
        ("spof", {"epsilon": 1e50}, "<= "),
        ("spof", {"releases": 0}, ">= 1"),
        ("dp_sgd_laplace", {"clipping_bound": 0.0}, ">= "),
        ("dp_sgd_laplace", {"clipping_bound": -4.0}, ">= "),
        ("dp_sgd_laplace", {"environment_factor": -1.0}, ">= "),
        ("dp_sgd_laplace", {"dimension": 0}, ">= 1"),
        ("functional_mechanism", {"records": 0}, ">= 1"),
        ("functional_mechanism", {"sigma": 1.0}, "no field with this name"),
    ],
)
def test_bad_input_is_refused_with_its_field(client, family, changes, message):
    body = problem(client.post(f"/v1/compare/{family}", json=EXAMPLES[family] | changes))
    assert message in json.dumps(body)
    assert next(iter(changes)) in json.dumps(body)


def _numbers(value):
    if isinstance(value, dict):
        for each in value.values():
            yield from _numbers(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _numbers(each)
    elif isinstance(value, float):
        yield value


@pytest.mark.parametrize("n", [1, 2, 10**6])
@pytest.mark.parametrize("a", [-1e6, -1e3, -1e-300, 0.0, 1e3, 1e6])
@pytest.mark.parametrize("epsilon", [1e-20, 1.0, 1e20])
def test_no_answer_at_the_ends_is_nan(n, a, epsilon):
    counts = {"releases": 10**12, "hidden_units": 10**12, "rows_per_user": 10**12, "users": 10**12}
    answers = [
        *(ask("spof", dimension=n, expansion_point=a, stabilisation=c, epsilon=epsilon, **counts) for c in (-1e6, 0.0, 1e-300, 1e6)),
        *(
            ask("dp_sgd_laplace", dimension=n, expansion_point=a, clipping_bound=bound, epsilon=epsilon, releases=10**12)
            for bound in (1e-20, 0.5, 1e20)
        ),
        ask("functional_mechanism", dimension=n, expansion_point=a, epsilon=epsilon, records=10**12, releases=10**12),
    ]
    for answer in answers:
        assert not any(math.isnan(number) for number in _numbers(answer.model_dump()))


# --- what the numbers are -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("spof_sensitivity"))
def test_findings_agree_with_every_value_of_the_oracle(inputs, oracle):
    n, a, c = int(inputs["n"]), float(inputs["a"]), float(inputs["c"])
    answer = ask("spof", dimension=n, expansion_point=a, stabilisation=c)
    sgd = ask("dp_sgd_laplace", dimension=n, expansion_point=a, clipping_bound=1e9)
    pairs = {
        "published_eq58_per_feature": found(answer, "S25", "(18) of the six derivatives").printed,
        "corrected_eq58_per_feature": found(answer, "S25", "(18) of the six derivatives").proven,
        "tight_eq17_per_feature_separate_k": found(answer, "S25", "largest move").proven,
        "correct_gradient_relevant": found(answer, "S26").proven,
        "correct_with_constant_powers_of_z": answer.l1.with_constant_in_powers_of_z,
        "published_hat": found(answer, "S11", "all printed coefficients").printed,
        "published_bar": found(answer, "S5", "private coefficients").printed,
        "correct_for_published_loss_excl_const": found(answer, "S11", "printed loss at z + c, without").proven,
        "correct_for_published_loss_incl_const": found(answer, "S11", "printed loss at z + c, with its").proven,
        "published_sgd_unclipped": found(sgd, "S27", "unclipped").printed,
        "correct_sgd_unclipped": found(sgd, "S27", "unclipped").proven,
        "valid_triangle_sgd_unclipped": found(sgd, "S27", "unclipped").derivation[0].value,
    }
    assert set(oracle["value"]) <= set(pairs)
    for name, value in oracle["value"].items():
        assert pairs[name] == pytest.approx(float(value), rel=1e-12), name
    assert sgd.l1 == pytest.approx(float(oracle["value"]["correct_sgd_unclipped"]), rel=1e-12)


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("spof_dpsgd_clipped"))
def test_clipped_findings_agree_with_the_oracle(inputs, oracle):
    answer = ask("dp_sgd_laplace", dimension=int(inputs["n"]), expansion_point=0.0, clipping_bound=float(inputs["C"]))
    only = found(answer, "S28", "l1 sensitivity")
    assert only.printed == pytest.approx(float(oracle["value"]["published_branch_ge_C"]), rel=1e-12)
    assert only.proven == answer.l1 == pytest.approx(float(oracle["value"]["tight"]), rel=1e-12)


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("spof_actual_eps"))
def test_the_true_epsilon_of_algorithm_1_agrees_with_the_oracle(inputs, oracle):
    answer = plain(epsilon=float(inputs["eps"]))
    assert found(answer, "S7", "as printed").proven == pytest.approx(float(oracle["value"]["published_coeffs"]), rel=1e-12)
    assert found(answer, "S7", "right loss").proven == pytest.approx(float(oracle["value"]["correct_coeffs"]), rel=1e-12)


def test_algorithm_1_is_within_epsilon_from_the_stated_constant_on():
    assert found(plain(stabilisation=0.289), "S7", "as printed").direction == "overclaims"
    assert found(plain(stabilisation=0.290), "S7", "as printed").direction == "loose"


def test_the_sum_of_both_coefficients_is_three_times_more_private_than_printed():
    assert found(plain(), "S6").ratio == 3.0


def test_the_variances_of_section_5_cost_twice_epsilon():
    only = found(plain(), "S8")
    assert only.proven == pytest.approx(2.0, rel=1e-15)
    assert only.counterexample.steps[0].value == 4.5


def test_kurtosis_of_two_laplace_variables_is_not_that_of_one():
    drawn = NumpySource.from_seed(8)
    total = drawn.standard_laplace((400_000,)) + drawn.standard_laplace((400_000,))
    kurtosis = float(np.mean(total**4) / np.mean(total**2) ** 2)
    assert kurtosis == pytest.approx(found(plain(), "S8").counterexample.steps[0].value, rel=0.05)


def test_a_hundred_releases_cost_a_hundred_times_sqrt_two():
    assert found(plain(releases=100), "S16").proven == pytest.approx(141.4213562373095, rel=1e-14)
    assert found(plain(releases=100, rows_per_user=3), "S16").proven == pytest.approx(424.26406871192853, rel=1e-14)


def test_parallel_composition_holds_for_users_of_one_row_only():
    assert found(plain(), "S18").direction == "equal"
    assert found(plain(rows_per_user=2), "S18").ratio == 0.5


def test_the_bound_on_a_private_constant_is_at_c_times_l():
    only = found(ask("spof"), "S13", "scale times epsilon")
    assert only.proven / 14 == pytest.approx(189.625, rel=1e-14)


def test_a_private_constant_in_the_scale_leaves_no_epsilon():
    only = found(ask("spof"), "S13", "pure epsilon")
    scales = [step.value for step in only.counterexample.steps[:2]]
    assert (only.proven, only.direction) == (math.inf, "overclaims")
    # Codes that sum to 0.5 and 6.5, so c_j = 1.25 and 16.25; epsilon = 1: 66.9375 and 2324.4375 over sqrt(2).
    assert scales == [pytest.approx(66.9375 / math.sqrt(2.0), rel=1e-14), pytest.approx(2324.4375 / math.sqrt(2.0), rel=1e-14)]
    ratios = [step.value for step in only.counterexample.steps[2:]]
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[-1] < -30_000.0


def test_no_constant_no_dependence():
    assert found(plain(), "S13", "pure epsilon").direction == "does_not_apply"


def test_the_log_ratio_of_two_scales_is_that_of_their_densities():
    q, first, second = 35.0, 2.0, 4.0
    densities = [math.exp(-q / scale) / (2.0 * scale) for scale in (first, second)]
    assert scale_log_ratio(first, second, q) == pytest.approx(math.log(densities[0] / densities[1]), rel=1e-13)


def test_private_column_maxima_move_every_user():
    only = found(ask("spof", users=50), "S9", "columns divided")
    assert (only.printed, only.proven) == (21.0, 1050.0)
    assert only.counterexample.steps[-1].value == pytest.approx(50.0, abs=1e-6)


@pytest.mark.parametrize("c", [-3.0, -0.5])
def test_a_negative_constant_has_proved_sensitivities_and_no_printed_one(c):
    answer = ask("spof", stabilisation=c)
    assert answer.l1.with_constant_in_powers_of_z == pytest.approx(14.0 * (1.0 + abs(c)), rel=1e-15)
    assert {each.direction for each in answer.published if each.erratum in {"S7", "S8", "S11", "S12", "S16"}} == {"does_not_apply"}


@pytest.mark.parametrize("a", [-3.0, 1e3])
def test_another_expansion_point_has_proved_sensitivities_and_no_printed_scale(a):
    answer = ask("spof", expansion_point=a)
    assert answer.l1.of_z == 14.0
    assert answer.l1.with_constant_in_taylor_powers == pytest.approx(14.0 * (1.0 + abs(a)), rel=1e-15)
    assert found(answer, "S5", "printed pair").direction == "does_not_apply"


def test_the_wrong_expansion_is_shown_at_a_point():
    right, wrong = (step.value for step in found(ask("spof"), "S10", "of z in").counterexample.steps)
    # x = 1, z = 1, c = 2.5: log 2 - 0.5 * 3.5 + 0.25 * 3.5^2, and log 2 + 0.25 * 6.25 - 0.5 * 6 + 0.25.
    assert right == pytest.approx(math.log(2.0) + 1.3125, rel=1e-14)
    assert wrong == pytest.approx(math.log(2.0) - 1.1875, rel=1e-14)


def test_the_wrong_loss_is_shown_at_the_point_where_it_fails():
    values = [round(step.value, 3) for step in found(plain(), "S3").counterexample.steps]
    assert values == [0.127, 0.693, 0.193, 2.127, 0.693, 2.193]


def test_the_printed_minimum_is_reproduced_and_moved_to_zero():
    only = found(plain(), "S25", "least value")
    steps = {step.symbol: step.value for step in only.derivation}
    assert steps["argmin of (58)"] == pytest.approx(0.9057, abs=5e-5)
    assert steps["min of (58)"] == pytest.approx(4.0348, abs=5e-5)
    assert only.proven == pytest.approx(2.0 * math.log(2.0) + 1.5, rel=1e-15)


@pytest.mark.parametrize("a", np.linspace(-30.0, 30.0, 61).tolist())
def test_58_is_above_the_tight_move_at_every_point(a):
    assert found(ask("spof", expansion_point=a), "S25", "largest move").direction == "loose"


def test_the_third_line_of_33_is_smaller_than_its_second():
    only = found(ask("spof"), "S12")
    assert only.proven - only.printed == pytest.approx(2.5, rel=1e-14)
    assert found(plain(), "S12").direction == "equal"


# --- the attack ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [1e-20, 1e-6, 0.01, 1.0, 1e20])
def test_one_update_gives_the_record_away_at_any_epsilon(epsilon):
    only = found(ask("spof", epsilon=epsilon), "S14")
    rank, code, record = (step.value for step in only.counterexample.steps)
    assert (only.proven, only.direction) == (math.inf, "overclaims")
    assert max(rank, code, record) < 1e-9


def test_one_update_of_algorithm_2_gives_the_record_away():
    for a in (-1e3, -2.0, 0.0, 5.0):
        only = found(ask("dp_sgd_laplace", expansion_point=a, epsilon=1e-6), "S31")
        assert only.proven == math.inf
        assert max(step.value for step in only.counterexample.steps) < 1e-9


def test_codes_in_clear_differ_between_records():
    assert found(plain(), "S15").counterexample.steps[0].value > 1e-4
