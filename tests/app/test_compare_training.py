"""POST /v1/compare/training: the four conventions, what the print says beside them, and requests at the absurd ends."""

from __future__ import annotations

import math

import pytest
from fastapi.testclient import TestClient

from tests.app.calculators_harness import problem
from zetadp.accountants.cross_check import ACCURACY, recomputed_epsilon
from zetadp.accountants.events import Repeated
from zetadp.app.calculators.compare.training import TrainingComparison, compared
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app
from zetadp.mechanisms.published.clt import clt_mu_poisson, clt_mu_uniform

EXAMPLE = TrainingComparison.model_config["json_schema_extra"]["examples"][0]
ECG = {
    "batch_size": 63,
    "population_size": 1000,
    "noise_multiplier": 5.0,
    "convention": "per_component",
    "sampler": "poisson",
    "steps": 1587,
    "delta": 5e-4,
    "printed_epsilon": 1.62,
}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    return TestClient(create_app(Settings(data_dir=tmp_path_factory.mktemp("data"))), base_url="http://127.0.0.1")


def _asked(client, **changes):
    body = {name: value for name, value in {**ECG, **changes}.items() if value is not None}
    answer = client.post("/v1/compare/training", json=body)
    assert answer.status_code == 200, answer.text
    assert "NaN" not in answer.text
    return answer.json()


def test_the_four_conventions_are_those_of_the_errata(client):
    brackets = {each["letter"]: each["epsilon"] for each in _asked(client)["conventions"]}
    # Errata Z14, ECG.
    for letter, low, high in (("A", 1.489, 1.497), ("B", 2.282, 2.290), ("C", 3.569, 3.577), ("D", 5.795, 5.803)):
        assert low <= brackets[letter]["lower"] <= brackets[letter]["upper"] <= high * 1.001


@pytest.mark.parametrize("letter", "ABCD")
def test_every_convention_agrees_with_an_independent_inversion(letter):
    answer = compared(TrainingComparison(**EXAMPLE | {"noise_multiplier": 1.3}))
    accounted = next(each for each in answer.conventions if each.letter == letter)
    assert accounted.epsilon.upper == pytest.approx(recomputed_epsilon(accounted.event, 1e-5), rel=2.0 * ACCURACY)


@pytest.mark.parametrize(
    ("sampler", "convention", "letter"),
    [("poisson", "per_component", "A"), ("poisson", "total", "B"), ("fixed_size", "per_component", "C"), ("fixed_size", "total", "D")],
)
def test_the_request_names_its_own_convention(client, sampler, convention, letter):
    answer = _asked(client, sampler=sampler, convention=convention)
    assert answer["yours"] == letter
    by_row = {}
    for found in answer["published"]:
        by_row.setdefault(found["erratum"], []).append(found)
    proven = {each["letter"]: each["epsilon"]["upper"] for each in answer["conventions"]}
    assert [found["proven"] for found in by_row["Z14"]] == [proven[each] for each in "ABCD"]
    (half,), (sampling,), (limit,) = by_row["Z10"], by_row["Z12"], by_row["Z13"]
    assert (half["printed"], half["proven"]) == ((proven["A"], proven["B"]) if sampler == "poisson" else (proven["C"], proven["D"]))
    assert (sampling["printed"], sampling["proven"]) == (
        (proven["A"], proven["C"]) if convention == "per_component" else (proven["B"], proven["D"])
    )
    assert limit["proven"] == proven[letter]
    formula = clt_mu_poisson if sampler == "poisson" else clt_mu_uniform
    assert answer["gdp_clt_mu"] == formula(0.063, 5.0, 1587)


def test_directions_follow_from_the_figures(client):
    published = _asked(client)["published"]
    assert [found["direction"] for found in published if found["erratum"] == "Z14"] == ["loose", "overclaims", "overclaims", "overclaims"]
    for found in published:
        assert found["ratio"] == pytest.approx(found["printed"] / found["proven"])


def test_a_print_between_the_ends_of_a_wide_bracket_is_not_called_an_overclaim(client):
    answer = _asked(client, noise_multiplier=1e-5)
    brackets = [each["epsilon"] for each in answer["conventions"]]
    printed = [found for found in answer["published"] if found["erratum"] == "Z14"]
    assert all(bracket["lower"] <= 1.62 < bracket["upper"] for bracket in brackets)
    assert {found["direction"] for found in printed} == {"differs"}


def test_without_a_printed_epsilon_only_the_derivations_are_judged(client):
    published = _asked(client, printed_epsilon=None)["published"]
    assert {found["direction"] for found in published if found["erratum"] == "Z14"} == {"does_not_apply"}
    assert {found["direction"] for found in published if found["erratum"] != "Z14"} == {"overclaims"}


def test_a_rate_and_its_counts_are_one_question(client):
    by_rate = _asked(client, batch_size=None, population_size=None, sampling_probability=0.063)
    assert by_rate == _asked(client)


def test_a_rate_that_no_counts_have_is_rounded_up(client):
    answer = _asked(client, batch_size=None, population_size=None, sampling_probability=math.pi * 1e-9)
    fixed = answer["conventions"][2]["event"]["event"]
    assert fixed["sample_size"] / fixed["population_size"] >= math.pi * 1e-9


def test_a_derivation_leads_to_the_proved_value(client):
    for found in _asked(client)["published"]:
        assert found["derivation"][-1]["value"] == found["proven"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"sampling_probability": 0.1}, "sampling_probability"),
        ({"batch_size": None}, "batch_size"),
        ({"batch_size": None, "population_size": None}, "sampling_probability"),
        ({"batch_size": 2000}, "batch_size"),
        ({"noise_multiplier": 0.0}, "noise_multiplier"),
        ({"noise_multiplier": 1e-50}, "noise_multiplier"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"steps": 0}, "steps"),
        ({"printed_epsilon": -1.0}, "printed_epsilon"),
        ({"convention": None}, "convention"),
        ({"sampler": None}, "sampler"),
        ({"sampler": "shuffled"}, "sampler"),
    ],
)
def test_bad_requests_name_the_field(client, changes, field):
    body = {name: value for name, value in {**ECG, **changes}.items() if value is not None}
    assert field in problem(client.post("/v1/compare/training", json=body))["errors"][0]["field"]


@pytest.mark.parametrize(
    "changes", [{"noise_multiplier": 1e50}, {"noise_multiplier": 2e-50}, {"delta": 1e-300}, {"steps": 10**12}, {"delta": 0.999}]
)
def test_the_absurd_ends_have_an_answer(client, changes):
    answer = _asked(client, **changes)
    for each in answer["conventions"]:
        assert (each["epsilon"] is None) == (each["refusal"] is not None)
        if each["epsilon"] is not None:
            assert float(each["epsilon"]["lower"]) <= float(each["epsilon"]["upper"])


def test_a_calculation_over_the_limit_is_refused(tmp_path):
    client = TestClient(create_app(Settings(data_dir=tmp_path, calculation_seconds=1e-3)), base_url="http://127.0.0.1")
    hard = {**ECG, "batch_size": 1, "population_size": 10**12, "noise_multiplier": 1.0, "steps": 1000, "delta": 0.9}
    assert problem(client.post("/v1/compare/training", json=hard))["type"].endswith("time-limit-reached")


def test_events_are_those_that_training_would_store():
    for each in compared(TrainingComparison(**EXAMPLE)).conventions:
        assert isinstance(each.event, Repeated)
        assert each.event.count == EXAMPLE["steps"]
