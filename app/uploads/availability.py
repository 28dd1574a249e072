r"""Whether a tenant's job may train on a data set. Another tenant's id, a deleted one and an invented one all get the same answer."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings
from zetadp.app.tables.uploads import DataSetRow
from zetadp.app.uploads.storage import data_set_folder
from zetadp.trainer.data import DataSpec, Uploaded
from zetadp.trainer.data.uploaded import Finder, unknown

READY = "ready"


def finder_of(settings: Settings, database: Database, tenant: str) -> Finder:
    """Finds a tenant's data sets; it finds nothing of other tenants."""

    def find(data_set: str) -> Path:
        with database.reading() as session:
            if session.scalar(_ready(tenant, data_set)) is None:
                raise unknown(data_set)
        return data_set_folder(settings, data_set)

    return find


def claim(session: Session, tenant: str, data: DataSpec) -> None:
    """Locks an uploaded data set's row, so that it can't be deleted before this transaction has stored the job that needs it.

    Raises:
      InvalidParameter: the tenant has no such data set, or no longer has it.
    """
    if isinstance(data, Uploaded) and session.scalar(_ready(tenant, data.data_set).with_for_update()) is None:
        raise unknown(data.data_set)


def is_there(session: Session, tenant: str, data: DataSpec) -> bool:
    """Whether earlier training data still exist, locked as by ``claim``."""
    return not isinstance(data, Uploaded) or session.scalar(_ready(tenant, data.data_set).with_for_update()) is not None


def _ready(tenant: str, data_set: str):
    return select(DataSetRow.id).where(DataSetRow.id == data_set, DataSetRow.tenant == tenant, DataSetRow.state == READY)
