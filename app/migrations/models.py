r"""Every table there is, so that the migrations can be compared with them. A new module of tables is named here."""

from __future__ import annotations

from app.access import tables as access
from app.certificates import tables as certificates
from app.certificates.log import tables as certificate_log
from app.database import Base
from app.jobs import tables as jobs
from app.ledgers import tables as ledgers
from app.operations import tables as operations
from app.uploads import tables as uploads

TABLES = (access, certificate_log, certificates, jobs, ledgers, operations, uploads)

__all__ = ["TABLES", "Base"]
