r"""Every table there is, so that the migrations can be compared with them. A new module of tables is named here."""

from __future__ import annotations

from zetadp.app.kit.database import Base
from zetadp.app.tables import access, certificate_log, certificates, jobs, ledgers, operations, uploads

TABLES = (access, certificate_log, certificates, jobs, ledgers, operations, uploads)

__all__ = ["TABLES", "Base"]
