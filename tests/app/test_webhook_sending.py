r"""Receivers that are slow, mute or somebody else: each try ends in time, and delays nobody else's messages."""

from __future__ import annotations

import datetime
import functools
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import select, update

from tests.app.access_harness import made, shown
from tests.app.jobs_harness import settings, spec, wait_until
from tests.selection import thinned
from zetadp.app.jobs.webhooks import deliveries, sending
from zetadp.app.jobs.webhooks.deliveries import CLAIM_SECONDS, SEND_SECONDS, Deliveries
from zetadp.app.jobs.webhooks.destinations import Destinations
from zetadp.app.jobs.webhooks.sending import Delivery, NotTaken, send
from zetadp.app.kit.database import Database, now
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app
from zetadp.app.tables.jobs import DeliveryRow

SECRET = "whsec_" + 8 * "AAAB"
TRY_SECONDS = 0.5
ANSWER = b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n"

Answering = Callable[[socket.socket], None]


class Receiver:
    """A server that treats each connection as told, in a thread of its own."""

    def __init__(self, answering: Answering) -> None:
        self._answering = answering
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.connections: list[socket.socket] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections.append(connection)
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with suppress(OSError):
            self._answering(connection)

    def close(self) -> None:
        for each in (self._listener, *self.connections):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        for each in (self._listener, *self.connections):
            each.close()


def mute(_connection: socket.socket) -> None:
    """Takes everything and never answers."""


def drip(content: bytes, connection: socket.socket) -> None:
    """One byte at a time, each well before any timeout of a single read."""
    for byte in content:
        connection.sendall(bytes([byte]))
        time.sleep(TRY_SECONDS / 4)


def take(connection: socket.socket) -> None:
    """Reads the request and accepts it."""
    got = b""
    while b"\r\n\r\n" not in got:
        got += connection.recv(65536)
    connection.sendall(ANSWER)


@contextmanager
def receiving(answering: Answering) -> Generator[Receiver]:
    receiver = Receiver(answering)
    try:
        yield receiver
    finally:
        receiver.close()


def delivery(url: str, seconds: float = TRY_SECONDS) -> Delivery:
    return Delivery(
        job_id="j", number=1, tenant="t", host="h", tries=1, url=url, secret=SECRET, body="{}", deadline=time.monotonic() + seconds
    )


@pytest.mark.parametrize(
    ("scheme", "answering"),
    thinned(
        [
            ("http", mute),
            ("https", mute),
            ("http", functools.partial(drip, ANSWER)),
            ("http", functools.partial(drip, b"HTTP/1.1 100 Continue\r\n\r\n" * 100)),
            ("https", functools.partial(drip, b"\x16\x03\x03\x40\x00\x02" + bytes(100))),
        ],
        every=4,
    ),
    ids=["mute", "mute handshake", "head byte by byte", "endless interim answers", "handshake byte by byte"],
)
def test_a_try_is_over_at_its_deadline_whatever_the_receiver_does(scheme: str, answering: Answering) -> None:
    with receiving(answering) as receiver:
        begun = time.monotonic()
        with pytest.raises(NotTaken, match="it didn't answer in time"):
            send(Destinations(Settings()), delivery(f"{scheme}://127.0.0.1:{receiver.port}/"))
        assert time.monotonic() - begun >= TRY_SECONDS
        wait_until(lambda: len(receiver.connections) == 1)


def test_nothing_is_sent_where_the_name_took_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    look_up = socket.getaddrinfo

    def slow(*arguments: object, **named: object) -> object:
        time.sleep(0.1)
        return look_up(*arguments, **named)  # pyright: ignore[reportArgumentType, reportCallIssue]

    with receiving(take) as receiver:
        monkeypatch.setattr(socket, "getaddrinfo", slow)
        with pytest.raises(NotTaken, match="finding its host's address took too long"):
            send(Destinations(Settings()), delivery(f"http://localhost:{receiver.port}/", seconds=0.05))
        assert receiver.connections == []


def test_a_body_is_not_waited_for() -> None:
    def endless(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")

    with receiving(endless) as receiver:
        send(Destinations(Settings()), delivery(f"http://127.0.0.1:{receiver.port}/", seconds=60.0))


def test_the_certificate_must_be_valid_for_the_name_though_the_address_is_connected_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certify(tmp_path, "receiver.test")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(tmp_path / "certificate.pem", tmp_path / "key.pem")
    monkeypatch.setattr(sending, "_authorities", lambda: ssl.create_default_context(cafile=tmp_path / "certificate.pem"))
    local = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_named: local)
    named: list[str | None] = []
    secured: list[ssl.SSLSocket] = []

    def answer(connection: socket.socket) -> None:
        secured.append(server.wrap_socket(connection, server_side=True))
        take(secured[-1])

    server.sni_callback = lambda _socket, name, _context: named.append(name)
    of = Destinations(Settings(webhook_hosts="receiver.test,other.test"))
    with receiving(answer) as receiver:
        send(of, delivery(f"https://receiver.test:{receiver.port}/", seconds=60.0))
        with pytest.raises(NotTaken, match="SSLCertVerificationError"):
            send(of, delivery(f"https://other.test:{receiver.port}/", seconds=60.0))
        assert named == ["receiver.test", "other.test"]
        for each in secured:
            each.close()


def certify(folder: Path, name: str) -> None:
    """A certificate for this name, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    moment = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - datetime.timedelta(days=1))
        .not_valid_after(moment + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(key.private_bytes(*form))


def submitted(client: TestClient, url: str, headers: dict[str, str]) -> str:
    answer = client.post("/v1/jobs", json={"spec": spec(), "webhook": {"url": url, "secret": SECRET}}, headers=headers)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def database_of(client: TestClient) -> Database:
    app = client.app
    assert isinstance(app, FastAPI)
    found = app.state.database
    assert isinstance(found, Database)
    return found


def tries(client: TestClient) -> dict[str, int]:
    """The tries of every message that isn't delivered, by job."""
    with database_of(client).reading() as session:
        return {row.job_id: row.tries for row in session.scalars(select(DeliveryRow))}


@pytest.mark.slow
def test_slow_receivers_delay_neither_other_receivers_nor_other_tenants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "MOST_OF_TENANT", 3)
    monkeypatch.setattr(deliveries, "MOST_OF_RECEIVER", 2)
    monkeypatch.setattr(deliveries, "SEND_SECONDS", 600.0)  # until they are closed
    of = settings(tmp_path)
    with ExitStack() as stack:
        client = stack.enter_context(TestClient(create_app(of), base_url="http://localhost"))
        first, second = (shown(made(of, tenant)) for tenant in ("clinic-a", "clinic-b"))
        slow, good = stack.enter_context(receiving(mute)), stack.enter_context(receiving(take))
        held = [submitted(client, f"http://127.0.0.1:{slow.port}/", first) for _ in range(4)]
        wait_until(lambda: len(slow.connections) == 2)  # the receiver's share: two wait
        quick = submitted(client, f"http://localhost:{good.port}/", first)
        wait_until(lambda: quick not in tries(client))
        held.append(submitted(client, f"http://localhost:{slow.port}/", first))
        wait_until(lambda: len(slow.connections) == 3)  # the tenant's share
        waiting = submitted(client, f"http://localhost:{good.port}/", first)
        other = submitted(client, f"http://127.0.0.1:{good.port}/", second)
        wait_until(lambda: other not in tries(client))
        left = tries(client)
        assert [left[job] for job in (*held, waiting)] == [1, 1, 0, 0, 1, 0]
        assert len(slow.connections) == 3
        slow.close()
        wait_until(lambda: waiting not in tries(client))


def test_a_claim_outlasts_its_try_by_far() -> None:
    assert CLAIM_SECONDS >= 5 * SEND_SECONDS


def test_sender_whose_claim_ran_out_does_not_postpone_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries.Deliveries, "__enter__", lambda self: self)
    monkeypatch.setattr(deliveries.Deliveries, "__exit__", lambda *_: None)
    of = settings(tmp_path)
    with TestClient(create_app(of), base_url="http://localhost") as client, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        database = database_of(client)
        submitted(client, f"http://127.0.0.1:{taken.getsockname()[1]}/", shown(made(of, "clinic-a")))
        senders = Deliveries(of, database), Deliveries(of, database)
        late = senders[0].claimed()
        assert late is not None
        assert senders[1].claimed() is None
        with database.writing() as session:
            session.execute(update(DeliveryRow).values(due=now()))  # as if a minute had gone
        again = senders[1].claimed()
        assert again is not None
        with database.reading() as session:
            due = session.scalar(select(DeliveryRow.due))
        senders[0].deliver(late)
        with database.reading() as session:
            assert session.scalar(select(DeliveryRow.due)) == due
        senders[1].deliver(again)
        with database.reading() as session:
            assert session.scalar(select(DeliveryRow.due)) != due
