r"""Whether a tenant's job may train on a data set. Another tenant's id, a deleted one and an invented one all get the same answer."""

from __future__ import annotations

import secrets
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings
from zetadp.app.storage.base import ObjectMissing
from zetadp.app.storage.opening import storage_of
from zetadp.app.tables.uploads import DataSetRow
from zetadp.app.uploads.storage import data_set_prefix, private_folder
from zetadp.trainer.data import DataSetFacts, DataSpec, Uploaded
from zetadp.trainer.data.uploaded import DESCRIPTION_FILE, Finder, StoredDataSet, unknown

READY = "ready"


def finder_of(settings: Settings, database: Database, tenant: str) -> Finder:
    """Finds a tenant's data sets; it finds nothing of other tenants.

    With a storage elsewhere, a folder found has the description alone, which is all that a plan needs. Looking raises StorageUnavailable.
    """

    def find(data_set: str) -> Path:
        with database.reading() as session:
            if session.scalar(_ready(tenant, data_set)) is None:
                raise unknown(data_set)
        return described(settings, data_set)

    return find


def facts_of(session: Session, tenant: str, data: DataSpec) -> DataSetFacts | None:
    """What is known of a tenant's uploaded data set; None for a data set of another kind. Raises InvalidParameter as ``claim``."""
    if not isinstance(data, Uploaded):
        return None
    if (stored := session.scalar(_ready(tenant, data.data_set).with_only_columns(DataSetRow.stored))) is None:
        raise unknown(data.data_set)
    return StoredDataSet.model_validate_json(stored).facts


def described(settings: Settings, data_set: str) -> Path:
    """The folder of a data set, at least with its description. Raises InvalidParameter, StorageUnavailable."""
    folder = settings.made_data_sets_dir / data_set
    if storage_of(settings).is_elsewhere and not (folder / DESCRIPTION_FILE).exists():
        private_folder(folder)
        _laid_out(settings, data_set, folder, DESCRIPTION_FILE)
    return folder


def at_hand(settings: Settings, data_set: str, folder: Path) -> Path:
    r"""The folder with the folder of this data set, to train on: a copy in ``folder`` where the storage is elsewhere.

    Raises:
      InvalidParameter: it is gone.
      ObjectDamaged, StorageUnavailable: it can't be read.
    """
    described(settings, data_set)  # for its certificate
    storage, prefix = storage_of(settings), data_set_prefix(data_set)
    if not storage.is_elsewhere:
        return settings.made_data_sets_dir
    own = private_folder(folder / data_set)
    for name in storage.store.names(prefix):
        if not (own / name).exists():
            _laid_out(settings, data_set, own, name)
    return folder


def _laid_out(settings: Settings, data_set: str, folder: Path, name: str) -> None:
    part = folder / f".{secrets.token_hex(8)}"
    try:
        storage_of(settings).lay_out(data_set_prefix(data_set) + name, part)
        part.replace(folder / name)
    except ObjectMissing:
        raise unknown(data_set) from None
    finally:
        part.unlink(missing_ok=True)


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
