r"""Where a profile may be asked, and what attackers can do, over HTTP."""

from __future__ import annotations

import json

import pytest
from fastapi.testclient import TestClient

from tests.app.calculators_harness import TRAINING, problem, release
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    app = create_app(Settings(data_dir=tmp_path_factory.mktemp("data")))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


def _profile(client, event, **points):
    response = client.post("/v1/profiles", json={"event": event, **points})
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize("accountant", ["auto", "gdp", "contour"])
def test_a_delta_that_no_float_holds_is_answered_as_written(client, accountant):
    answer = _profile(client, release(), deltas=["1e-400", "0.1E-399"], accountant=accountant)["epsilon"]
    # mpmath, 500 digits: the root of Phi(1/2 - e) - exp(e) Phi(-1/2 - e) = 1e-400
    assert [entry["delta"] for entry in answer] == ["1e-400", "0.1E-399"]
    for entry in answer:
        assert entry["lower"] <= 43.221913203456106 <= entry["upper"] <= 43.221913203456106 * (1.0 + 1e-7)


def test_the_best_of_several_runs_is_answered_with_its_conditions(client):
    event = {"kind": "repeated_and_selected", "runs": {"kind": "geometric", "mean": 10.0}, "event": release()}
    answer = _profile(client, event, deltas=[1e-5], epsilons=[1.0])
    (one,), (plain,) = answer["epsilon"], _profile(client, release(), deltas=[1e-5])["epsilon"]
    assert plain["upper"] < one["lower"] < one["upper"] < 2.0 * plain["upper"]
    assert one["route"] == "selected(gdp)"
    assert any("nothing is released of the runs but the best one's output" in caveat for caveat in answer["caveats"])
    sampled = {"kind": "poisson_sampled", "probability": 0.1, "event": event}
    assert "not the best of several runs" in problem(client.post("/v1/profiles", json={"event": sampled, "deltas": [1e-5]}))["detail"]


def test_a_delta_as_text_means_exactly_what_it_says(client):
    number, text, long = _profile(client, release(), deltas=[1e-5, "0.00001", "0.0000100000000000000000000001"])["epsilon"]
    assert (text["delta"], text["route"]) == ("0.00001", number["route"])
    # The float nearest to 1e-5 is a little larger, so epsilon there is a little smaller.
    assert number["upper"] <= text["upper"] <= number["upper"] * (1.0 + 1e-14)
    assert long["upper"] <= text["upper"]


@pytest.mark.parametrize(
    "text", ["0", "1", "1.0", "0e9", "1e5", "-1e-5", "NaN", "Infinity", "1e-9999999", "1_0e-9", "\u0661e-5", "", " 1e-5", "e"]
)
def test_a_text_that_is_no_delta_is_refused(client, text):
    body = problem(client.post("/v1/profiles", json={"event": release(), "deltas": [text]}))
    assert body["detail"].startswith("deltas[0]: must be a number in (0, 1), like 1e-400, got ")


def test_a_delta_that_json_rounds_to_zero_is_refused(client):
    text = json.dumps({"event": release(), "deltas": [12345.0]}).replace("12345.0", "1e-400")
    body = problem(client.post("/v1/profiles", content=text, headers={"content-type": "application/json"}))
    assert "deltas[0]: must be > 0, got 0.0" in body["detail"]


def test_at_infinite_epsilon_delta_is_exactly_zero(client):
    for event in (release(), TRAINING):
        answer = _profile(client, event, epsilons=["Infinity"])["delta"][0]
        assert (answer["epsilon"], answer["lower"], answer["upper"], answer["log_upper"]) == ("Infinity", 0.0, 0.0, "-Infinity")


def test_at_infinite_epsilon_an_event_without_a_guarantee_has_none(client):
    event = {"kind": "non_private", "reason": "raw data released"}
    assert _profile(client, event, epsilons=["Infinity"])["delta"][0]["upper"] == 1.0


@pytest.mark.parametrize(("epsilon", "text"), [("inf", "a valid number"), (1e60, "at most 1e+50"), (-1, ">= 0"), ("NaN", "a valid number")])
def test_an_epsilon_that_is_none_is_refused(client, epsilon, text):
    body = problem(client.post("/v1/profiles", json={"event": release(), "epsilons": [1.0, epsilon]}))
    assert body["detail"].startswith(f"epsilons[1]: must be {text}")


def test_what_attackers_can_do_is_answered_where_it_is_asked(client):
    asked = {"advantage": True, "priors": [0.5, 0.01], "posteriors": [{"prior": 0.01, "failure_probability": 1e-5}]}
    answer = _profile(client, release(), **asked)
    assert answer["advantage"] == pytest.approx(0.38292492254802624, rel=1e-12)  # erf(1 / sqrt 8)
    assert [entry["prior"] for entry in answer["bayes_success"]] == [0.5, 0.01]
    assert answer["bayes_success"][0]["success"] == pytest.approx(0.6914624612740131, rel=1e-12)  # Phi(1 / 2)
    assert 0.99 < answer["bayes_success"][1]["success"] < 0.991
    assert 0.01 < answer["posterior"][0]["highest"] < 1.0
    plain = _profile(client, release())
    assert (plain["advantage"], plain["bayes_success"], plain["posterior"]) == (None, [], [])


@pytest.mark.parametrize(
    ("points", "text"),
    [
        ({"priors": [0]}, "priors[0]: must be >= 1e-300, got 0"),
        ({"priors": [1.0]}, "priors[0]: must be < 1, got 1.0"),
        ({"posteriors": [{"prior": 0.5}]}, "posteriors[0].failure_probability: this field is required"),
        ({"posteriors": [{"prior": 0.5, "failure_probability": 0.0}]}, "posteriors[0].failure_probability: must be > 0"),
    ],
)
def test_bad_priors_are_refused_by_name(client, points, text):
    assert text in problem(client.post("/v1/profiles", json={"event": release(), **points}))["detail"]
