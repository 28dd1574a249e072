r"""Tenants: whose jobs, ledgers, certificates and keys these are. A tenant is a name and nothing else; it exists while something is its."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

TENANT_PATTERN = r"^[a-z0-9][a-z0-9-]{0,62}$"
TENANT_LENGTH = 63
DEFAULT_TENANT = "default"
"""Whose everything is that was stored before there were tenants, and whose the first admin key is: the operator's."""

Tenant = Annotated[str, Field(pattern=TENANT_PATTERN)]
