r"""Delivers webhooks: each change of a job's state, repeated until the receiver has it.

Messages are written in the transaction that changes the state, so none is lost with a process. A sender claims a row by moving its due
time, so that two processes don't send it at the same moment: a claim lasts longer than its sender may try. A receiver may still get a
message twice if its answer was lost; then ``webhook-id`` is the same.

Several messages are in hand at once, each in a thread of its own. A tenant, and each receiver of a tenant, has a limited share of them, so
whoever is slow delays nobody else: other messages that are due go first. Of one job a process has one in hand, so that they usually arrive
in order; ``number`` tells the order for certain.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Literal, Self, final

import structlog
from sqlalchemy import Select, delete, select, tuple_, update
from sqlalchemy.exc import SQLAlchemyError

from zetadp.app.jobs.leases import database_time
from zetadp.app.jobs.webhooks.destinations import DestinationRefused, Destinations
from zetadp.app.jobs.webhooks.sending import Delivery, NotTaken, send
from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings
from zetadp.app.tables.jobs import DeliveryRow, JobEventRow, JobRow, WebhookRow
from zetadp.mechanisms.errors import InvalidParameter

Tried = Literal["taken", "not_taken", "given_up"]
LOOK_SECONDS = 0.5
SEND_SECONDS = 10.0
"""How long one try may take in all, from the claim to the head of the answer."""
CLAIM_SECONDS = 60.0
"""How long a row is its sender's. Much longer than a try, since the clock of another process may run differently."""
MOST_IN_HAND = 64
MOST_OF_TENANT = 8
MOST_OF_RECEIVER = 4
"""The most messages in hand at once: in one process, of one tenant, and of one tenant to one host."""
CLOSING_SECONDS = 2.0
"""How long closing waits for what is in hand; the rest is sent again by whoever comes after the claim."""
FIRST_RETRY_SECONDS = 5.0
LONGEST_RETRY_SECONDS = 6 * 3600.0
MOST_TRIES = 25
"""They take about four days."""
_log = structlog.get_logger()


def retry_seconds(tries: int) -> float:
    """The wait after this many tries.

    >>> [retry_seconds(tries) for tries in (1, 2, 3, 25)]
    [5.0, 10.0, 20.0, 21600.0]
    """
    return min(FIRST_RETRY_SECONDS * 2.0 ** (tries - 1), LONGEST_RETRY_SECONDS)


def _nobody(_outcome: Tried) -> None:
    pass


@final
class Deliveries:
    """Sends due messages in threads of its own, and passes each try's outcome to ``tried``. A context manager."""

    def __init__(self, settings: Settings, database: Database, tried: Callable[[Tried], None] = _nobody) -> None:
        self._database = database
        self._tried = tried
        self._destinations = Destinations(settings)
        self._in_hand = _InHand()
        self._look, self._closing = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="webhooks", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._closing.set()
        self._look.set()
        self._thread.join()
        self._in_hand.wait(CLOSING_SECONDS)

    def _work(self) -> None:
        while not self._closing.is_set():
            try:
                while not self._closing.is_set() and (delivery := self.claimed()) is not None:
                    self._in_hand.add(delivery)
                    threading.Thread(target=self._deliver, args=(delivery,), name="webhook", daemon=True).start()
            except SQLAlchemyError as error:
                _log.warning("database_unavailable", error=type(error).__name__)
            except Exception:  # whatever it is, the other messages wait for this thread
                _log.exception("webhooks_failed")
            self._look.wait(LOOK_SECONDS)
            self._look.clear()

    def _deliver(self, delivery: Delivery) -> None:
        try:
            self.deliver(delivery)
        except SQLAlchemyError as error:
            _log.warning("database_unavailable", error=type(error).__name__)  # it is due again after the claim
        except Exception:
            _log.exception("webhooks_failed")
        finally:
            self._in_hand.remove(delivery)
            self._look.set()

    def claimed(self) -> Delivery | None:
        """The next due message with room for it, which no other process will send meanwhile; None if there is none."""
        if self._in_hand.is_full:
            return None
        with self._database.reading() as session:  # nearly always there is none, and the write lock is everyone's
            if session.execute(self._due(database_time(session))).first() is None:
                return None
        with self._database.writing() as session:
            # As late as that: waiting for the lock takes nothing from the claim.
            moment, deadline = database_time(session), time.monotonic() + SEND_SECONDS
            found = session.execute(self._due(moment).with_for_update(of=DeliveryRow, skip_locked=True)).first()
            if found is None:
                return None
            row, webhook, job = found
            row.due = moment + timedelta(seconds=CLAIM_SECONDS)
            row.tries += 1
            event = session.get_one(JobEventRow, (row.job_id, row.number))
            body = {
                "type": "job.state",
                "timestamp": event.time.isoformat(),
                "data": {"job": row.job_id, "number": row.number, "attempt": event.attempt, "labels": job.labels, **event.data},
            }
            return Delivery(
                job_id=row.job_id,
                number=row.number,
                tenant=job.tenant,
                host=webhook.host,
                tries=row.tries,
                url=webhook.url,
                secret=webhook.secret,
                body=json.dumps(body),
                deadline=deadline,
            )

    def _due(self, moment: datetime) -> Select[DeliveryRow, WebhookRow, JobRow]:
        query = (
            select(DeliveryRow, WebhookRow, JobRow)
            .join(WebhookRow, WebhookRow.job_id == DeliveryRow.job_id)
            .join(JobRow, JobRow.id == DeliveryRow.job_id)
            .where(DeliveryRow.due <= moment, DeliveryRow.job_id.not_in(self._in_hand.jobs()))
        )
        if tenants := self._in_hand.full_tenants():
            query = query.where(JobRow.tenant.not_in(tenants))
        if receivers := self._in_hand.full_receivers():
            query = query.where(tuple_(JobRow.tenant, WebhookRow.host).not_in(receivers))
        return query.order_by(DeliveryRow.due, DeliveryRow.number).limit(1)

    def deliver(self, delivery: Delivery) -> None:
        """Send it, and record that it was accepted, or when to try again."""
        log = _log.bind(job=delivery.job_id, number=delivery.number, tries=delivery.tries)
        is_over = True
        outcome: Tried = "taken"
        try:
            send(self._destinations, delivery)
        except (InvalidParameter, DestinationRefused, NotTaken) as failure:
            is_over = delivery.tries >= MOST_TRIES
            outcome = "given_up" if is_over else "not_taken"
            log.warning("webhook_given_up" if is_over else "webhook_not_taken", reason=str(failure))
        else:
            log.info("webhook_taken")
        self._tried(outcome)
        own = (DeliveryRow.job_id == delivery.job_id, DeliveryRow.number == delivery.number)
        with self._database.writing() as session:
            if is_over:
                session.execute(delete(DeliveryRow).where(*own))
                return
            again = database_time(session) + timedelta(seconds=retry_seconds(delivery.tries))
            # Unless the claim ran out and another has it now: its number of tries is higher.
            session.execute(update(DeliveryRow).where(*own, DeliveryRow.tries == delivery.tries).values(due=again))


@final
class _InHand:
    """The messages that are being sent, by job, tenant and receiver."""

    def __init__(self) -> None:
        self._jobs: set[str] = set()
        self._tenants: Counter[str] = Counter()
        self._receivers: Counter[tuple[str, str]] = Counter()
        self._changed = threading.Condition()

    @property
    def is_full(self) -> bool:
        with self._changed:
            return len(self._jobs) >= MOST_IN_HAND

    def jobs(self) -> list[str]:
        """The jobs of all of them; each has one."""
        with self._changed:
            return list(self._jobs)

    def full_tenants(self) -> list[str]:
        """The tenants that have their share."""
        with self._changed:
            return [tenant for tenant, count in self._tenants.items() if count >= MOST_OF_TENANT]

    def full_receivers(self) -> list[tuple[str, str]]:
        """The tenants' hosts that have theirs."""
        with self._changed:
            return [receiver for receiver, count in self._receivers.items() if count >= MOST_OF_RECEIVER]

    def add(self, delivery: Delivery) -> None:
        with self._changed:
            self._jobs.add(delivery.job_id)
            self._tenants[delivery.tenant] += 1
            self._receivers[delivery.tenant, delivery.host] += 1

    def remove(self, delivery: Delivery) -> None:
        with self._changed:
            self._jobs.remove(delivery.job_id)
            self._tenants -= Counter([delivery.tenant])
            self._receivers -= Counter([(delivery.tenant, delivery.host)])
            self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        """Wait until there is none, at most this long."""
        with self._changed:
            self._changed.wait_for(lambda: not self._jobs, seconds)
