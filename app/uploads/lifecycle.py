r"""Attaches uploads to an application: its file readers, and the cleanup after dead processes."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated

import structlog
from fastapi import Depends, FastAPI, Request

from zetadp.app.access.caller import Caller, requires
from zetadp.app.access.scopes import Scope
from zetadp.app.kit.settings import Settings
from zetadp.app.storage.base import StorageUnavailable
from zetadp.app.uploads.data_sets import DataSetService
from zetadp.app.uploads.housekeeping import sweep
from zetadp.app.uploads.reader import Reader
from zetadp.app.uploads.receiving import Turns
from zetadp.app.uploads.service import UploadService
from zetadp.mechanisms.errors import InvalidParameter

_log = structlog.get_logger()


def _swept(app: FastAPI, settings: Settings) -> None:
    try:
        sweep(settings, app.state.database)
    except InvalidParameter as refusal:
        _log.error("storage_refused", reason=str(refusal))
        raise
    except StorageUnavailable as error:
        _log.warning("storage_unavailable", error=error.what)  # what is left is swept at a later start


@contextmanager
def attached(app: FastAPI, settings: Settings) -> Generator[None]:
    """For the application's lifespan, inside that of its database: sets ``reader`` and ``turns`` of ``app.state``."""
    app.state.preparation.do(lambda: _swept(app, settings))
    app.state.reader, app.state.turns = Reader(settings), Turns(settings)
    try:
        yield
    finally:
        app.state.reader.close()


def upload_service(request: Request, caller: Annotated[Caller, Depends(requires(Scope.SUBMIT))]) -> UploadService:
    """The uploads of the caller's tenant."""
    state = request.app.state
    return UploadService(state.settings, state.database, state.reader, caller.tenant)


def data_set_service(request: Request, caller: Annotated[Caller, Depends(requires(Scope.SUBMIT))]) -> DataSetService:
    """The data sets of the caller's tenant."""
    state = request.app.state
    return DataSetService(state.settings, state.database, state.reader, caller.tenant)


def turns(request: Request) -> Turns:
    """The turns for reading files."""
    found: Turns = request.app.state.turns
    return found
