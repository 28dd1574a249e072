r"""Sends webhooks: each change of a job's state, signed and repeated until the receiver has it.

Messages are written in the transaction that changes the state, so none is lost with a process. A sender claims a row by moving its due
time, so that two processes don't send it at the same moment. A receiver may still get a message twice if its answer was lost; then
``webhook-id`` is the same.

Headers, signature and secret are those of Standard Webhooks, so its libraries verify them: ``webhook-signature: v1,`` and the base64
HMAC-SHA256 of ``{webhook-id}.{webhook-timestamp}.{body}``. They also refuse old timestamps, so that nobody can replay an overheard message.
"""

from __future__ import annotations

import hmac
import http.client
import json
import socket
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Callable
from datetime import timedelta
from hashlib import sha256
from typing import Literal, Self, final

import structlog
from sqlalchemy import delete, select, update
from sqlalchemy.exc import SQLAlchemyError

from zetadp.app.jobs.destinations import Destination, DestinationRefused, Destinations
from zetadp.app.jobs.webhook_secrets import key_of
from zetadp.app.kit.database import Database, now
from zetadp.app.kit.settings import Settings
from zetadp.app.tables.jobs import DeliveryRow, JobEventRow, JobRow, WebhookRow
from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.version import VERSION

Tried = Literal["taken", "not_taken", "given_up"]
LOOK_SECONDS = 0.5
SEND_SECONDS = 10.0
CLAIM_SECONDS = 60.0
"""In case a process claims a row and dies before it has sent it."""
FIRST_RETRY_SECONDS = 5.0
LONGEST_RETRY_SECONDS = 6 * 3600.0
MOST_TRIES = 25
"""They take about four days."""
_log = structlog.get_logger()


@final
class Delivery(Value):
    """One change of state, ready to send."""

    job_id: str
    number: int
    tries: int
    url: str
    secret: str
    body: str

    @property
    def message_id(self) -> str:
        """The message's id, the same at every try. It holds no full stop, which delimits what is signed."""
        return f"msg_{self.job_id}_{self.number}"


def retry_seconds(tries: int) -> float:
    """The wait after this many tries.

    >>> [retry_seconds(tries) for tries in (1, 2, 3, 25)]
    [5.0, 10.0, 20.0, 21600.0]
    """
    return min(FIRST_RETRY_SECONDS * 2.0 ** (tries - 1), LONGEST_RETRY_SECONDS)


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """The signature, which a receiver computes as well and compares. Raises InvalidParameter for a secret of another form."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + b64encode(hmac.new(key_of(secret), signed, sha256).digest()).decode()


def _nobody(_outcome: Tried) -> None:
    pass


class NotTaken(Exception):
    """The receiver didn't answer with a 2xx status; the text says what happened instead, without anything that it sent."""


@final
class Deliveries:
    """Sends due messages in its own thread, and passes each try's outcome to ``tried``. A context manager."""

    def __init__(self, settings: Settings, database: Database, tried: Callable[[Tried], None] = _nobody) -> None:
        self._database = database
        self._tried = tried
        self._destinations = Destinations(settings)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="webhooks", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._closing.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._closing.wait(LOOK_SECONDS):
            try:
                while not self._closing.is_set() and (delivery := self.claimed()) is not None:
                    self.deliver(delivery)
            except SQLAlchemyError as error:
                _log.warning("database_unavailable", error=type(error).__name__)

    def claimed(self) -> Delivery | None:
        """The next due message, which no other process will send meanwhile; None if there is none."""
        moment = now()
        due = select(DeliveryRow).where(DeliveryRow.due <= moment).order_by(DeliveryRow.due, DeliveryRow.number).limit(1)
        with self._database.reading() as session:  # nearly always there is none, and the write lock is everyone's
            if session.scalar(due) is None:
                return None
        with self._database.writing() as session:
            row = session.scalar(due.with_for_update(skip_locked=True))
            if row is None:
                return None
            row.due = moment + timedelta(seconds=CLAIM_SECONDS)
            row.tries += 1
            webhook, job = session.get_one(WebhookRow, row.job_id), session.get_one(JobRow, row.job_id)
            event = session.get_one(JobEventRow, (row.job_id, row.number))
            body = {
                "type": "job.state",
                "timestamp": event.time.isoformat(),
                "data": {"job": row.job_id, "number": row.number, "attempt": event.attempt, "labels": job.labels, **event.data},
            }
            return Delivery(
                job_id=row.job_id, number=row.number, tries=row.tries, url=webhook.url, secret=webhook.secret, body=json.dumps(body)
            )

    def deliver(self, delivery: Delivery) -> None:
        """Send it, and record that it was accepted, or when to try again."""
        log = _log.bind(job=delivery.job_id, number=delivery.number, tries=delivery.tries)
        own = (DeliveryRow.job_id == delivery.job_id, DeliveryRow.number == delivery.number)
        try:
            send(self._destinations.resolved(delivery.url), delivery)
        except (InvalidParameter, DestinationRefused, NotTaken) as failure:
            given_up = delivery.tries >= MOST_TRIES
            outcome: Tried = "given_up" if given_up else "not_taken"
            log.warning("webhook_given_up" if given_up else "webhook_not_taken", reason=str(failure))
            again = now() + timedelta(seconds=retry_seconds(delivery.tries))
            change = delete(DeliveryRow).where(*own) if given_up else update(DeliveryRow).where(*own).values(due=again)
        else:
            outcome = "taken"
            log.info("webhook_taken")
            change = delete(DeliveryRow).where(*own)
        self._tried(outcome)
        with self._database.writing() as session:
            session.execute(change)


def send(destination: Destination, delivery: Delivery) -> None:
    """One try. Redirects aren't followed: they could lead anywhere. Raises NotTaken, or InvalidParameter as ``signature``."""
    body, timestamp = delivery.body.encode(), int(time.time())
    headers = {
        "host": destination.host if destination.port in (80, 443) else f"{destination.host}:{destination.port}",
        "content-type": "application/json",
        "user-agent": f"zetadp/{VERSION}",
        "webhook-id": delivery.message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature(delivery.secret, delivery.message_id, timestamp, body),
    }
    connection = _Connection(destination)
    try:
        connection.request("POST", destination.target, body, headers)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        raise NotTaken(type(error).__name__) from None
    finally:
        connection.close()
    if not 200 <= status < 300:
        raise NotTaken(f"HTTP status {status}")


@final
class _Connection(http.client.HTTPConnection):
    """Connects to the checked address, whatever the name resolves to by now; the certificate must be valid for the name."""

    def __init__(self, destination: Destination) -> None:
        super().__init__(destination.host, destination.port, timeout=SEND_SECONDS)
        self._destination = destination

    def connect(self) -> None:
        self.sock = socket.create_connection((self._destination.address, self._destination.port), SEND_SECONDS)
        if self._destination.is_https:
            self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=self._destination.host)
