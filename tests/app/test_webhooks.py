r"""Webhooks: signed, repeated until they are taken, once each, and never into a private network."""

from __future__ import annotations

import hmac
import http.server
import json
import socket
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select, update

from tests.app.jobs_harness import AUTHORIZED, Submission, settings, spec, wait_until
from tests.selection import thinned
from zetadp.app.jobs.webhooks.deliveries import MOST_TRIES, Deliveries
from zetadp.app.jobs.webhooks.destinations import DestinationRefused, Destinations
from zetadp.app.jobs.webhooks.secrets import key_of
from zetadp.app.kit.database import now
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app
from zetadp.app.tables.jobs import DeliveryRow
from zetadp.mechanisms.errors import InvalidParameter

KEY = bytes(range(32))
SECRET = "whsec_" + b64encode(KEY).decode()


@dataclass
class Receiver:
    """An HTTP server of the test; it answers with ``statuses``, then with 204."""

    url: str = ""
    statuses: list[int] = field(default_factory=list[int])
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list[tuple[dict[str, str], bytes]])


@pytest.fixture
def receiver() -> Generator[Receiver]:
    receiver = Receiver()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.got.append((dict(self.headers), body))
            self.send_response(receiver.statuses.pop(0) if receiver.statuses else 204)
            self.send_header("location", "http://127.0.0.1:1/")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the library's name)
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        receiver.url = f"http://127.0.0.1:{server.server_address[1]}/hook?x=1"
        yield receiver
        server.shutdown()
        thread.join()


@pytest.fixture
def client(tmp_path: Path) -> Generator[TestClient]:
    with TestClient(create_app(settings(tmp_path)), base_url="http://localhost", headers=AUTHORIZED) as client:
        yield client


def submitted(client: TestClient, url: str) -> Submission:
    answer = client.post("/v1/jobs", json={"spec": spec(), "labels": {"a": "b"}, "webhook": {"url": url, "secret": SECRET}})
    assert answer.status_code == 202, answer.text
    return answer.json()


def outstanding(client: TestClient) -> list[DeliveryRow]:
    with client.app.state.database.reading() as session:  # pyright: ignore[reportFunctionMemberAccess]
        return list(session.scalars(select(DeliveryRow)))


def make_due(client: TestClient) -> None:
    with client.app.state.database.writing() as session:  # pyright: ignore[reportFunctionMemberAccess]
        session.execute(update(DeliveryRow).values(due=now()))


def test_each_change_of_state_is_told_once_signed_with_the_secret(client: TestClient, receiver: Receiver) -> None:
    job = submitted(client, receiver.url)
    client.post(f"/v1/jobs/{job['id']}/cancel")
    wait_until(lambda: len(receiver.got) == 2 and not outstanding(client))
    bodies = [json.loads(body) for _, body in receiver.got]
    assert [(body["type"], body["data"]["job"], body["data"]["state"]) for body in bodies] == [
        ("job.state", job["id"], "preparing"),
        ("job.state", job["id"], "cancelled"),
    ]
    for headers, body in receiver.got:
        sent = {name.lower(): value for name, value in headers.items()}
        signed = f"{sent['webhook-id']}.{sent['webhook-timestamp']}.".encode() + body
        version, _, mac = sent["webhook-signature"].partition(",")
        assert (version, b64decode(mac)) == ("v1", hmac.digest(KEY, signed, "sha256"))
        assert abs(int(sent["webhook-timestamp"]) - time.time()) < 60
    assert [headers["webhook-id"] for headers, _ in receiver.got] == [f"msg_{job['id']}_{body['data']['number']}" for body in bodies]


def test_the_library_of_standard_webhooks_verifies_what_is_sent_and_nothing_else(client: TestClient, receiver: Receiver) -> None:
    library = pytest.importorskip("standardwebhooks.webhooks", reason="the receivers' library isn't installed")
    job = submitted(client, receiver.url)
    wait_until(lambda: len(receiver.got) == 1 and not outstanding(client))
    headers, body = receiver.got[0]
    verifier = library.Webhook(SECRET)
    assert verifier.verify(body, headers)["data"]["job"] == job["id"]
    others = [
        (library.Webhook("whsec_" + b64encode(bytes(32)).decode()), body, headers),
        (verifier, body + b" ", headers),
        (verifier, body, headers | {"webhook-id": headers["webhook-id"] + "0"}),
        (verifier, body, headers | {"webhook-timestamp": str(int(headers["webhook-timestamp"]) + 1)}),
    ]
    for other, changed, under in others:
        with pytest.raises(library.WebhookVerificationError, match="No matching signature found"):
            other.verify(changed, under)


@pytest.mark.parametrize("length", thinned(range(80), every=4))
def test_a_secret_is_the_base64_of_24_to_64_bytes(length: int) -> None:
    text = "whsec_" + b64encode(bytes(range(length))).decode()
    if 24 <= length <= 64:
        assert key_of(text) == bytes(range(length))
        return
    with pytest.raises(InvalidParameter, match="whsec_ and the base64 of 24 to 64 bytes, got 'a text of"):
        key_of(text)


@pytest.mark.parametrize(
    "text", [SECRET.removeprefix("whsec_"), SECRET[:-1], SECRET + "\n", SECRET.replace("A", "-", 1), SECRET[:-2] + "9="]
)
def test_a_secret_of_another_form_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        key_of(text)
    assert text.strip() not in str(refused.value)


@pytest.mark.parametrize("secret", ["a-plain-secret-of-the-old-form", 10 * SECRET])
def test_a_refused_secret_is_not_in_the_answer(client: TestClient, secret: str) -> None:
    answer = client.post("/v1/jobs", json={"spec": spec(), "webhook": {"url": "http://127.0.0.1:1/", "secret": secret}})
    assert answer.status_code == 422
    assert "webhook.secret: must be whsec_ and the base64 of 24 to 64 bytes, got 'a text of" in answer.json()["detail"]
    assert secret[:16] not in answer.text


def test_what_is_not_taken_is_sent_again_under_the_same_id(client: TestClient, receiver: Receiver) -> None:
    receiver.statuses = [500, 302]
    submitted(client, receiver.url)
    for tries in (1, 2):
        wait_until(lambda tries=tries: len(receiver.got) == tries and outstanding(client)[0].tries == tries)
        make_due(client)
    wait_until(lambda: not outstanding(client))
    assert len({headers["webhook-id"] for headers, _ in receiver.got}) == 1
    assert len(receiver.got) == 3


def test_what_nobody_takes_is_given_up_in_the_end(client: TestClient) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        submitted(client, f"http://127.0.0.1:{taken.getsockname()[1]}/")
        wait_until(lambda: (rows := outstanding(client)) != [] and rows[0].tries == 1)
        with client.app.state.database.writing() as session:  # pyright: ignore[reportFunctionMemberAccess]
            session.execute(update(DeliveryRow).values(due=now(), tries=MOST_TRIES - 1))
        wait_until(lambda: outstanding(client) == [])


def test_what_many_claim_one_sends(client: TestClient, receiver: Receiver, tmp_path: Path) -> None:
    senders = Deliveries(settings(tmp_path), client.app.state.database)  # pyright: ignore[reportFunctionMemberAccess]
    receiver.statuses = [500]
    submitted(client, receiver.url)
    wait_until(lambda: len(receiver.got) == 1 and outstanding(client)[0].due > now())
    make_due(client)
    with ThreadPoolExecutor(6) as pool:
        claims = list(pool.map(lambda _: senders.claimed(), range(6)))
    # The service's own sender takes part; whoever is second finds nothing.
    assert len([claim for claim in claims if claim is not None]) + len(receiver.got) - 1 <= 1


def test_secret_is_never_shown(client: TestClient, receiver: Receiver) -> None:
    job = submitted(client, receiver.url)
    shown = client.get(f"/v1/jobs/{job['id']}").text + client.get("/v1/jobs").text + json.dumps(job)
    assert SECRET not in shown


@pytest.mark.parametrize(
    "url",
    thinned(
        [
            "http://example.org/",
            "https://127.0.0.1/",
            "https://localhost/",
            "https://10.1.2.3/",
            "https://[::1]/",
            "https://[::ffff:10.0.0.1]/",
            "https://169.254.169.254/latest/meta-data",
            "https://[fd00::1]/",
            "https://0.0.0.0/",
            "https://2130706433/",
            "https://127.1/",
        ],
        every=4,
    ),
)
def test_private_addresses_and_plain_http_are_refused_by_a_service_of_a_network(url: str) -> None:
    of = Destinations(Settings(host="0.0.0.0"))
    with pytest.raises((InvalidParameter, DestinationRefused)):
        of.resolved(url)


def test_name_that_leads_into_the_network_is_refused_when_it_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def leads_to(*addresses: str) -> None:
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 443)) for address in addresses]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_named: found)

    of = Destinations(Settings(host="0.0.0.0", webhook_hosts="inside.example.org"))
    leads_to("93.184.216.34", "192.168.0.1")
    with pytest.raises(DestinationRefused, match="private address"):
        of.resolved("https://outside.example.org/")
    assert of.resolved("http://inside.example.org/").address == "93.184.216.34"
    leads_to("93.184.216.34")
    found = of.resolved("https://outside.example.org:8443/a?b=c")
    assert (found.address, found.host, found.port, found.target) == ("93.184.216.34", "outside.example.org", 8443, "/a?b=c")
