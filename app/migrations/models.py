r"""Every table there is, so that the migrations can be compared with them. A new module of tables is named here."""

from __future__ import annotations

from app.certificates import tables as certificates
from app.database import Base
from app.jobs import tables as jobs

TABLES = (certificates, jobs)

__all__ = ["TABLES", "Base"]
