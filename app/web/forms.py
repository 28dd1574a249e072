r"""Forms from JSON schemas: which fields a mechanism has, what each may hold, and how a page asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, final

from zetadp.app.web.wording.words import CHOICES, PATTERNS, Words, words_of
from zetadp.mechanisms.base import LARGEST_SCALE, SMALLEST_SCALE

Schema = Mapping[str, Any]

_LIMITS = {"exclusiveMinimum": "more than", "minimum": "at least", "exclusiveMaximum": "less than", "maximum": "at most"}

_SPELT_OUT = 1e9
"""Whole numbers below it are written with all their digits."""

Kind = Literal["number", "integer", "numbers", "integers", "text", "choice", "truth"]
Wording = Callable[[str], Words]


@final
@dataclass(frozen=True)
class Choice:
    """One value of a choice, with its label."""

    value: str
    label: str


@final
@dataclass(frozen=True)
class Field:
    r"""One field of a form.

    Attributes:
      path: in the mechanism's JSON, parts joined by dots.
      kind: number, whole number, list of either, text, yes or no, or one of ``choices``.
      required: whether it must be filled in.
      value: the initial value as text; empty for none.
      allowed: its range in words.
      pattern: a pattern that a text must match; ``allowed`` says it in words.
    """

    path: str
    kind: Kind
    required: bool
    value: str
    label: str
    unit: str
    help: str
    allowed: str
    choices: tuple[Choice, ...] = ()
    pattern: str = ""

    @property
    def id(self) -> str:
        """The id of its element."""
        return "field-" + self.path.replace(".", "-").replace("_", "-")


def fields_of(schema: Schema, example: Mapping[str, Any], words: Wording = words_of) -> tuple[Field, ...]:
    """The fields of a schema with an example's values: its own first, then those of its parts. Skips what no field can hold."""
    own = list(_fields(schema, schema, example, "", words, may_be_absent=False))
    return (*(field for field in own if "." not in field.path), *(field for field in own if "." in field.path))


def _fields(
    schema: Schema, root: Schema, example: Mapping[str, Any], prefix: str, words: Wording, *, may_be_absent: bool
) -> Iterator[Field]:
    required = set() if may_be_absent else set(schema.get("required", ()))
    for name, given in schema["properties"].items():
        if name == "kind":
            continue
        path, part = f"{prefix}{name}", _resolved(given, root)
        if "properties" in part:
            inner = cast("Mapping[str, Any]", example.get(name) or {})
            yield from _fields(part, root, inner, f"{path}.", words, may_be_absent=name not in required)
        elif (kind := _kind(part)) is not None:
            yield _field(path, kind, part, words(path), required=name in required, value=example.get(name))


def _resolved(schema: Schema, root: Schema) -> Schema:
    """The schema without references, and without the null of an optional value."""
    while True:
        if "$ref" in schema:
            schema = root["$defs"][schema["$ref"].rsplit("/", 1)[-1]]
        elif "anyOf" in schema and (others := [one for one in schema["anyOf"] if one.get("type") != "null"]):
            schema = others[0]
        else:
            return schema


def _kind(schema: Schema) -> Kind | None:
    """The kind of field that holds such a value, or None."""
    if "enum" in schema:
        return "choice"
    items: Mapping[str, Any] = schema.get("items", {})
    simple: dict[object, Kind] = {"integer": "integer", "number": "number", "string": "text", "boolean": "truth"}
    lists: dict[object, Kind] = {"integer": "integers", "number": "numbers"}
    return lists.get(items.get("type")) if schema.get("type") == "array" else simple.get(schema.get("type"))


def _field(path: str, kind: Kind, schema: Schema, words: Words, *, required: bool, value: object) -> Field:
    choices, pattern = _choices(kind, schema, required=required), str(schema.get("pattern", ""))
    allowed = {"integers": "", "numbers": "", "text": PATTERNS.get(pattern, "")}.get(kind)
    return Field(
        path,
        kind,
        required,
        _text(kind, value) or (choices[0].value if choices else ""),
        words.label,
        words.unit,
        words.help,
        _range(schema) if allowed is None else allowed,
        choices,
        pattern,
    )


def _choices(kind: Kind, schema: Schema, *, required: bool) -> tuple[Choice, ...]:
    if kind == "truth":
        return (Choice("false", "no"), Choice("true", "yes"))
    none = () if required or kind != "choice" else (Choice("", "not given"),)
    return (*none, *(Choice(str(one), CHOICES.get(str(one), str(one).replace("_", " "))) for one in schema.get("enum", ())))


def _text(kind: Kind, value: object) -> str:
    match kind:
        case "integers" | "numbers":
            return ", ".join(repr(one) for one in cast("list[object]", value or []))
        case "integer" | "number":
            return "" if value is None else repr(value)
        case _:
            return str(value or "")


def _range(schema: Schema) -> str:
    """The allowed numbers in words; empty if all are allowed. Limits that only keep arithmetic sound are 0 and none to a reader."""
    limits = {name: limit for name in _LIMITS if (limit := schema.get(name)) not in (None, SMALLEST_SCALE, LARGEST_SCALE, -LARGEST_SCALE)}
    if limits.keys() == {"minimum", "maximum"}:
        low, high = _short(limits["minimum"]), _short(limits["maximum"])
        return f"only {low}" if low == high else f"{low} to {high}"
    positive = ["more than 0"] if schema.get("minimum") == SMALLEST_SCALE else []
    return " and ".join((*positive, *(f"{_LIMITS[name]} {_short(limit)}" for name, limit in limits.items())))


def _short(limit: float) -> str:
    """A limit as one would type it: 1000000, but 1e+15."""
    return f"{limit:.0f}" if limit == int(limit) and abs(limit) < _SPELT_OUT else f"{limit:g}"
