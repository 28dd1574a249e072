"""What an answer cost, and answers that would cost too much."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.app.calculators_harness import TRAINING, problem, release, sampled
from zetadp.accountants import accountant_named, costs, profile
from zetadp.accountants.costs import Points, predicted_seconds
from zetadp.app.calculators import cache as cache_module
from zetadp.app.calculators import forecasts
from zetadp.app.calculators.forecasts import FACTOR, refuse_too_long
from zetadp.app.calculators.profiles import Answers, compute_profile
from zetadp.app.calculators.schemas import ProfileRequest
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app
from zetadp.mechanisms import CostTooHigh
from zetadp.mechanisms.errors import TimeLimitReached

LIMIT = 10.0
UNIT = 1.0


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Predictions of a machine on which a unit takes a second: few releases cost too much there."""
    monkeypatch.setattr(costs, "unit_seconds", lambda: UNIT)
    monkeypatch.setattr(costs, "LEAST_UNITS", 7.0)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Generator[TestClient]:
    of = Settings(data_dir=tmp_path_factory.mktemp("costs"), calculation_seconds=LIMIT)
    with TestClient(create_app(of), base_url="http://127.0.0.1") as found:
        yield found


def trainings(count: int, probability: float = 0.01) -> dict[str, Any]:
    return {"kind": "composed", "events": [sampled(release(std=1.0 + 0.01 * k), probability) for k in range(count)]}


def allocations(count: int, least_std: float = 1.0) -> dict[str, Any]:
    noise = [release(std=least_std * (1.0 + 0.01 * k)) for k in range(count)]
    return {"kind": "composed", "events": [{"kind": "randomly_allocated", "steps": 100, "event": event} for event in noise]}


DELTAS = [10.0 ** (-1.5 - 3.1 * k) for k in range(20)]
TOO_MUCH = {
    "many points of many releases": {"event": trainings(20), "deltas": DELTAS},
    "many random allocations": {"event": allocations(12), "deltas": [1e-5]},
}


@pytest.mark.parametrize("kind", TOO_MUCH)
def test_what_would_take_far_too_long_is_refused_before_it_is_begun(kind: str, client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def begun(*_arguments: object) -> None:
        raise AssertionError

    monkeypatch.setattr(cache_module, "Answers", begun)
    body = problem(client.post("/v1/profiles", json=TOO_MUCH[kind]))
    assert (body["type"], body["job"], body["limit_seconds"]) == ("time-limit-reached", "/v1/calculations", LIMIT)
    assert body["predicted_seconds"] > FACTOR * LIMIT
    assert "or more; the limit is 10 s" in body["detail"]


def test_beside_the_refusal_stands_what_a_cheaper_accountant_says(client: TestClient) -> None:
    asked = TOO_MUCH["many points of many releases"]
    body = problem(client.post("/v1/profiles", json=asked))
    cheaper = profile(ProfileRequest.model_validate(asked).event, "rdp")
    assert 1 <= len(body["cheaper"]) <= forecasts.MOST_CHEAPER
    first = body["cheaper"][0]
    assert first == {"quantity": "epsilon", "at": DELTAS[0], "upper": cheaper.epsilon(DELTAS[0]).upper, "accountant": "rdp"}
    assert f"accountant rdp gives epsilon <= {first['upper']!r} at delta = {DELTAS[0]!r}" in body["detail"]


def test_a_calibration_and_a_sweep_are_refused_likewise(client: TestClient) -> None:
    target = {"epsilon": 1.0, "delta": 1e-5}
    for path, asked in (("calibrations", {"target": target}), ("calibrations/sweep", {"targets": [target]})):
        body = problem(client.post(f"/v1/{path}", json={"event": allocations(12), **asked}))
        assert body["predicted_seconds"] > FACTOR * LIMIT
        assert body["cheaper"] == []


def test_a_line_of_a_batch_is_refused_alone(client: TestClient) -> None:
    requests = [TOO_MUCH["many random allocations"], {"event": TRAINING, "deltas": [1e-5]}]
    first, second = client.post("/v1/profiles/batch", json={"requests": requests}).text.splitlines()
    assert '"predicted_seconds"' in first
    assert '"profile"' in second


def test_an_event_that_is_known_is_answered_whatever_its_prediction(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module.ProfileCache, "knows", lambda _cache, _request: True)
    assert client.post("/v1/profiles", json=TOO_MUCH["many points of many releases"]).status_code == 200


CHEAP = {
    "a closed form": {"event": {"kind": "composed", "events": [release(std=1.0 + k) for k in range(20)]}, "deltas": DELTAS},
    "Renyi accounting": {"event": trainings(20), "deltas": DELTAS, "accountant": "rdp"},
    "deltas above all probability that anything differs": {"event": trainings(20, 1e-12), "deltas": [0.1, 1e-5]},
    "allocations that Renyi accounting answers": {"event": allocations(12, 0.01), "deltas": [1e-5]},
    "an event without privacy": {
        "event": {"kind": "composed", "events": [trainings(20), {"kind": "non_private", "reason": "a copy"}]},
        "deltas": DELTAS,
    },
    "deltas that share a contour": {"event": trainings(8), "deltas": [1e-5 * (1.0 + 1e-4 * k) for k in range(900)]},
    "nothing but infinity": {"event": trainings(20), "epsilons": ["Infinity"]},
    "an ordinary question": {"event": TRAINING, "deltas": [1e-5], "alphas": [0.1], "epsilons": [1.0]},
}


@pytest.mark.parametrize("kind", CHEAP)
def test_what_is_answered_quickly_has_no_prediction(kind: str) -> None:
    request = ProfileRequest.model_validate(CHEAP[kind])
    assert forecasts.predicted(request) == 0.0
    refuse_too_long(request, 1e-9)


def test_a_prediction_grows_with_releases_points_and_curves() -> None:
    def of(event: dict[str, Any], deltas: int = 1, searches: bool = False) -> float:
        points = Points(frozenset(math.log(delta) for delta in DELTAS[:deltas]), frozenset(), searches)
        return predicted_seconds(ProfileRequest.model_validate({"event": event}).event, accountant_named("auto"), points)

    few, many = of(trainings(10), 18), of(trainings(20), 18)
    assert many == pytest.approx(2.0 * few)
    assert of(trainings(10), 19) - few == pytest.approx(10 * costs.EACH_CONTOUR * UNIT)
    assert of(trainings(10), 18, searches=True) - few == pytest.approx(10 * costs.EACH_SEARCH * UNIT)
    assert of(allocations(20)) - of(allocations(19)) == pytest.approx(costs.EACH_CURVE * UNIT)


def test_a_refusal_is_one_for_time() -> None:
    refusal = CostTooHigh(10.0, 80.0)
    assert isinstance(refusal, TimeLimitReached)
    assert str(refusal) == "the calculation would take about 80 s of processor time or more; the limit is 10 s"


def test_an_answer_says_what_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 1.0
        return now

    request = ProfileRequest.model_validate({"event": TRAINING, "deltas": [1e-5]})
    monkeypatch.setattr("zetadp.app.calculators.profiles.time.thread_time", clock)
    answers = Answers(request.event, "auto")  # two readings
    first = answers.at(request).processor_seconds
    again = answers.at(request).processor_seconds
    assert first == again + 1.0  # the second time nothing is left of what the event itself took


def test_what_it_took_is_in_every_answer(client: TestClient) -> None:
    target = {"epsilon": 1.0, "delta": 1e-5}
    assert client.post("/v1/profiles", json={"event": TRAINING}).json()["processor_seconds"] > 0.0
    assert client.post("/v1/calibrations", json={"event": TRAINING, "target": target}).json()["processor_seconds"] > 0.0
    assert client.post("/v1/calibrations/sweep", json={"event": TRAINING, "targets": [target]}).json()["processor_seconds"] > 0.0
    assert compute_profile(ProfileRequest.model_validate({"event": TRAINING})).processor_seconds > 0.0
