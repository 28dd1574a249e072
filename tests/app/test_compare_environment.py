"""Environmental noise, Taylor errors, operation counts and the choice of c, over HTTP."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction

import pytest
from fastapi.testclient import TestClient

from tests.app.calculators_harness import problem
from tests.golden.oracles import oracle_rows
from zetadp.app.calculators.compare.spof import constant_selection, operation_counts, taylor
from zetadp.app.calculators.compare.spof import environment as spof_environment
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app

MODULES = {
    "environmental_noise": (spof_environment, spof_environment.EnvironmentalNoiseComparison),
    "taylor": (taylor, taylor.TaylorComparison),
    "operation_counts": (operation_counts, operation_counts.OperationCountsComparison),
    "constant_selection": (constant_selection, constant_selection.ConstantSelectionComparison),
}


def example(name):
    return MODULES[name][1].model_config["json_schema_extra"]["examples"][0]


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    app = create_app(Settings(data_dir=tmp_path_factory.mktemp("data")))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


def _refuse(token):
    raise AssertionError(f"{token} in an answer")


def ask(client, name, **changes):
    body = {**example(name), **changes}
    response = client.post(f"/v1/compare/{name}", json={key: value for key, value in body.items() if value is not None})
    assert response.status_code == 200, response.text
    return json.loads(response.text, parse_constant=_refuse)


def refusal(client, name, **changes):
    body = {**example(name), **changes}
    return problem(client.post(f"/v1/compare/{name}", json={key: value for key, value in body.items() if value is not None}))["detail"]


def finding(answer, erratum, start=""):
    (found,) = [entry for entry in answer["published"] if entry["erratum"] == erratum and entry["quantity"].startswith(start)]
    return found


@pytest.mark.parametrize("name", MODULES)
def test_the_documented_example_answers_and_every_finding_can_be_redone(client, name):
    answer = ask(client, name)
    assert answer["published"]
    for entry in answer["published"]:
        assert entry["derivation"]
        assert entry["paper"] == "spof"
    if "proof" in answer:
        assert client.get(answer["proof"]).status_code == 200


# Environmental noise


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("spof_b_distribution"))
def test_law_and_printed_law_agree_with_the_oracle(client, inputs, oracle):
    x = float(inputs["x"])
    answer = ask(
        client,
        "environmental_noise",
        hidden_output=float(inputs["h"]),
        weight_norm=1.0,
        noise_std=float(inputs["sigma_tilde"]),
        at=[x],
    )
    (at,) = answer["law"]["at"]
    value = {name: float(text) for name, text in oracle["value"].items()}
    assert (at["cdf"], at["pdf"], at["printed_cdf"]) == pytest.approx((value["cdf"], value["pdf"], value["published_cdf_wrong"]), rel=1e-12)


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("spof_Pr_bmax_lt_1"))
def test_probability_of_the_largest_factor_agrees_with_the_oracle(client, inputs, oracle):
    answer = ask(
        client,
        "environmental_noise",
        hidden_output=float(inputs["h"]),
        weight_norm=float(inputs["sigma_tilde"]),
        noise_std=1.0,
        hidden_units=int(inputs["l"]),
        samples=int(inputs["D"]),
    )
    largest = answer["below_one"][1]
    assert largest["lower"] == largest["upper"] == pytest.approx(float(oracle["value"]["value"]), rel=1e-12)
    found = finding(answer, "S24", "ln Pr[b_max")
    assert found["direction"] == "overclaims"
    assert found["proven"] == pytest.approx(math.log(float(oracle["value"]["value"])), rel=1e-12)
    assert found["printed"] == math.log(0.5)


def test_a_single_unit_and_sample_are_below_one_half_of_the_time(client):
    answer = ask(client, "environmental_noise", hidden_units=1, samples=1)
    assert [entry["lower"] for entry in answer["below_one"]] == [0.5, 0.5]
    assert [entry["upper"] for entry in answer["below_one"]] == [0.5, 0.5]
    assert finding(answer, "S24", "ln Pr[b_max")["direction"] == finding(answer, "S24", "ln Pr[b_j")["direction"] == "equal"


def test_sensitivity_of_noiseless_inputs_is_three_times_the_printed_one(client):
    found = finding(ask(client, "environmental_noise"), "S20", "l1 sensitivity")
    assert (found["printed"], found["proven"], found["direction"]) == (147.0, 441.0, "overclaims")
    assert {step["symbol"]: step["value"] for step in found["derivation"]}["epsilon_true"] == 3.0


@pytest.mark.parametrize(("b", "direction"), [(0.5, "loose"), (1.0, "equal"), (2.0, "overclaims")])
def test_printed_sensitivity_is_right_for_a_factor_of_one_alone(client, b, direction):
    assert finding(ask(client, "environmental_noise", multiplier=b), "S20", "l1 sensitivity")["direction"] == direction


def test_noise_that_shrinks_with_the_records_factor_has_no_epsilon(client):
    found = finding(ask(client, "environmental_noise", epsilon=0.1), "S21")
    assert (found["printed"], found["proven"], found["direction"]) == (0.1, "Infinity", "overclaims")
    ratios = [step["value"] for step in found["counterexample"]["steps"] if step["symbol"].startswith("log ratio")]
    assert ratios[0] > 1.0
    assert ratios[1] > 100.0 * ratios[0] * 0.99
    assert ratios[2] == pytest.approx(1000.0 * ratios[1], rel=0.01)


def test_printed_mass_and_variance_are_those_of_the_errata(client):
    answer = ask(client, "environmental_noise", hidden_output=0.7, weight_norm=23.39, noise_std=0.5)
    assert finding(answer, "S23")["printed"] == pytest.approx(5.85, abs=0.01)
    assert finding(answer, "S23")["proven"] == pytest.approx(136.8, abs=0.1)
    answer = ask(client, "environmental_noise", hidden_output=0.7, weight_norm=2.0, noise_std=1.0)
    assert finding(answer, "S22", "probability")["printed"] == pytest.approx(0.639, abs=5e-4)


def test_counterexample_of_the_inverse_gives_x_back_from_the_true_one_alone(client):
    steps = finding(ask(client, "environmental_noise"), "S22", "the e^D")["counterexample"]["steps"]
    back = [step["value"] for step in steps if step["symbol"] == "x from it"]
    assert back[0] != pytest.approx(0.5, rel=0.1)
    assert back[1] == pytest.approx(0.5, rel=1e-15)


def test_weights_give_the_same_answer_as_their_norm(client):
    by_weights = ask(client, "environmental_noise", weight_norm=None, weights=[0.0] * 12 + [3.0, -4.0])
    assert by_weights == ask(client, "environmental_noise", weight_norm=5.0)


def test_environmental_noise_buys_nothing_unless_the_service_draws_it(client):
    answer = ask(client, "environmental_noise")
    assert answer["buys"].startswith("Nothing off epsilon.")
    service = answer["drawn_by_the_service"]
    assert service["gdp_mu"] == pytest.approx(math.sqrt(14.0) / 0.5, rel=1e-15)
    profile = client.post("/v1/profiles", json={"event": service["event"], "epsilons": [1.0]})
    assert profile.json()["gdp_mu"] == pytest.approx(service["gdp_mu"], rel=1e-12)


def test_no_noise_leaves_a_constant_factor_and_no_privacy(client):
    answer = ask(client, "environmental_noise", noise_std=0.0, at=[0.999, 1.0, 2.0])
    assert [(at["cdf"], at["pdf"]) for at in answer["law"]["at"]] == [(0.0, None), (1.0, None), (1.0, None)]
    assert (answer["law"]["mean"], answer["law"]["variance"]) == (1.0, 0.0)
    assert [quantile["value"] for quantile in answer["law"]["quantiles"]] == [1.0, 1.0, 1.0]
    assert [entry["upper"] for entry in answer["below_one"]] == [0.0, 0.0]
    assert answer["drawn_by_the_service"] == {**answer["drawn_by_the_service"], "gdp_mu": "Infinity", "event": None}


def test_moments_that_leave_the_range_of_floats_keep_their_logarithms(client):
    law = ask(client, "environmental_noise", hidden_output=0.0, weight_norm=1e50, noise_std=1.0)["law"]
    assert (law["mean"], law["variance"]) == (None, None)
    assert law["log_mean"] == pytest.approx(5e99, rel=1e-12)


_ENDS = (1e-50, 1.0, 1e50)


@pytest.mark.parametrize("h", [0.0, 1e-50, 0.5, 1.0 - 2.0**-53])
@pytest.mark.parametrize(("norm", "std"), list(itertools.product((0.0, *_ENDS), (0.0, *_ENDS))))
def test_absurd_environments_are_answered_with_numbers(client, h, norm, std):
    answer = ask(
        client,
        "environmental_noise",
        hidden_output=h,
        weight_norm=norm,
        noise_std=std,
        at=[1e-50, 0.5, 1.0, 1.5, 2.0, 3.0, 1e50],
        probabilities=[1e-300, 0.5, 1.0 - 2.0**-53],
        hidden_units=10**12,
        samples=10**12,
        features=10**12,
        multiplier=1e50,
        epsilon=1e-50,
    )
    law = answer["law"]
    assert all(0.0 <= at["cdf"] <= 1.0 and (at["pdf"] is None or at["pdf"] >= 0.0) for at in law["at"])
    assert all(earlier["cdf"] <= later["cdf"] for earlier, later in itertools.pairwise(law["at"]))
    assert law["variance"] is None or float(law["variance"]) >= 0.0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"noise_std": -1.0}, "noise_std: must be >= 0"),
        ({"noise_std": 1e-60}, "noise_std: must be 0 or >= 1e-50"),
        ({"hidden_output": 1.0}, "hidden_output: must be < 1"),
        ({"hidden_output": -0.1}, "hidden_output: must be >= 0"),
        ({"at": [0.0]}, "at[0]: must be >= 1e-50"),
        ({"at": [-0.5]}, "at[0]: must be >= 1e-50"),
        ({"multiplier": 0.0}, "multiplier: must be >= 1e-50"),
        ({"features": 0}, "features: must be >= 1"),
        ({"hidden_units": 0}, "hidden_units: must be >= 1"),
        ({"samples": 0}, "samples: must be >= 1"),
        ({"weights": [1.0] * 14}, "weight_norm: must be given, or weights instead of it"),
        ({"weight_norm": None}, "weight_norm: must be given, or weights instead of it"),
        ({"weight_norm": None, "weights": [1.0]}, "weights: must be as many as features = 14"),
        ({"probabilities": [1.0]}, "probabilities[0]: must be < 1"),
    ],
)
def test_bad_environments_are_refused_by_name(client, changes, words):
    assert words in refusal(client, "environmental_noise", **changes)


# Taylor


def test_losses_are_those_of_the_errata(client):
    loss = ask(client, "taylor")["loss"]
    assert (loss["exact"], loss["published"], loss["polynomial"]) == pytest.approx((0.127, 0.693, 0.193), abs=5e-4)
    assert loss["published_error"] == pytest.approx(loss["published"] - loss["exact"], rel=1e-12)
    assert loss["polynomial_error"] == pytest.approx(loss["polynomial"] - loss["exact"], rel=1e-12)


def test_no_constant_bounds_the_derivatives(client):
    answer = ask(client, "taylor", derivative_bound=100.0)
    found = finding(answer, "S4", "constant")
    assert (found["printed"], found["proven"], found["direction"]) == (100.0, "Infinity", "overclaims")
    assert found["counterexample"]["steps"][0]["value"] == "5461/4"
    assert {entry["order"]: entry["exact"] for entry in answer["derivatives_at_zero"]}[20] == "-221930581/8"


@pytest.mark.parametrize(("bound", "direction"), [(1e-3, "overclaims"), (1.0, "loose")])
def test_the_printed_error_bound_depends_on_a_constant_that_nobody_has(client, bound, direction):
    assert finding(ask(client, "taylor", derivative_bound=bound), "S4", "largest")["direction"] == direction


def test_without_a_constant_the_paper_states_no_error(client):
    assert finding(ask(client, "taylor", derivative_bound=None), "S4", "largest")["direction"] == "does_not_apply"


def test_a_printed_bound_beyond_all_floats_is_null(client):
    found = finding(ask(client, "taylor", distance=1e4), "S4", "largest")
    assert (found["printed"], found["direction"]) == (None, "does_not_apply")
    assert "beyond all floats" in found["note"]


def test_proved_bounds_are_the_closed_forms(client):
    answer = ask(client, "taylor")
    assert answer["cubic_bound"] == pytest.approx(8.0 / (36.0 * math.sqrt(3.0)), rel=1e-14)
    assert answer["quartic_bound"] == pytest.approx(16.0 / 192.0, rel=1e-14)
    assert 0.0 < answer["largest_error"] < answer["quartic_bound"]
    assert ask(client, "taylor", expansion_point=1.0)["quartic_bound"] is None


@pytest.mark.parametrize(("a", "distance", "converges"), [(0.0, 3.1, True), (0.0, 3.2, False), (4.0, 5.0, True), (4.0, 5.1, False)])
def test_the_series_converges_up_to_the_nearest_singularity(client, a, distance, converges):
    answer = ask(client, "taylor", expansion_point=a, distance=distance)
    assert answer["convergence_radius"] == math.hypot(a, math.pi)
    assert answer["series_converges"] is converges


def test_the_stabilised_polynomial_is_compared_at_the_moved_logit(client):
    answer = ask(client, "taylor", target=0.3, logit=1.0, stabilisation=2.5)
    assert answer["loss"]["exact"] == pytest.approx(math.log1p(math.exp(3.5)) - 0.3 * 3.5, rel=1e-14)
    assert answer["loss"]["published"] == pytest.approx(math.log(2.0) - 0.1 * 6.25 + 0.2 * 6.0 - 0.1, rel=1e-14)
    assert finding(answer, "S10")["direction"] == "differs"
    assert ask(client, "taylor", expansion_point=1.0, stabilisation=2.5)["loss"]["published"] is None


@pytest.mark.parametrize("a", [-1e50, -1e3, -1e-50, 0.0, 1.0, 116.0, 1e3, 1e50])
@pytest.mark.parametrize("distance", [0.0, 1e-50, 1.0, 1e3, 1e50])
@pytest.mark.parametrize("z", [None, -1e50, 0.0, 1e50])
def test_absurd_expansions_are_answered_with_numbers(client, a, distance, z):
    answer = ask(client, "taylor", expansion_point=a, distance=distance, logit=z, target=0.5, stabilisation=0.0)
    assert answer["largest_error"] <= answer["cubic_bound"] * (1.0 + 1e-12)
    assert (answer["largest_error"] > 0.0) == (distance > 0.0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"target": -0.1}, "target: must be >= 0"),
        ({"target": 1.1}, "target: must be <= 1"),
        ({"distance": -1.0}, "distance: must be >= 0"),
        ({"distance": 1e-60}, "distance: must be 0 or >= 1e-50"),
        ({"expansion_point": 1e51}, "expansion_point: must be <= 1e+50"),
        ({"derivative_bound": 0.0}, "derivative_bound: must be >= 1e-50"),
    ],
)
def test_bad_expansions_are_refused_by_name(client, changes, words):
    assert words in refusal(client, "taylor", **changes)


# Operation counts and the choice of c


def test_counts_of_the_papers_network(client):
    answer = ask(client, "operation_counts")
    assert (answer["spof"]["total"], answer["dp_sgd"]["total"]) == (364, 1403)
    assert answer["saving"] == pytest.approx(0.7406, abs=5e-5)
    assert [entry["direction"] for entry in answer["published"]] == ["equal"] * 3
    for count in (answer["spof"], answer["dp_sgd"]):
        assert sum(term["operations"] for term in count["terms"]) == count["total"]


def test_many_hidden_units_cost_more_than_clipping(client):
    assert ask(client, "operation_counts", hidden_units=100)["saving"] < 0.0


def test_printed_counts_are_for_the_papers_costs_alone(client):
    answer = ask(client, "operation_counts", costs={"division": 1})
    assert [entry["direction"] for entry in answer["published"]] == ["does_not_apply"] * 3
    assert answer["dp_sgd"]["total"] < 1403


def test_operations_that_cost_nothing_save_nothing(client):
    free = dict.fromkeys(("addition", "subtraction", "multiplication", "division", "exponential", "gate"), 0)
    assert ask(client, "operation_counts", costs=free)["saving"] is None


def test_the_largest_counts_are_whole_numbers(client):
    answer = ask(client, "operation_counts", features=10**12, hidden_units=10**12)
    assert answer["spof"]["total"] == (19 + 10**12) * 10**12


@pytest.mark.parametrize("changes", [{"features": 0}, {"hidden_units": 0}, {"features": 1.5}, {"costs": {"division": -1}}])
def test_bad_counts_are_refused(client, changes):
    assert refusal(client, "operation_counts", **changes)


def test_a_constant_chosen_on_private_accuracies_has_no_epsilon(client):
    answer = ask(client, "constant_selection")
    assert answer["epsilon"] == "Infinity"
    found = finding(answer, "S33")
    assert found["direction"] == "overclaims"
    chosen = [step["value"] for step in found["counterexample"]["steps"]]
    assert chosen == [0.0, 1.0]


def test_a_constant_chosen_on_public_accuracies_costs_every_run(client):
    answer = ask(client, "constant_selection", epsilon=0.5, accuracy_from="public_records")
    assert answer["epsilon"] == 10.0
    assert finding(answer, "S33")["direction"] == "overclaims"


@pytest.mark.parametrize("source", ["public_records", "private_records"])
def test_a_single_candidate_is_no_choice(client, source):
    answer = ask(client, "constant_selection", candidates=1, accuracy_from=source)
    assert answer["epsilon"] == 1.0
    assert finding(answer, "S33")["direction"] == "equal"


# --- safe ends and statements that don't apply --------------------------------------------------------------------------------------


@pytest.mark.parametrize("features", [2, 3, 5, 14, 10**12 - 1])
def test_the_worth_of_drawn_noise_is_never_rounded_down(client, features):
    drawn = ask(client, "environmental_noise", features=features, noise_std=0.3)["drawn_by_the_service"]
    assert Fraction(drawn["event"]["mechanism"]["sensitivity"]["l2"]) ** 2 >= features
    assert Fraction(drawn["gdp_mu"]) ** 2 * Fraction(0.3) ** 2 >= features
    assert drawn["gdp_mu"] == pytest.approx(math.sqrt(features) / 0.3, rel=1e-13)


def test_without_noise_on_the_inputs_no_statement_on_noisy_inputs_is_refuted(client):
    answer = ask(client, "environmental_noise", noise_std=0.0)
    for erratum, start in (("S21", ""), ("S24", "ln Pr[b_max"), ("S24", "ln Pr[b_j")):
        found = finding(answer, erratum, start)
        assert (found["printed"], found["direction"]) == (None, "does_not_apply")


def test_a_factor_that_is_the_same_for_every_record_leaves_an_epsilon(client):
    """Weights of 0 see no noise: b_j = l = 7 is public, and noise of scale 7 (3n/2) / epsilon gives epsilon (2 + 7) / 3."""
    found = finding(ask(client, "environmental_noise", weight_norm=0.0), "S21")
    assert (found["printed"], found["proven"], found["direction"], found["counterexample"]) == (1.0, 3.0, "overclaims", None)


@pytest.mark.parametrize("candidates", [3, 7, 10, 10**12 - 1])
def test_the_cost_of_a_sweep_is_never_rounded_down(client, candidates):
    for epsilon in (0.1, 0.3, 1e-7):
        answer = ask(client, "constant_selection", epsilon=epsilon, candidates=candidates, accuracy_from="public_records")
        assert Fraction(answer["epsilon"]) >= candidates * Fraction(epsilon)
        assert answer["epsilon"] == pytest.approx(candidates * epsilon, rel=1e-15)
