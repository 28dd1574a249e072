r"""One spelling of a JSON document, so that a digest or a signature over its bytes has one meaning."""

from __future__ import annotations

import json

from mechanisms.base import Value


class DuplicateKey(ValueError):
    """An object names a key twice: two readers could see two documents."""


def canonical_json(value: Value) -> bytes:
    r"""Keys sorted, no spaces, UTF-8 without escapes, floats as their shortest exact text.

    >>> from mechanisms import Sensitivity
    >>> canonical_json(Sensitivity(l2=1.0, adjacency="add_remove", unit="record"))[:25]
    b'{"adjacency":"add_remove"'
    """
    return _dumps(value.model_dump(mode="json", by_alias=True))


def recanonical(text: bytes) -> bytes:
    """The canonical form of any JSON text, at most as deep as Python's own parser goes.

    Raises:
      ValueError: not JSON, NaN or infinity in it, or a duplicate key.
      RecursionError: nested too deep.
    """
    return _dumps(json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_refuse))


def _dumps(document: object) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise DuplicateKey("an object names a key twice")
    return found


def _refuse(name: str) -> object:
    raise ValueError(f"{name} isn't JSON")
