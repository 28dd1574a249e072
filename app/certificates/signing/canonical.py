r"""The canonical form of a JSON document (RFC 8785), so that a digest or a signature over its bytes has one meaning in every language."""

from __future__ import annotations

import json

import rfc8785

from zetadp.mechanisms.base import Value

EXACT_DIGITS = 15
"""Every JSON reader reads integers with this many digits exactly; most read numbers as float64."""


class DuplicateKey(ValueError):
    """An object names a key twice: two readers could see two documents."""


def canonical_json(value: Value) -> bytes:
    r"""The value's JSON: keys sorted, no spaces, UTF-8 without escapes, numbers as ECMAScript writes them.

    >>> from zetadp.mechanisms import Sensitivity
    >>> canonical_json(Sensitivity(l2=1.0, adjacency="add_remove", unit="record"))[:25]
    b'{"adjacency":"add_remove"'
    """
    return rfc8785.dumps(value.model_dump(mode="json", by_alias=True))


def recanonical(text: bytes) -> bytes:
    """The canonical form of any JSON text that isn't nested deeper than Python's own parser allows.

    Raises:
      ValueError: not JSON, a number beyond float64, or a duplicate key.
      RecursionError: nested too deep.
    """
    return rfc8785.dumps(json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_refuse, parse_int=_integer))


def _integer(text: str) -> int | float:
    # A float of 1e20 is written without its exponent and looks like an integer.
    return int(text) if len(text) <= EXACT_DIGITS else float(text)


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise DuplicateKey("an object names a key twice")
    return found


def _refuse(name: str) -> object:
    raise ValueError(f"{name} isn't JSON")
