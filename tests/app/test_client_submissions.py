r"""The client's submissions where the line breaks: sent again under one name, and an error that says what is known."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from tests.app.jobs_harness import spec
from zetadp.app import client as module
from zetadp.app.client import AnswerLost, Client, RequestRefused, ServiceUnreachable
from zetadp.app.jobs.resources import JobSubmission

SUBMISSION = JobSubmission.model_validate({"spec": spec()})
PROBLEM = json.dumps({"title": "Full.", "detail": "no room"}).encode()
REFUSED = b"HTTP/1.1 507 -\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\n\r\n%s" % (len(PROBLEM), PROBLEM)
SILENT = b"silent"
"""No answer, and the line stays open."""


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSES_SECONDS", (0.0, 0.0))


@contextmanager
def server(*answers: bytes) -> Generator[tuple[str, list[str]]]:
    """An address that gives these answers, one for each connection, and the keys of the requests that came; without one it hangs up."""
    keys: list[str] = []
    kept: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for answer in answers:
                line, _ = listener.accept()
                text = line.recv(65536).decode()
                keys.extend(re.findall(r"(?i)^idempotency-key: (\S+)", text, re.MULTILINE))
                kept.append(line)
                if answer != SILENT:
                    line.sendall(answer)
                    line.close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", keys
        thread.join()
    for line in kept:
        line.close()


def test_a_broken_line_is_tried_again_under_the_same_name() -> None:
    with server(b"", b"", REFUSED) as (address, keys), Client(address) as client, pytest.raises(RequestRefused, match="no room"):
        client.submit(SUBMISSION)
    assert len(keys) == 3
    assert len(set(keys)) == 1
    assert re.fullmatch("[0-9a-f]{32}", keys[0])


def test_each_call_has_a_name_of_its_own_and_a_given_one_is_kept() -> None:
    with server(REFUSED, REFUSED, REFUSED) as (address, keys), Client(address) as client:
        for key in (None, None, "mine"):
            with pytest.raises(RequestRefused):
                client.submit(SUBMISSION, key)
    assert len(set(keys)) == 3
    assert keys[2] == "mine"


def test_a_submission_that_nobody_answered_may_be_stored_and_the_error_says_so() -> None:
    with server(b"", b"", b"") as (address, keys), Client(address) as client, pytest.raises(AnswerLost) as lost:
        client.submit(SUBMISSION)
    told = str(lost.value)
    assert "no service answers" not in told
    assert "the connection broke" in told
    assert f"The request may have been carried out; sent again with the Idempotency-Key {keys[0]} it is carried out once" in told


def test_a_service_that_takes_too_long_is_told_from_one_that_is_not_there() -> None:
    told = r"it took the request, and 0\.1 s passed\. The request may have been carried out"
    with (
        server(SILENT, SILENT, SILENT) as (address, keys),
        Client(address, timeout_seconds=0.1) as client,
        pytest.raises(AnswerLost, match=told),
    ):
        client.submit(SUBMISSION)
    assert len(set(keys)) == 1


def test_a_service_that_is_not_there_was_sent_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with Client(address) as client, pytest.raises(ServiceUnreachable, match=f"no service answers at {address}") as unreachable:
        client.submit(SUBMISSION)
    assert not isinstance(unreachable.value, AnswerLost)
