r"""Generated requests for the operations of the service, and the checks of their answers.

Schemathesis is loaded by the first test that fuzzes: with what it needs it takes half a second, and it was loaded at every collection.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

from hypothesis.strategies import SearchStrategy

from tests.app.openapi_harness import document

Mode = Literal["positive", "negative"]
"""Whether a request fits the description."""


@cache
def _operations() -> dict[str, Any]:
    import schemathesis

    found = (each.ok() for each in schemathesis.openapi.from_dict(document()).get_all_operations())
    return {f"{operation.method.upper()} {operation.path}": operation for operation in found}


def requests(name: str, mode: Mode) -> SearchStrategy[Any]:
    """Requests of the operation with this method and path."""
    from schemathesis.generation import GenerationMode

    return _operations()[name].as_strategy(generation_mode=GenerationMode(mode))


def answer_checks(*names: str) -> list[Any]:
    """The checks with these names, each of which exists, after the one for server errors."""
    from schemathesis import checks

    checks.load_all_checks()
    known = {check.__name__: check for check in checks.CHECKS.get_all()}
    return [checks.not_a_server_error, *(known[name] for name in names)]
