r"""Input at and beyond every edge, over HTTP: an exact answer where it is trivial, a clear refusal elsewhere, never NaN, never an error
of ours."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.app.calculators_harness import SENSITIVITY, problem, release, sampled, without_cost
from tests.selection import thinned
from zetadp.accountants import ACCOUNTANTS
from zetadp.app.kit.guard import LARGEST_BODY
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app

Json = dict[str, Any]
EVERYWHERE: Json = {
    "epsilons": [0.0, 1e-12, 1.0, 700.0, 1e4, 1e50, "Infinity"],
    "deltas": [0.5, 1e-5, 1e-30, 1e-300, 5e-324, "1e-400", "1e-999999", "0.99999999999999999999"],
    "orders": [1.0000001, 2.0, 1e6],
    "alphas": [0.0, 1e-300, 0.5, 1.0],
    "advantage": True,
    "priors": [1e-300, 0.5, 0.9999999],
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Generator[TestClient]:
    app = create_app(Settings(data_dir=tmp_path_factory.mktemp("data"), calculation_seconds=5.0))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


def laplace(scale: float = 1.0) -> Json:
    return {"kind": "release", "mechanism": {"kind": "laplace", "scale": scale, "sensitivity": {**SENSITIVITY, "l1": 1.0}}}


def repeated(event: Json, count: int) -> Json:
    return {"kind": "repeated", "count": count, "event": event}


def _refuse(token: str) -> float:
    raise AssertionError(f"{token} in an answer")


def answer(client: TestClient, event: Json, **points: Any) -> Json | None:
    """The profile, checked for what holds of every profile; None where it was refused clearly."""
    response = client.post("/v1/profiles", json={"event": event, **points})
    body = json.loads(response.text, parse_constant=_refuse)
    assert "NaN" not in response.text
    if response.status_code != 200:
        assert problem(response)["type"] in (
            "invalid-request",
            "invalid-parameter",
            "unsupported-event",
            "numerical-floor",
            "time-limit-reached",
        )
        return None
    for entry in body["epsilon"]:
        assert 0.0 <= float(entry["lower"]) <= float(entry["upper"])
    for entry in body["delta"]:
        assert 0.0 <= entry["lower"] <= entry["upper"] <= 1.0
        assert float(entry["log_upper"]) <= 0.0
    for entry in body["trade_off"]:
        assert 0.0 <= entry["beta"] <= 1.0 - entry["alpha"] + 1e-15
    return body


EVENTS: dict[str, Json] = {
    "hardly any noise": release(std=1e-9),
    "hardly anything but noise": release(std=1e9),
    "least noise there is": release(std=1e-50),
    "most noise there is": release(std=1e50),
    "hardly any noise, sampled": sampled(release(std=1e-9), 0.01),
    "hardly anything but noise, sampled": repeated(sampled(release(std=1e9), 0.01), 10**6),
    "least probability": sampled(probability=1e-50),
    "least probability, often": repeated(sampled(probability=1e-9), 10**12),
    "most steps": repeated(sampled(probability=0.5), 10**12),
    "one step": sampled(probability=0.5),
    "least Laplace noise": laplace(1e-50),
    "most Laplace noise": repeated(laplace(1e50), 10**12),
    "Laplace, sampled": repeated(sampled(laplace(), 0.1), 1000),
    "of all sizes": {"kind": "composed", "events": [release(std=10.0**n) for n in range(-9, 10, 3)] + [sampled(laplace(1e-3), 0.5)]},
}


QUESTIONS: list[Json] = [
    {field: [point] if isinstance(points, list) else point}
    for field, points in EVERYWHERE.items()
    for point in (points if isinstance(points, list) else [points])
]
SOME = 23
"""So many lie between two questions of a test by default; the next test begins with the next question, so that all are asked."""


@pytest.mark.parametrize("name", thinned(EVENTS, every=4))
def test_some_points_of_every_extreme_event_are_answered_or_refused(client: TestClient, name: str) -> None:
    for question in QUESTIONS[list(EVENTS).index(name) % SOME :: SOME]:
        answer(client, EVENTS[name], **question)


@pytest.mark.slow
@pytest.mark.parametrize("name", EVENTS)
def test_every_point_of_every_extreme_event_is_answered_or_refused(client: TestClient, name: str) -> None:
    for question in QUESTIONS:
        answer(client, EVENTS[name], **question)


def test_sampling_everyone_is_no_sampling(client: TestClient) -> None:
    whole, everyone = (answer(client, event, deltas=[1e-5], epsilons=[1.0]) for event in (release(), sampled(probability=1)))
    assert without_cost(whole) == without_cost(everyone)


@pytest.mark.parametrize(
    ("event", "text"),
    thinned(
        [
            (sampled(probability=0), "event.probability: must be >= 1e-50, got 0"),
            (sampled(probability=1.0000000001), "event.probability: must be <= 1, got 1.0000000001"),
            (repeated(release(), 0), "event.count: must be >= 1, got 0"),
            (repeated(release(), -5), "event.count: must be >= 1, got -5"),
            (repeated(release(), 10**13), "event.count: must be <= 1e+12, got 10000000000000"),
            (repeated(release(), 1.5), "event.count: must be a valid integer"),
            (release(std=0), "event.mechanism.std: must be >= 1e-50, got 0"),
            ({"kind": "composed", "events": []}, "event.events"),
            (
                {"kind": "composed", "events": [release(), release(sensitivity={**SENSITIVITY, "adjacency": "replace_one"})]},
                "all parts of an event must have the same adjacency, got 'add_remove' and 'replace_one'",
            ),
            (
                {"kind": "composed", "events": [release(), sampled(release(sensitivity={**SENSITIVITY, "unit": "user"}))]},
                "all parts of an event must have the same unit, got 'record' and 'user'",
            ),
        ],
        every=4,
    ),
    ids=str,
)
def test_an_event_that_cannot_be_is_refused_by_its_field(client: TestClient, event: Json, text: str) -> None:
    assert text in problem(client.post("/v1/profiles", json={"event": event, "deltas": [1e-5]}))["detail"]


def test_hardly_any_noise_has_the_epsilon_of_its_formula(client: TestClient) -> None:
    bound = answer(client, release(std=1e-9), deltas=[1e-5])
    assert bound is not None
    # epsilon = mu^2 / 2 + mu z with mu = 1e9 and Phi(-z) = 1e-5, up to terms that don't grow with mu
    assert bound["epsilon"][0]["upper"] == pytest.approx(0.5e18 + 4.264890793922825e9, rel=1e-12)


def test_hardly_anything_but_noise_costs_nothing_at_a_usual_delta(client: TestClient) -> None:
    bound = answer(client, release(std=1e9), deltas=[1e-5])
    assert bound is not None
    assert bound["epsilon"][0]["upper"] == 0.0


@pytest.mark.slow
def test_a_hundred_thousand_different_mechanisms_are_too_large_a_body(client: TestClient) -> None:
    parts = [release(std=1.0 + index * 1e-5) for index in range(100_000)]
    events = [{"kind": "composed", "events": parts[start : start + 10_000]} for start in range(0, 100_000, 10_000)]
    response = client.post("/v1/profiles", json={"event": {"kind": "composed", "events": events}})
    assert problem(response, 413)["detail"] == f"expected at most {LARGEST_BODY} bytes"


@pytest.mark.slow
def test_as_many_different_mechanisms_as_fit_are_answered(tmp_path: Path) -> None:
    parts = [release(std=100.0 + index * 1e-3) for index in range(6_000)]
    # A busy machine takes longer than the others' limit for so many; that they are answered is the point here.
    with TestClient(create_app(Settings(data_dir=tmp_path, calculation_seconds=200.0)), base_url="http://127.0.0.1") as patient:
        bound = answer(patient, {"kind": "composed", "events": parts}, deltas=[1e-5])
    assert bound is not None
    mu = math.sqrt(sum((100.0 + index * 1e-3) ** -2 for index in range(6_000)))
    assert bound["gdp_mu"] == pytest.approx(mu, rel=1e-12)


KINDS: dict[str, Json] = {"gaussian": release(), "sampled": repeated(sampled(probability=0.01), 1000), "laplace": laplace()}
ASKED = list(itertools.product([accountant.name for accountant in ACCOUNTANTS], KINDS))


@pytest.mark.parametrize(("accountant", "kind"), thinned(ASKED, every=4))
def test_every_accountant_answers_or_refuses_at_some_points(client: TestClient, accountant: str, kind: str) -> None:
    for question in QUESTIONS[ASKED.index((accountant, kind)) % SOME :: SOME]:
        answer(client, KINDS[kind], accountant=accountant, **question)


@pytest.mark.slow
@pytest.mark.parametrize(("accountant", "kind"), ASKED)
def test_every_accountant_answers_or_refuses_at_every_point(client: TestClient, accountant: str, kind: str) -> None:
    for question in QUESTIONS:
        answer(client, KINDS[kind], accountant=accountant, **question)
