r"""Calculations as jobs, with real worker processes: results, refusals, cancellation, and a worker's death."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import select

from tests.app.calculators_harness import without_cost
from tests.app.jobs_harness import ADMIN_KEY, is_alive, kill, serving, settings, spec, state, stream, submit, wait_until, working
from tests.selection import thinned
from zetadp.app.calculators.calibrations import SweepRequest
from zetadp.app.client import Client
from zetadp.app.jobs.calculation import Calculation
from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings
from zetadp.app.tables.jobs import JobRow

Json = dict[str, Any]
SENSITIVITY = {"l2": 1.0, "adjacency": "add_remove", "unit": "record"}


def release(std: float = 1.0) -> Json:
    return {"kind": "release", "mechanism": {"kind": "gaussian", "std": std, "sensitivity": SENSITIVITY}}


def sampled(std: float = 1.0) -> Json:
    return {"kind": "poisson_sampled", "probability": 0.1, "event": release(std)}


PROFILE = {"event": release(), "deltas": [1e-5]}
LONG = {"batch": [{"event": sampled(1.0 + index / 1000), "accountant": "pld", "deltas": [1e-5]} for index in range(1000)]}
"""Takes minutes: a grid composition each."""


@dataclass(frozen=True)
class Service:
    settings: Settings
    client: httpx2.Client


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[Service]:
    """An API and a worker that no test here kills."""
    of = settings(tmp_path_factory.mktemp("service"))
    with serving(of) as client, working(of):
        yield Service(of, client)


@pytest.fixture
def api(tmp_path: Path) -> Generator[Service]:
    """An API alone; the test starts its workers."""
    of = settings(tmp_path)
    with serving(of) as client:
        yield Service(of, client)


def calculate(client: httpx2.Client, calculation: Json, key: str | None = None) -> Json:
    headers = {} if key is None else {"Idempotency-Key": key}
    response = client.post("/v1/calculations", json=calculation, headers=headers)
    assert response.status_code == 202, response.text
    assert response.headers["Location"] == f"/v1/jobs/{response.json()['id']}"
    return response.json()


def ended(client: httpx2.Client, job_id: str) -> Json:
    """The job after its last event."""
    list(stream(client, job_id))
    return client.get(f"/v1/jobs/{job_id}").json()


def calculators(of: Settings, job_id: str) -> list[int]:
    """Process ids of the children that calculate this job now."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            if entry.name.isdigit() and is_alive(int(entry.name)):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                # Each attempt has a folder of its own in the job's.
                if b"zetadp.app.worker.calculator" in words and any(word.startswith(f"{of.job_dir(job_id)}/".encode()) for word in words):
                    found.append(int(entry.name))
    return found


@pytest.fixture(scope="module")
def profiled(service: Service) -> Json:
    """A job of one profile, after its last event."""
    return ended(service.client, calculate(service.client, {"profile": PROFILE})["id"])


def test_a_profile_comes_out_as_it_does_at_once(service: Service, profiled: Json) -> None:
    assert (profiled["state"], profiled["calculation"], profiled["failure"]) == ("succeeded", "profile", None)
    assert without_cost(profiled["result"]["profile"]) == without_cost(service.client.post("/v1/profiles", json=PROFILE).json())


@pytest.mark.slow  # the way is that of the profile
def test_a_calibration_comes_out_as_it_does_at_once(service: Service) -> None:
    asked = {"event": release(), "target": {"epsilon": 1.0, "delta": 1e-5}}
    job = ended(service.client, calculate(service.client, {"calibration": asked})["id"])
    assert without_cost(job["result"]["calibration"]) == without_cost(service.client.post("/v1/calibrations", json=asked).json())


@pytest.mark.slow
def test_a_batch_comes_out_line_by_line_with_its_problems(service: Service) -> None:
    batch = [PROFILE, {"event": sampled(), "accountant": "gdp"}, PROFILE]
    job = ended(service.client, calculate(service.client, {"batch": batch})["id"])
    text = service.client.post("/v1/profiles/batch", json={"requests": batch}).text
    assert without_cost(job["result"]["batch"]) == without_cost([json.loads(line) for line in text.splitlines()])
    assert "problem" in job["result"]["batch"][1]


@pytest.mark.slow
def test_an_infinite_epsilon_survives_the_way_through_the_files(service: Service) -> None:
    asked = {"event": {"kind": "non_private", "reason": "raw data"}, "deltas": [1e-5]}
    job = ended(service.client, calculate(service.client, {"profile": asked})["id"])
    assert job["result"]["profile"]["epsilon"][0]["upper"] == "Infinity"


@pytest.mark.slow
def test_a_sweep_comes_out_through_the_python_client(service: Service) -> None:
    sweep = {"event": release(), "targets": [{"epsilon": 1.0, "delta": 1e-5}, {"gdp_mu": 2.0}]}
    request = SweepRequest.model_validate(sweep)
    with Client(str(service.client.base_url), ADMIN_KEY) as client:
        job = client.calculate(Calculation(sweep=request), idempotency_key="sweep")
        list(client.events(job.id))
        done = client.job(job.id)
        assert done.result is not None
        assert without_cost(done.result.sweep) == without_cost(client.sweep(request))
    assert done.calculation == "sweep"


def test_the_result_is_a_file_too(service: Service, profiled: Json) -> None:
    listed = service.client.get(profiled["links"]["artifacts"]).json()["artifacts"]
    assert [entry["name"] for entry in listed] == ["result.json"]
    assert service.client.get(profiled["links"]["artifacts"] + "/result.json").json() == profiled["result"]


def test_what_no_accountant_can_answer_fails_with_the_reason(service: Service) -> None:
    job = ended(service.client, calculate(service.client, {"profile": {"event": sampled(), "accountant": "gdp"}})["id"])
    assert (job["state"], job["result"]) == ("failed", None)
    assert "accountant gdp can't bound this event" in job["failure"]


@pytest.mark.slow
def test_a_calculation_beyond_its_time_fails_with_the_limit(tmp_path: Path) -> None:
    of = Settings(data_dir=tmp_path, event_poll_seconds=0.05, resubmit_seconds=0.5, calculation_job_seconds=1e-9)
    with serving(of) as client, working(of):
        job = ended(client, calculate(client, {"profile": PROFILE})["id"])
    assert (job["state"], job["failure"]) == ("failed", "the calculation takes longer than the limit of 1e-09 s")


def test_cancelling_ends_the_calculation_at_once(service: Service) -> None:
    job_id = calculate(service.client, LONG)["id"]
    wait_until(lambda: len(calculators(service.settings, job_id)) == 1)
    assert service.client.post(f"/v1/jobs/{job_id}/cancel").json()["state"] == "cancelling"
    job = ended(service.client, job_id)
    assert (job["state"], job["result"]) == ("cancelled", None)
    assert calculators(service.settings, job_id) == []


@pytest.mark.slow
def test_a_killed_worker_takes_its_calculation_with_it_and_the_next_one_starts_anew(api: Service) -> None:
    job_id = calculate(api.client, LONG)["id"]
    with working(api.settings) as first:
        wait_until(lambda: len(calculators(api.settings, job_id)) == 1)
        kill(first)
    wait_until(lambda: calculators(api.settings, job_id) == [])
    with working(api.settings):
        wait_until(lambda: len(calculators(api.settings, job_id)) == 1)
        assert api.client.get(f"/v1/jobs/{job_id}").json()["attempt"] == 2
        api.client.post(f"/v1/jobs/{job_id}/cancel")
        assert ended(api.client, job_id)["state"] == "cancelled"


@pytest.mark.slow
def test_a_worker_that_stops_in_good_order_queues_its_calculation_again(api: Service) -> None:
    job_id = calculate(api.client, LONG)["id"]
    with working(api.settings) as worker:
        wait_until(lambda: len(calculators(api.settings, job_id)) == 1)
        worker.send_signal(signal.SIGTERM)
        worker.wait()
    assert state(api.client, job_id) == "queued"
    assert calculators(api.settings, job_id) == []


@pytest.mark.slow
def test_a_calculation_killed_from_outside_fails_with_that(service: Service) -> None:
    job_id = calculate(service.client, LONG)["id"]
    wait_until(lambda: len(calculators(service.settings, job_id)) == 1)
    os.kill(calculators(service.settings, job_id)[0], signal.SIGKILL)
    assert "the calculation process was ended by SIGKILL" in ended(service.client, job_id)["failure"]


def test_trainings_and_calculations_stand_in_one_list(api: Service) -> None:
    training, calculation = submit(api.client), calculate(api.client, {"profile": PROFILE})["id"]
    jobs = api.client.get("/v1/jobs").json()["jobs"]
    assert [(job["id"], job["algorithm"], job["calculation"]) for job in jobs] == [
        (calculation, None, "profile"),
        (training, "zeta_dp_sgd", None),
    ]
    trainings = api.client.get("/v1/jobs", params={"algorithm": "zeta_dp_sgd"}).json()["jobs"]
    assert [job["id"] for job in trainings] == [training]


def test_a_training_is_stored_without_a_word_of_calculations(api: Service) -> None:
    job_id = submit(api.client)
    database = Database(api.settings)
    with database.reading() as session:
        stored = session.scalars(select(JobRow.document).where(JobRow.id == job_id)).one()
    database.close()
    assert set(stored) == {"spec", "runtime"}


def test_the_same_key_makes_one_calculation(api: Service) -> None:
    first, second = (calculate(api.client, {"profile": PROFILE}, key="same")["id"] for _ in range(2))
    assert first == second


def test_a_key_used_for_a_training_is_a_conflict(api: Service) -> None:
    assert api.client.post("/v1/jobs", json={"spec": spec()}, headers={"Idempotency-Key": "k"}).status_code == 202
    assert api.client.post("/v1/calculations", json={"profile": PROFILE}, headers={"Idempotency-Key": "k"}).status_code == 409


@pytest.mark.parametrize(
    ("body", "text"),
    thinned(
        [
            ({}, "must be exactly one of profile, batch, calibration, sweep, got 'none of them'"),
            ({"profile": PROFILE, "batch": []}, "must be exactly one of profile, batch, calibration, sweep, got ['profile', 'batch']"),
            ({"profile": {"event": release(-1.0)}}, "profile.event.mechanism.std: must be >= 1e-50, got -1.0"),
            ({"batch": [PROFILE, {"event": {}}]}, "batch[1].event"),
            ({"batch": [PROFILE] * 1001}, "batch: must have at most 1000 entries, got 1001"),
            ({"profiles": []}, "profiles: there is no field with this name"),
        ],
        every=3,
    ),
    ids=["none", "two", "a bad number", "a bad line", "too many lines", "a misspelled name"],
)
def test_a_bad_calculation_is_refused_before_it_is_stored(api: Service, body: Json, text: str) -> None:
    response = api.client.post("/v1/calculations", json=body)
    assert (response.status_code, response.headers["content-type"]) == (422, "application/problem+json")
    assert text in response.json()["detail"]
    assert api.client.get("/v1/jobs").json()["jobs"] == []
