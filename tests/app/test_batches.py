r"""POST /v1/profiles/batch: a thousand events in one request, a line of JSON each."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient

from tests.app.calculators_harness import without_cost
from tests.app.jobs_harness import WAIT_SECONDS, serving, settings, wait_until
from zetadp.accountants import deadline
from zetadp.app.calculators.batch_answers import as_text
from zetadp.app.calculators.batches import LARGEST_BATCH, BatchLine, ProblemLine, ProfileLine
from zetadp.app.calculators.cache import ProfileCache
from zetadp.app.calculators.limits import Calculators
from zetadp.app.calculators.profiles import compute_profile
from zetadp.app.calculators.schemas import ProfileRequest
from zetadp.app.client import Client, RequestRefused
from zetadp.app.kit.guard import LARGEST_BATCH_BODY, LARGEST_BODY
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app

Json = dict[str, Any]
SENSITIVITY = {"l2": 1.0, "adjacency": "add_remove", "unit": "record"}
PATH = "/v1/profiles/batch"


def release(std: float = 1.0) -> Json:
    return {"kind": "release", "mechanism": {"kind": "gaussian", "std": std, "sensitivity": SENSITIVITY}}


def asked(std: float = 1.0, **changes: object) -> Json:
    return {"event": release(std), "deltas": [1e-5], **changes}


def lines(response: httpx2.Response) -> list[Json]:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in response.text.splitlines()]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Generator[TestClient]:
    app = create_app(Settings(data_dir=tmp_path_factory.mktemp("data")))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Generator[httpx2.Client]:
    with serving(settings(tmp_path_factory.mktemp("served"))) as client:
        yield client


def test_each_line_is_what_its_request_gets_alone(client: TestClient) -> None:
    requests = [asked(std, epsilons=[1.0], orders=[2.0], alphas=[0.1]) for std in (0.5, 1.0, 2.0, 1.0)]
    answers = lines(client.post(PATH, json={"requests": requests}))
    alone = [client.post("/v1/profiles", json=request).json() for request in requests]
    assert without_cost(answers) == without_cost([{"index": index, "profile": profile} for index, profile in enumerate(alone)])


def test_bad_requests_spoil_their_own_lines_alone(client: TestClient) -> None:
    unsupported = {"kind": "poisson_sampled", "probability": 0.1, "event": release()}
    bad = [
        7,
        {},
        asked(-1.0),
        asked(accountant="clt"),
        asked(deltas=[1.0]),
        {"event": unsupported, "accountant": "gdp"},
        {"event": {"kind": "composed", "events": [release(), {**release(), "kind": "relase"}]}},
    ]
    answers = lines(client.post(PATH, json={"requests": [asked(), *bad, asked()]}))
    assert [line["index"] for line in answers] == list(range(len(bad) + 2))
    assert "profile" in answers[0]
    assert without_cost(answers[0]["profile"]) == without_cost(answers[-1]["profile"])
    details = [line["problem"]["detail"] for line in answers[1:-1]]
    expected = [
        "body: must be",
        "event: this field is required",
        "event.mechanism.std: must be >= 1e-50, got -1.0",
        "accountant: must be 'auto'",
        "deltas[0]: must be < 1, got 1.0",
        "accountant gdp can't bound this event",
        "event.events[1]",
    ]
    for detail, text in zip(details, expected, strict=True):
        assert text in detail


def test_a_line_that_quotes_line_separators_is_still_one_line(client: TestClient) -> None:
    quoted = "\u2028\x85\x1e"
    response = client.post(PATH, json={"requests": [{**asked(), quoted: 1}, asked()]})
    answers = [json.loads(line) for line in response.iter_lines()]
    assert [line["index"] for line in answers] == [0, 1]
    assert quoted in answers[0]["problem"]["errors"][0]["field"]


def test_a_problem_line_is_the_problem_of_a_single_request(client: TestClient) -> None:
    for bad in (asked(-1.0), {"event": {"kind": "poisson_sampled", "probability": 0.1, "event": release()}, "accountant": "gdp"}):
        line = lines(client.post(PATH, json={"requests": [bad]}))[0]
        single = client.post("/v1/profiles", json=bad)
        assert {**line["problem"], "request_id": single.headers["x-request-id"]} == single.json()


def test_numbers_that_are_not_finite_spoil_their_line_alone(client: TestClient) -> None:
    text = json.dumps({"requests": [asked(), asked(12345.0), asked()]}).replace("12345.0", "NaN")
    answers = lines(client.post(PATH, content=text, headers={"content-type": "application/json"}))
    assert ["profile" in line for line in answers] == [True, False, True]


def test_a_thousand_are_answered(client: TestClient) -> None:
    answers = lines(client.post(PATH, json={"requests": [asked(1.0 + index) for index in range(LARGEST_BATCH)]}))
    assert [line["index"] for line in answers] == list(range(LARGEST_BATCH))
    epsilons = [line["profile"]["epsilon"][0]["upper"] for line in answers]
    assert epsilons == sorted(epsilons, reverse=True)


def test_one_more_than_a_thousand_is_refused_whole(client: TestClient) -> None:
    response = client.post(PATH, json={"requests": [asked()] * (LARGEST_BATCH + 1)})
    assert (response.status_code, response.headers["content-type"]) == (422, "application/problem+json")
    assert response.json()["detail"] == "requests: must have at most 1000 entries, got 1001"


def test_no_requests_are_no_lines(client: TestClient) -> None:
    assert lines(client.post(PATH, json={"requests": []})) == []


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"request": []}', b'{"requests": {}}', b"\xff"])
def test_what_is_not_a_batch_is_refused_whole(client: TestClient, body: bytes) -> None:
    assert client.post(PATH, content=body, headers={"content-type": "application/json"}).status_code == 422


def test_an_error_of_ours_spoils_its_own_line_alone(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Calculators.profile

    def broken(self: Calculators, request: Any) -> Any:
        if request.event.mechanism.std == 2.0:
            raise RuntimeError("secret")
        return answer(self, request)

    monkeypatch.setattr(Calculators, "profile", broken)
    response = client.post(PATH, json={"requests": [asked(1.0), asked(2.0), asked(3.0)]})
    answers = lines(response)
    assert ["profile" in line for line in answers] == [True, False, True]
    assert answers[1]["problem"]["status"] == 500
    assert "secret" not in response.text


def test_a_batch_may_be_larger_than_a_single_request(client: TestClient) -> None:
    filling = b" " * LARGEST_BODY
    assert lines(client.post(PATH, content=b'{"requests": []}' + filling, headers={"content-type": "application/json"})) == []
    response = client.post(PATH, content=b" " * (LARGEST_BATCH_BODY + 1), headers={"content-type": "application/json"})
    assert (response.status_code, response.json()["detail"]) == (413, f"expected at most {LARGEST_BATCH_BODY} bytes")


def test_after_the_batchs_time_the_rest_is_refused_line_by_line(tmp_path: Path) -> None:
    app = create_app(Settings(data_dir=tmp_path, batch_seconds=1e-9))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        answers = lines(client.post(PATH, json={"requests": [asked()] * 3}))
    assert [line["problem"]["type"] for line in answers] == ["time-limit-reached"] * 3
    assert answers[0]["problem"]["job"] == "/v1/calculations"


def test_lines_are_sent_as_they_are_computed(api: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    has_line, waited = threading.Event(), list[bool]()
    answer = Calculators.profile

    def later_ones_wait(self: Calculators, request: Any) -> Any:
        waited.append(waited == [] or has_line.wait(WAIT_SECONDS))
        return answer(self, request)

    monkeypatch.setattr(Calculators, "profile", later_ones_wait)
    with api.stream("POST", PATH, json={"requests": [asked()] * 3}, timeout=2 * WAIT_SECONDS) as response:
        sent = response.iter_lines()
        first = json.loads(next(sent))
        has_line.set()
        rest = list(sent)
    assert (first["index"], len(rest)) == (0, 2)
    assert waited == [True] * 3


def test_a_client_that_leaves_ends_the_work(api: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended = list[object](), threading.Event()
    answer = ProfileCache.profile

    def third_never_ends(self: ProfileCache, request: Any) -> Any:
        begun.append(request)
        while len(begun) >= 3:
            deadline.check()  # raises once the client has gone
            time.sleep(0.01)
        return answer(self, request)

    def watched(lines: Iterator[BatchLine]) -> Generator[bytes]:
        try:
            yield from as_text(lines)
        finally:
            ended.set()

    monkeypatch.setattr(ProfileCache, "profile", third_never_ends)
    monkeypatch.setattr("zetadp.app.calculators.router.as_text", watched)
    body = json.dumps({"requests": [asked()] * LARGEST_BATCH}).encode()
    with socket.create_connection((api.base_url.host, api.base_url.port)) as connection:
        head = f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        wait_until(lambda: len(begun) >= 3)
    assert ended.wait(WAIT_SECONDS)
    assert len(begun) < LARGEST_BATCH // 2


def test_the_python_client_reads_the_lines_as_they_come(api: httpx2.Client) -> None:
    requests = [ProfileRequest.model_validate(asked(std, epsilons=["Infinity"])) for std in (1.0, 2.0)]
    unsupported = ProfileRequest.model_validate(
        {"event": {"kind": "poisson_sampled", "probability": 0.1, "event": release()}, "accountant": "gdp"}
    )
    with Client(str(api.base_url)) as client:
        first, second, third = client.profiles([*requests, unsupported])
    profiles = [line.profile for line in (first, second) if isinstance(line, ProfileLine)]
    assert without_cost(profiles) == without_cost([compute_profile(request) for request in requests])
    assert isinstance(third, ProblemLine)


def test_the_python_client_tells_why_a_batch_is_refused(api: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zetadp.app.kit.guard.LARGEST_BATCH_BODY", 100)
    with Client(str(api.base_url)) as client, pytest.raises(RequestRefused, match="at most 100 bytes"):
        list(client.profiles([ProfileRequest.model_validate(asked())]))
