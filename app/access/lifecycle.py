r"""Attaches access control to an application: keys and audit log exist from start to end."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from fastapi import FastAPI, Request

from zetadp.app.access.audit_log import AuditLog, local_event
from zetadp.app.access.service import KeyService
from zetadp.app.kit.key_text import KeyText
from zetadp.app.kit.settings import Settings
from zetadp.app.tables.tenants import DEFAULT_TENANT


@contextmanager
def attached(app: FastAPI, settings: Settings) -> Generator[None]:
    """For the application's lifespan, inside that of its database: sets ``keys`` and ``audit`` of ``app.state``."""
    keys, audit = KeyService(app.state.database), AuditLog(app.state.database)
    app.state.keys, app.state.audit = keys, audit

    def adopt() -> None:
        given = None if settings.admin_key is None else KeyText.read(settings.admin_key.get_secret_value())
        if given is not None and keys.adopt(given.text):
            audit.record(local_event(DEFAULT_TENANT, given.id, "key of ZETADP_ADMIN_KEY stored", given.id))

    try:
        app.state.preparation.do(adopt)
        yield
    finally:
        audit.close()


def key_service(request: Request) -> KeyService:
    """The keys of the application that serves this request."""
    found: KeyService = request.app.state.keys
    return found


def audit_log(request: Request) -> AuditLog:
    """Its audit log."""
    found: AuditLog = request.app.state.audit
    return found
