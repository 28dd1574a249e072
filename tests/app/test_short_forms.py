"""Questions by numbers: they get the answers that the events get that they stand for, and show these events."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from tests.app.calculators_harness import problem, without_cost
from zetadp.accountants import short_forms
from zetadp.accountants.events import Event
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app

TRAINING = {"sampling_probability": 0.01, "steps": 1000}
FORMS = {
    "dp-sgd": (short_forms.dp_sgd, TRAINING),
    "gaussian": (short_forms.gaussian, {}),
    "complex-gaussian": (short_forms.complex_gaussian, {"correlation": 0.5}),
    "laplace": (short_forms.laplace, {}),
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    return TestClient(create_app(Settings(data_dir=tmp_path_factory.mktemp("data"))), base_url="http://127.0.0.1")


def _event(name: str, multiplier: float) -> dict[str, object]:
    form, numbers = FORMS[name]
    found: Event = form(noise_multiplier=multiplier, **numbers)
    return found.model_dump(mode="json", exclude_none=True)


@pytest.mark.parametrize("name", FORMS)
def test_a_noise_multiplier_gets_the_profile_of_its_event(client: TestClient, name: str) -> None:
    answer = client.get(f"/v1/{name}", params={"noise_multiplier": 1.5, "delta": 1e-5, **FORMS[name][1]})
    assert answer.status_code == 200, answer.text
    posted = client.post("/v1/profiles", json={"event": _event(name, 1.5), "deltas": [1e-5]})
    assert posted.status_code == 200, posted.text
    assert answer.json()["kind"] == "profile"
    assert without_cost(answer.json()["profile"]) == without_cost(posted.json())


@pytest.mark.parametrize("name", FORMS)
def test_an_epsilon_gets_the_calibration_of_its_event(client: TestClient, name: str) -> None:
    answer = client.get(f"/v1/{name}", params={"epsilon": 2.0, "delta": 1e-5, **FORMS[name][1]})
    assert answer.status_code == 200, answer.text
    posted = client.post("/v1/calibrations", json={"event": _event(name, 1.0), "target": {"epsilon": 2.0, "delta": 1e-5}})
    assert posted.status_code == 200, posted.text
    assert answer.json()["kind"] == "calibration"
    assert without_cost(answer.json()["calibration"]) == without_cost(posted.json())
    assert answer.json()["calibration"]["guarantee"]["epsilon"]["upper"] <= 2.0


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("given", [{"noise_multiplier": 1.5}, {"epsilon": 2.0}], ids=["profile", "calibration"])
def test_the_event_of_the_answer_can_be_sent_as_it_is_and_has_the_same_epsilon(
    client: TestClient, name: str, given: dict[str, float]
) -> None:
    answer = client.get(f"/v1/{name}", params={**given, "delta": 1e-5, **FORMS[name][1]}).json()
    posted = client.post("/v1/profiles", json={"event": answer["event"], "deltas": [1e-5]})
    assert posted.status_code == 200, posted.text
    shown = answer["profile"]["epsilon"][0] if "profile" in answer else answer["calibration"]["guarantee"]["epsilon"]
    assert posted.json()["epsilon"][0]["upper"] == shown["upper"]


def test_dp_sgd_has_the_epsilon_of_the_library(client: TestClient) -> None:
    answer = client.get("/v1/dp-sgd?noise_multiplier=1&sampling_probability=0.01&steps=1000&delta=1e-5").json()
    assert answer["profile"]["epsilon"][0]["upper"] == pytest.approx(1.82824, abs=1e-5)  # as the docstring of ``zetadp.epsilon``
    assert answer["event"]["event"]["event"]["mechanism"]["std"] == 1.0


def test_correlated_noise_costs_what_theorem_1_corrected_says(client: TestClient) -> None:
    answer = client.get("/v1/complex-gaussian?noise_multiplier=1&correlation=0.5&delta=1e-5").json()
    assert answer["profile"]["gdp_mu"] == pytest.approx(2**0.5, rel=1e-13)
    assert client.get("/v1/complex-gaussian?noise_multiplier=1&delta=1e-5").json()["profile"]["gdp_mu"] == 1.0


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(("given", "got"), [({}, "neither"), ({"noise_multiplier": 1.0, "epsilon": 1.0}, "both")])
def test_a_question_needs_either_the_noise_or_the_epsilon(client: TestClient, name: str, given: dict[str, float], got: str) -> None:
    found = problem(client.get(f"/v1/{name}", params={**given, "delta": 1e-5, **FORMS[name][1]}))
    assert found["type"] == "invalid-parameter"
    assert found["detail"] == f"noise_multiplier must be given, or epsilon instead of it, got '{got}'"
    assert [error["field"] for error in found["errors"]] == ["noise_multiplier"]


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("dp-sgd?noise_multiplier=0&sampling_probability=0.1&steps=1&delta=1e-5", "noise_multiplier: must be >= 1e-50, got '0'"),
        ("dp-sgd?noise_multiplier=1&sampling_probability=1.2&steps=1&delta=1e-5", "sampling_probability: must be <= 1, got '1.2'"),
        ("dp-sgd?noise_multiplier=1&sampling_probability=0&steps=1&delta=1e-5", "sampling_probability: must be >= 1e-50, got '0'"),
        ("dp-sgd?noise_multiplier=1&sampling_probability=0.1&steps=0&delta=1e-5", "steps: must be >= 1, got '0'"),
        ("dp-sgd?noise_multiplier=1&sampling_probability=1&steps=2000000000&delta=1e-5", "steps: must be <= 1e+09, got '2000000000'"),
        ("dp-sgd?noise_multiplier=1&sampling_probability=0.1&delta=1e-5", "steps"),
        ("gaussian?noise_multiplier=1", "delta"),
        ("gaussian?noise_multiplier=1&delta=1", "delta: must be < 1, got '1'"),
        ("gaussian?noise_multiplier=nan&delta=0.1", "noise_multiplier"),
        ("gaussian?epsilon=-1&delta=0.1", "epsilon: must be >= 0, got '-1'"),
        ("complex-gaussian?noise_multiplier=1&correlation=1&delta=0.1", "correlation: must be < 1, got '1'"),
        ("laplace?noise_multiplier=inf&delta=0.1", "noise_multiplier"),
    ],
)
def test_a_number_out_of_its_range_is_refused_by_name(client: TestClient, query: str, told: str) -> None:
    assert told in problem(client.get(f"/v1/{query}"))["detail"]


@pytest.mark.parametrize("name", FORMS)
def test_a_target_that_no_noise_meets_is_a_failed_calibration(client: TestClient, name: str) -> None:
    found = problem(client.get(f"/v1/{name}", params={"epsilon": 0.0, "delta": 5e-324, **FORMS[name][1]}))
    assert found["type"] in ("calibration-failed", "numerical-floor")


def test_a_calculation_that_takes_too_long_ends_at_the_limit_of_all_calculators(tmp_path) -> None:
    of = Settings(data_dir=tmp_path, calculation_seconds=1e-6)
    client = TestClient(create_app(of), base_url="http://127.0.0.1")
    answer = client.get("/v1/dp-sgd?epsilon=2&sampling_probability=0.013&steps=7777&delta=1e-5")
    assert problem(answer)["type"] == "time-limit-reached"


def test_closed_calculators_close_these_too(tmp_path) -> None:
    client = TestClient(create_app(Settings(data_dir=tmp_path, open_calculators=False)), base_url="http://127.0.0.1")
    with client:
        assert client.get("/v1/gaussian?noise_multiplier=1&delta=1e-5").status_code == 401
