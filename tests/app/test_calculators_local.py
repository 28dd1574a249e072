"""Local releases over HTTP: documented figures; every point of extreme events answered or refused, never NaN, no error of ours."""

from __future__ import annotations

import json
import math
from collections.abc import Generator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.app.calculators_harness import problem
from zetadp.accountants import ACCOUNTANTS
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app

Json = dict[str, Any]
EVERYWHERE: Json = {
    "epsilons": [0.0, 1e-12, 1.0, 700.0, 1e50, "Infinity"],
    "deltas": [0.5, 1e-5, 1e-300, "1e-400"],
    "orders": [1.0000001, 2.0, 1e6],
    "alphas": [0.0, 1e-300, 0.5, 1.0],
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Generator[TestClient]:
    app = create_app(Settings(data_dir=tmp_path_factory.mktemp("data"), calculation_seconds=5.0))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


def local(kind: str = "duchi_linf", dimension: int = 14, **fields: Any) -> Json:
    noise = {"epsilon": 1.0} if kind == "duchi_linf" else {"scale": float(dimension)}
    sensitivity = {"l1": float(dimension), "adjacency": "replace_one", "unit": "record"}
    mechanism = {"kind": kind, "lower": 0.0, "upper": 1.0, "dimension": dimension, "sensitivity": sensitivity}
    return {"kind": "release", "mechanism": mechanism | noise | fields}


def repeated(event: Json, count: int) -> Json:
    return {"kind": "repeated", "count": count, "event": event}


def sampled(event: Json, probability: float) -> Json:
    return {"kind": "poisson_sampled", "probability": probability, "event": event}


def grouped(event: Json, size: int) -> Json:
    return {"kind": "grouped", "size": size, "unit": "user", "event": event}


EVENTS: dict[str, Json] = {
    "one": local(),
    "one of odd dimension": local(dimension=15),
    "least epsilon": repeated(local(epsilon=1e-50), 1000),
    "most epsilon": repeated(local(epsilon=1e50), 3),
    "most releases": repeated(local(dimension=3, epsilon=1e-6), 10**12),
    "widest record": local(dimension=10**6),
    "largest group": grouped(local(dimension=3, epsilon=0.001), 10**6),
    "hardly ever sampled": repeated(sampled(local(), 1e-50), 10**6),
    "nearly always sampled": repeated(sampled(local(), 1.0 - 2.0**-53), 10),
    "Laplace": repeated(local("local_laplace"), 10),
    "Laplace, hardly ever sampled": sampled(local("local_laplace"), 1e-50),
    "all together": {"kind": "composed", "events": [local(), sampled(local("local_laplace"), 0.5), repeated(local(dimension=1), 9)]},
}


def _refuse(token: str) -> float:
    raise AssertionError(f"{token} in an answer")


def answer(client: TestClient, event: Json, **points: Any) -> Json | None:
    """The profile, checked for what holds of every profile; None where it was refused clearly."""
    response = client.post("/v1/profiles", json={"event": event, **points})
    body: Json = json.loads(response.text, parse_constant=_refuse)
    assert "NaN" not in response.text
    if response.status_code != 200:
        assert problem(response)["type"] in ("invalid-parameter", "unsupported-event", "numerical-floor", "time-limit-reached")
        return None
    assert all(0.0 <= float(entry["lower"]) <= float(entry["upper"]) for entry in body["epsilon"])
    assert all(0.0 <= entry["lower"] <= entry["upper"] <= 1.0 for entry in body["delta"])
    assert all(0.0 <= entry["beta"] <= 1.0 - entry["alpha"] + 1e-15 for entry in body["trade_off"])
    return body


QUESTIONS: list[Json] = [{field: [point]} for field, points in EVERYWHERE.items() for point in points]
SOME = 23
"""So many lie between two questions of a test by default; the next test begins with the next question, so that all are asked."""


@pytest.mark.parametrize("name", EVENTS)
def test_some_points_of_every_extreme_local_event_are_answered_or_refused(client: TestClient, name: str) -> None:
    for question in QUESTIONS[list(EVENTS).index(name) % SOME :: SOME]:
        answer(client, EVENTS[name], **question)


@pytest.mark.slow
@pytest.mark.parametrize("name", EVENTS)
def test_every_point_of_every_extreme_local_event_is_answered_or_refused(client: TestClient, name: str) -> None:
    for question in QUESTIONS:
        answer(client, EVENTS[name], **question)


@pytest.mark.parametrize("accountant", [accountant.name for accountant in ACCOUNTANTS])
def test_every_accountant_answers_or_refuses_a_local_event(client: TestClient, accountant: str) -> None:
    for event in (EVENTS["one"], repeated(sampled(local(), 0.25), 20), repeated(local("local_laplace"), 3)):
        answer(client, event, accountant=accountant, epsilons=[0.5], deltas=[1e-5], orders=[2.0])


def test_one_release_has_its_closed_form(client: TestClient) -> None:
    body = answer(client, local(dimension=15), epsilons=[0.25], orders=[2.0])
    assert body is not None
    assert body["delta"][0]["upper"] == pytest.approx((math.e - math.exp(0.25)) / (1.0 + math.e), rel=1e-12)
    moment = (math.exp(2.0) + math.exp(-1.0)) / (1.0 + math.e)
    assert body["rdp"][0]["value"] == pytest.approx(math.log(moment), rel=1e-11)


def test_ten_releases_cost_nearly_ten_times_epsilon_at_a_small_delta(client: TestClient) -> None:
    body = answer(client, repeated(local(dimension=1, epsilon=math.log(3.0)), 10), deltas=[1e-8])
    assert body is not None
    assert 10.9 < float(body["epsilon"][0]["lower"]) <= float(body["epsilon"][0]["upper"]) <= 10.0 * math.log(3.0) * (1 + 1e-13)


def test_calibration_finds_the_epsilon_of_each_release(client: TestClient) -> None:
    request = {"event": repeated(local(dimension=15), 20), "target": {"epsilon": 1.0, "delta": 1e-6}}
    body = client.post("/v1/calibrations", json=request).json()
    epsilon = body["event"]["event"]["mechanism"]["epsilon"]
    assert 0.05 < epsilon < 0.2
    assert float(body["guarantee"]["epsilon"]["upper"]) <= 1.0
    assert body["scale"] == pytest.approx(1.0 / epsilon, rel=1e-12)


@pytest.mark.parametrize("kind", ["duchi_linf", "local_laplace"])
def test_the_registry_shows_the_mechanism_with_its_proof(client: TestClient, kind: str) -> None:
    (entry,) = [found for found in client.get("/v1/mechanisms").json() if found["kind"] == kind]
    text = client.get(entry["proof"]).json()["markdown"]
    assert "**Claim.**" in text
    assert answer(client, {"kind": "release", "mechanism": entry["example"]}, epsilons=[0.5]) is not None


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (local(epsilon=0), "event.mechanism.epsilon: must be >= 1e-50, got 0"),
        (local(upper=0.0), "event.mechanism.upper: must be above lower by 1e-50 to 1e+50, got 0.0"),
        (local(dimension=0), "event.mechanism.dimension: must be >= 1, got 0"),
        (
            local(sensitivity={"l1": 13.0, "adjacency": "replace_one", "unit": "record"}),
            "event.mechanism.sensitivity.l1: must be at least dimension",
        ),
        (local(sensitivity={"l1": 14.0, "adjacency": "add_remove", "unit": "record"}), "a local release reveals the number of records"),
    ],
    ids=str,
)
def test_a_local_release_that_cannot_be_is_refused_by_its_field(client: TestClient, event: Json, text: str) -> None:
    assert text in problem(client.post("/v1/profiles", json={"event": event, "deltas": [1e-5]}))["detail"]
