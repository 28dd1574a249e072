"""Calculations in processes apart from the service: the same answers, in fair turns, within limits of processor time."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient

from tests.app.calculators_harness import without_cost
from tests.app.certificates_harness import finished_run
from tests.app.jobs_harness import AUTHORIZED, WAIT_SECONDS, provide_database, running, settings, wait_until
from tests.app.openapi_harness import document
from tests.selection import thinned
from zetadp.app.certificates.issuing.issue import issue_certificate
from zetadp.app.computing import pool as pool_module
from zetadp.app.computing import routes
from zetadp.app.computing.pool import QUICK_SECONDS, Pool
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app

SENSITIVITY = {"l2": 1.0, "adjacency": "add_remove", "unit": "record"}


def release(std: float) -> dict[str, Any]:
    return {"kind": "release", "mechanism": {"kind": "gaussian", "std": std, "sensitivity": SENSITIVITY}}


def training(std: float) -> dict[str, Any]:
    return {"kind": "repeated", "count": 1000, "event": {"kind": "poisson_sampled", "probability": 0.01, "event": release(std)}}


def expensive(seed: int, mechanisms: int = 300) -> dict[str, Any]:
    """Several times what the quick processes take on."""
    draw = random.Random(seed)
    return {"event": {"kind": "composed", "events": [training(draw.uniform(0.8, 4.0)) for _ in range(mechanisms)]}, "deltas": [1e-5]}


def endless(seed: int) -> dict[str, Any]:
    """Minutes of work in a short question: nobody waits for its answer."""
    draw = random.Random(seed)
    allocated = [{"kind": "randomly_allocated", "steps": 1000, "event": release(draw.uniform(0.7, 1.5))} for _ in range(50)]
    return {"event": {"kind": "composed", "events": allocated}, "deltas": [1e-5]}


@contextmanager
def served(folder: Path, **changes: object) -> Generator[tuple[httpx2.Client, Pool]]:
    """A client without a key, and the pool of the service that it asks."""
    of = Settings.model_validate(settings(folder).model_dump() | {"calculating_processes": 2} | changes)
    provide_database(of)
    app = create_app(of)
    with running(app) as address, httpx2.Client(base_url=address, timeout=WAIT_SECONDS) as client:
        yield client, app.state.desk.pool


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx2.Client, Pool]]:
    with served(tmp_path_factory.mktemp("apart")) as found:
        yield found


@pytest.fixture(scope="module")
def within(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """A service that calculates itself."""
    return TestClient(create_app(settings(tmp_path_factory.mktemp("within"))), base_url="http://127.0.0.1")


QUESTIONS = {
    "profile": ("POST", "/v1/profiles", {"event": training(1.5), "deltas": [1e-5], "advantage": True}),
    "expensive profile": ("POST", "/v1/profiles", expensive(1)),
    "calibration": ("POST", "/v1/calibrations", {"event": training(1.0), "target": {"epsilon": 2.0, "delta": 1e-5}}),
    "short form": ("GET", "/v1/dp-sgd?noise_multiplier=1.1&sampling_probability=0.01&steps=100&delta=1e-5", None),
    "batch": ("POST", "/v1/profiles/batch", {"requests": [{"event": training(2.0), "deltas": [1e-6]}, {"event": 3}]}),
    "comparison": ("POST", "/v1/compare/taylor", {}),
    "conversions": ("POST", "/v1/conversions", {"given": {"kind": "zcdp", "rho": 0.5}, "to": [{"kind": "pure"}]}),
    "bad value": ("POST", "/v1/profiles", {"event": release(-1.0), "deltas": [1e-5]}),
    "no JSON": ("POST", "/v1/profiles", b"{"),
    "unknown paper": ("GET", "/v1/papers/nobody", None),
    "unsupported": ("POST", "/v1/profiles", {"event": training(1.5), "accountant": "nobody", "deltas": [1e-5]}),
}


def asked(client: Any, question: tuple[str, str, Any]) -> Any:
    method, path, body = question
    content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    return client.request(method, path, content=content, headers={"Content-Type": "application/json"} if body is not None else {})


@pytest.mark.parametrize("name", thinned(QUESTIONS, every=4))
def test_answers_are_those_of_a_service_that_calculates_itself(name: str, apart: tuple[httpx2.Client, Pool], within: TestClient) -> None:
    found, expected = asked(apart[0], QUESTIONS[name]), asked(within, QUESTIONS[name])
    assert found.status_code == expected.status_code
    assert found.headers["content-type"] == expected.headers["content-type"]
    if name == "batch":
        lines = [[json.loads(line) for line in answer.text.splitlines()] for answer in (found, expected)]
        assert without_cost(lines[0]) == without_cost(lines[1])
    elif found.status_code == 200:
        assert without_cost(found.json()) == without_cost(expected.json())
    else:
        own = {"request_id"}
        assert {k: v for k, v in found.json().items() if k not in own} == {k: v for k, v in expected.json().items() if k not in own}
        assert found.json()["request_id"] == found.headers["x-request-id"]


def test_every_route_that_calculates_is_apart() -> None:
    """All that calculators and papers answer to a body, and what they compute from a query; catalogues and texts are the service's own."""
    catalogues = {"mechanisms", "events", "accountants", "algorithms", "proofs", "errata"}
    expected = {
        (method.upper(), path)
        for path, operations in document()["paths"].items()
        for method, operation in operations.items()
        if operation["tags"][0] in ("calculators", "papers") and path.split("/")[2] not in catalogues
    }
    assert expected == routes.ROUTES


def test_what_is_counted_has_the_routes_name(apart: tuple[httpx2.Client, Pool]) -> None:
    client, _ = apart
    assert asked(client, QUESTIONS["unknown paper"]).status_code == 422
    text = client.get("/metrics", headers=AUTHORIZED).text
    assert 'route="/v1/papers/{paper}"' in text
    assert "nobody" not in text


def test_the_same_question_is_answered_from_memory(apart: tuple[httpx2.Client, Pool], monkeypatch: pytest.MonkeyPatch) -> None:
    client, pool = apart
    question = {"event": training(3.25), "deltas": [1e-5]}
    first = client.post("/v1/profiles", json=question)
    assert first.status_code == 200, first.text

    def nobody(*_arguments: object) -> None:
        raise AssertionError

    monkeypatch.setattr(pool, "at_once", nobody)
    monkeypatch.setattr(pool, "slowly", nobody)
    again = client.post("/v1/profiles", json=question)
    assert again.content == first.content
    assert again.headers["content-type"] == first.headers["content-type"]


@pytest.mark.slow
def test_a_limit_of_processor_time_refuses_with_what_to_do(tmp_path: Path) -> None:
    with served(tmp_path, calculation_seconds=2 * QUICK_SECONDS) as (client, _):
        refused = client.post("/v1/profiles", json=expensive(2))
        assert (refused.status_code, refused.json()["type"]) == (422, "time-limit-reached")
        assert client.post("/v1/profiles", json={"event": training(1.0), "deltas": [1e-5]}).status_code == 200


@contextmanager
def waiting(client: httpx2.Client, body: dict[str, Any]) -> Iterator[socket.socket]:
    """A connection on which an answer is awaited."""
    content = json.dumps(body).encode()
    head = f"POST /v1/profiles HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    with socket.create_connection((client.base_url.host, client.base_url.port)) as line:
        line.sendall(head.encode() + content)
        yield line


@pytest.mark.slow
def test_a_process_is_free_again_when_its_client_goes(tmp_path: Path) -> None:
    with served(tmp_path, calculation_seconds=3600.0) as (client, pool):
        client.post("/v1/profiles", json={"event": training(1.0), "deltas": [1e-5]})
        with waiting(client, endless(3)):
            wait_until(lambda: bool(pool._in_hand) and not pool._slow._free)
        wait_until(lambda: bool(pool._slow._free))
        assert not pool._in_hand


def test_one_that_dies_is_replaced_and_its_question_answered_with_when_to_ask_again(tmp_path: Path) -> None:
    with served(tmp_path, calculation_seconds=3600.0) as (client, pool):
        client.post("/v1/profiles", json={"event": training(1.0), "deltas": [1e-5]})
        answers: list[httpx2.Response] = []
        asking = threading.Thread(target=lambda: answers.append(client.post("/v1/profiles", json=endless(4))))
        slow = pool._slow._free[0]
        asking.start()
        wait_until(lambda: bool(pool._in_hand) and not pool._slow._free)
        assert slow._process.pid is not None
        os.kill(slow._process.pid, signal.SIGKILL)
        asking.join()
        assert (answers[0].status_code, answers[0].json()["type"]) == (503, "calculator-lost")
        assert int(answers[0].headers["retry-after"]) > 0
        assert client.post("/v1/profiles", json=expensive(5)).status_code == 200


@pytest.mark.slow
def test_cheap_questions_and_health_dont_wait_for_expensive_ones_and_one_address_asks_for_so_much(tmp_path: Path) -> None:
    with served(tmp_path, calculation_seconds=3600.0, calculations_per_address=2, calculation_wait_seconds=0.2) as (client, pool):
        client.post("/v1/profiles", json={"event": training(1.0), "deltas": [1e-5]})
        with waiting(client, endless(6)):
            wait_until(lambda: bool(pool._in_hand) and not pool._slow._free)
            assert client.get("/livez").status_code == 200
            # A busy machine may have no time for it at first. What is expensive never ends, so nobody waited for that.
            wait_until(lambda: client.post("/v1/profiles", json={"event": training(1.01), "deltas": [1e-5]}).status_code == 200)
            busy = client.post("/v1/profiles", json=endless(7))
            assert (busy.status_code, busy.json()["type"]) == (503, "calculators-busy")
            with waiting(client, endless(8)):
                wait_until(lambda: sum(pool._in_hand.values()) == 2)
                many = client.post("/v1/profiles", json={"event": training(1.02), "deltas": [1e-5]})
                assert (many.status_code, many.json()["type"]) == (429, "too-many-calculations")
                assert int(many.headers["retry-after"]) > 0
                # A key has turns of its own.
                question = {"event": training(1.03), "deltas": [1e-5]}
                wait_until(lambda: client.post("/v1/profiles", json=question, headers=AUTHORIZED).status_code == 200)


@pytest.mark.slow
def test_closed_calculators_need_their_scope(tmp_path: Path) -> None:
    with served(tmp_path, open_calculators=False) as (client, _):
        question = {"event": training(1.0), "deltas": [1e-5]}
        assert client.post("/v1/profiles", json=question).status_code == 401
        assert client.post("/v1/profiles", json=question, headers=AUTHORIZED).status_code == 200


@pytest.mark.slow
def test_certificates_are_verified_apart_once_and_within_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(tmp_path) as (client, pool):
        of = Settings.model_validate(settings(tmp_path).model_dump())
        envelope = issue_certificate(finished_run(tmp_path / "files"), of)
        first = client.post("/v1/certificates/verify", content=envelope)
        assert first.json()["verdict"] == "valid"
        at_once, slowly = pool.at_once, pool.slowly

        def nobody(*_arguments: object) -> None:
            raise AssertionError

        monkeypatch.setattr(pool, "at_once", nobody)
        monkeypatch.setattr(pool, "slowly", nobody)
        again = client.post("/v1/certificates/verify", content=envelope)
        assert [check for check in again.json()["checks"] if check["name"] != "revocation"] == [
            check for check in first.json()["checks"] if check["name"] != "revocation"
        ]
        monkeypatch.setattr(pool, "at_once", at_once)
        monkeypatch.setattr(pool, "slowly", slowly)
        spoiled = client.post("/v1/certificates/verify", content=envelope.replace(b"payload", b"pay1oad", 1))
        assert spoiled.json()["verdict"] == "invalid"
    with served(tmp_path, verification_seconds=QUICK_SECONDS + 0.001) as (client, _):
        refused = client.post("/v1/certificates/verify", content=envelope)
        assert (refused.status_code, refused.json()["type"]) == (422, "verification-too-long")
        assert "zetadp verify" in refused.json()["detail"]


@pytest.mark.slow
def test_a_calculation_that_gets_no_processor_time_is_given_up_and_its_process_is_free_again(
    apart: tuple[httpx2.Client, Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, pool = apart
    client.post("/v1/profiles", json={"event": training(1.0), "deltas": [1e-5]})
    with monkeypatch.context() as patched:
        patched.setattr(pool_module, "PATIENCE", 1e-6)
        busy = client.post("/v1/profiles", json={"event": training(1.04), "deltas": [1e-5]})
    assert (busy.status_code, busy.json()["type"]) == (503, "machine-busy")
    assert int(busy.headers["retry-after"]) > 0
    wait_until(lambda: bool(pool._quick._free))
    assert client.post("/v1/profiles", json={"event": training(1.04), "deltas": [1e-5]}).status_code == 200
