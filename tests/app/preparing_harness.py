r"""Preparing jobs in the tests: with the real code, and without the seconds that a process of its own takes to load it."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from uuid import uuid4

from pydantic import ValidationError

from tests.app import fake_preparer
from zetadp.app.jobs.leases import Executor, Leases
from zetadp.app.jobs.preparations import Preparation, Preparations
from zetadp.app.kit.database import Database
from zetadp.app.kit.errors import ServiceError
from zetadp.app.worker.preparer import Prepared, PreparingRequest, prepared
from zetadp.mechanisms.errors import PrivacyError
from zetadp.trainer.data.uploaded import found_by, found_in

MAXIMUM_DEATHS = 3


def prepare_all(database: Database, uploaded: Path | None = None) -> None:
    """Prepare every job that waits for it, here and now, as a worker would; ``uploaded``: the folder of uploaded data sets."""
    leases, preparations = Leases(database, MAXIMUM_DEATHS), Preparations(database, MAXIMUM_DEATHS)
    lease = Executor(id=f"preparer-{uuid4().hex[:8]}", host="here", device="auto", hardware="none", lease_seconds=60.0)
    token = leases.take(lease)
    try:
        while (preparation := preparations.start_next(token)) is not None:
            with nullcontext() if uploaded is None else found_by(found_in(uploaded)):
                _finish(preparations, preparation)
    finally:
        leases.give_up(token)


def _finish(preparations: Preparations, preparation: Preparation) -> None:
    found = prepared(request_of(preparation))
    if found.plan is None:
        preparations.fail(preparation, found.refused or "")
        return
    try:
        preparations.queue(preparation, found.plan, found.price)
    except (PrivacyError, ServiceError) as refusal:
        preparations.fail(preparation, str(refusal))


def request_of(preparation: Preparation) -> PreparingRequest:
    """What a worker asks for this preparation."""
    ledger = None if preparation.ledger is None else preparation.ledger[1]
    return PreparingRequest(spec=preparation.asked.spec, ledger=ledger, pricing_seconds=10.0, facts_dir=None)


def preparing_here(uploaded: Path) -> Callable[[], list[str]]:
    """The command of a process that has its answers computed by a thread of this one, which has loaded everything."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("")  # a name of its own, outside the file system
    listener.listen()
    name = bytes(listener.getsockname())

    def serve() -> None:
        while True:
            connection, _ = listener.accept()
            # Who asked may be gone, in the middle of its question or before the answer: a worker ends it when its job is cancelled.
            with suppress(OSError, ValidationError), connection, connection.makefile("rwb") as stream, found_by(found_in(uploaded)):
                stream.write(_answer(stream.read()).model_dump_json().encode())

    threading.Thread(target=serve, name="prepares", daemon=True).start()
    return lambda: [sys.executable, "-S", "-E", fake_preparer.__file__, str(os.getpid()), name.hex()]


def _answer(request: bytes) -> Prepared:
    return prepared(PreparingRequest.model_validate_json(request))
