r"""The JSON Schema (2020-12) of what is signed: a statement and its predicate, from the very classes that issuer and verifier read it with.

It describes the form of a certificate, but not what only verification checks (that figures follow from the plan, that names differ).
"""

from __future__ import annotations

from functools import cache
from typing import Any

from zetadp.app.certificates.facts.statement import PREDICATE_TYPE, Statement

DIALECT = "https://json-schema.org/draft/2020-12/schema"
SCHEMA_ID = f"{PREDICATE_TYPE}:statement"
MEDIA_TYPE = "application/schema+json"


@cache
def statement_schema() -> dict[str, Any]:
    """The schema of a certificate's statement: the payload of its envelope."""
    schema = Statement.model_json_schema(by_alias=True)
    description = f"An in-toto Statement (v1) whose predicate, of type {PREDICATE_TYPE}, is a privacy certificate of zetadp."
    return {"$schema": DIALECT, "$id": SCHEMA_ID, **schema, "title": "Privacy certificate", "description": description}
