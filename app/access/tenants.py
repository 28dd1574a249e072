r"""Tenants: the owners of jobs, ledgers, certificates and keys. A tenant is only a name; it exists while it owns something."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

TENANT_PATTERN = r"^[a-z0-9][a-z0-9-]{0,62}$"
TENANT_LENGTH = 63
DEFAULT_TENANT = "default"
"""The operator's tenant. It owns everything stored before there were tenants, and the first admin key."""

Tenant = Annotated[str, Field(pattern=TENANT_PATTERN)]
