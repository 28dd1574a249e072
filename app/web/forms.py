r"""Forms from JSON schemas: which fields a mechanism has, what each may hold, and how a page asks for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, final

from app.web.words import CHOICES, PATTERNS, words_of

Schema = Mapping[str, Any]


@final
@dataclass(frozen=True)
class Choice:
    """One value of a choice, and how it is called."""

    value: str
    label: str


@final
@dataclass(frozen=True)
class Field:
    r"""One field of a form.

    Attributes:
      path: in the mechanism's JSON, parts joined by dots.
      kind: number, whole number, list of whole numbers, text, or one of ``choices``.
      required: whether it may be left empty.
      value: that it has at first, as text; empty for none.
      allowed: its range in words.
      pattern: that a text has to match; ``allowed`` says it in words.
    """

    path: str
    kind: Literal["number", "integer", "integers", "text", "choice"]
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
        """Of its element."""
        return "field-" + self.path.replace(".", "-").replace("_", "-")


def fields_of(schema: Schema, example: Mapping[str, Any]) -> tuple[Field, ...]:
    """The fields of a mechanism's schema with its example's values: its own first, then those of its sensitivity."""
    own = list(_fields(schema, schema, example, ""))
    return (*(field for field in own if "." not in field.path), *(field for field in own if "." in field.path))


def _fields(schema: Schema, root: Schema, example: Mapping[str, Any], prefix: str) -> Iterator[Field]:
    required = set(schema.get("required", ()))
    for name, given in schema["properties"].items():
        if name == "kind":
            continue
        path, part = f"{prefix}{name}", _resolved(given, root)
        if "properties" in part:
            yield from _fields(part, root, cast("Mapping[str, Any]", example.get(name) or {}), f"{path}.")
        else:
            yield _field(path, part, required=name in required, value=example.get(name))


def _resolved(schema: Schema, root: Schema) -> Schema:
    """Without references, and without the null of what may be absent."""
    while True:
        if "$ref" in schema:
            schema = root["$defs"][schema["$ref"].rsplit("/", 1)[-1]]
        elif "anyOf" in schema and (others := [one for one in schema["anyOf"] if one.get("type") != "null"]):
            schema = others[0]
        else:
            return schema


def _field(path: str, schema: Schema, *, required: bool, value: object) -> Field:
    words = words_of(path)
    if "enum" in schema:
        choices = tuple(Choice(str(one), CHOICES.get(str(one), str(one))) for one in schema["enum"])
        return Field(path, "choice", required, str(value or choices[0].value), words.label, words.unit, words.help, "", choices)
    match schema.get("type"):
        case "array":
            text = "" if value is None else ", ".join(str(one) for one in cast("list[object]", value))
            return Field(path, "integers", required, text, words.label, words.unit, words.help, "whole numbers")
        case "integer":
            kind: Literal["integer", "number"] = "integer"
        case "number":
            kind = "number"
        case _:
            pattern = str(schema.get("pattern", ""))
            allowed = PATTERNS.get(pattern, "")
            return Field(path, "text", required, str(value or ""), words.label, words.unit, words.help, allowed, pattern=pattern)
    text = "" if value is None else repr(value)
    return Field(path, kind, required, text, words.label, words.unit, words.help, _range(schema))


def _range(schema: Schema) -> str:
    """Which numbers are allowed, in words; empty where all are."""
    low = [("more than", schema.get("exclusiveMinimum")), ("at least", schema.get("minimum"))]
    high = [("less than", schema.get("exclusiveMaximum")), ("at most", schema.get("maximum"))]
    found = [f"{words} {limit:g}" for words, limit in (*low, *high) if limit is not None]
    return " and ".join(found)
