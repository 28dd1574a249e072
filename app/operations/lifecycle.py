r"""Attaches operations to an application."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import cast

from fastapi import FastAPI

from zetadp.app.certificates.errors import SigningKeyUnusable
from zetadp.app.certificates.signing.keys import jwks
from zetadp.app.kit.settings import Settings
from zetadp.app.operations.figures import Figures
from zetadp.app.operations.metrics import Metrics
from zetadp.app.operations.readiness import ReadinessChecks
from zetadp.app.operations.retention import Housekeeper, Retention
from zetadp.app.storage.opening import storage_of


@contextmanager
def attached(app: FastAPI, settings: Settings) -> Generator[None]:
    """For the application's lifespan, inside those of its database and its audit log."""
    if storage_of(settings).is_elsewhere:
        with suppress(SigningKeyUnusable):  # which the readiness says
            jwks(settings)  # makes the first signing key: workers of other machines get a copy of it before they can start
    app.state.readiness = ReadinessChecks(settings, app.state.database)
    metrics, figures = cast("Metrics", app.state.metrics), Figures(settings, app.state.database, app.state.audit)
    metrics.add(figures)
    try:
        with Housekeeper(Retention(settings, app.state.database, app.state.queue), app.state.database):
            yield
    finally:
        metrics.remove(figures)
