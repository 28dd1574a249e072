r"""What is wrong with a request, field by field, in words for whoever sent it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast, final

from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import InvalidParameter

_LONGEST_ECHO = 120


@final
class FieldError(Value):
    """One thing wrong with a request: the field, what was expected, and what came (shortened, as ASCII)."""

    field: str
    message: str
    got: str


def field_errors(errors: Iterable[Mapping[str, Any]], body: object, whole: str = "body") -> list[FieldError]:
    r"""Pydantic's errors with paths as the user wrote them, without the names of union members that Pydantic inserts.

    Args:
      whole: what all of it is called; only where an error is about all of it. Fields lie in it, and aren't prefixed with it.
    """
    listed = list(errors)
    wrong = {tuple(error["loc"][:depth]) for error in listed for depth in range(len(error["loc"]))}
    # Of a list with wrong entries Pydantic counts only the others.
    return [_field_error(error, body, whole) for error in listed if error["type"] != "too_short" or tuple(error["loc"]) not in wrong]


def _field_error(error: Mapping[str, Any], body: object, whole: str) -> FieldError:
    kind, context = str(error["type"]), cast("Mapping[str, Any]", error.get("ctx") or {})
    field = _path(cast("Sequence[str | int]", error["loc"]), body, names_absent_field=kind == "missing")
    cause = context.get("error")
    if isinstance(cause, InvalidParameter):
        # Our own check of a whole value: it names the part, what was expected and what came.
        last = field.rsplit(".", 1)[-1]
        inner = field if last.startswith(cause.field) else f"{field}.{cause.field.removeprefix(f'{last}.')}".removeprefix(".")
        return FieldError(field=inner, message=f"must be {cause.expected}", got=echo(cause.got))
    part, message, got = _described(kind, error, context)
    place = "" if kind == "json_invalid" else field + part if field else part.removeprefix(".")
    return FieldError(field=place or whole, message=message, got=got)


def _described(kind: str, error: Mapping[str, Any], context: Mapping[str, Any]) -> tuple[str, str, str]:
    """Returns (the part of the field concerned, what was expected, what came)."""
    known = {
        "missing": lambda: ("", "this field is required", "nothing"),
        "extra_forbidden": lambda: ("", "there is no field with this name", echo(error["input"])),
        "too_short": lambda: ("", f"must have at least {_entries(context['min_length'])}", str(context["actual_length"])),
        "too_long": lambda: ("", f"must have at most {_entries(context['max_length'])}", f"{context.get('actual_length') or 'more'}"),
        "json_invalid": lambda: ("", f"must be JSON ({context.get('error', 'malformed')})", "malformed text"),
        "union_tag_not_found": lambda: ("", f"must say which kind it is in its field {context['discriminator']}", "none"),
        "union_tag_invalid": lambda: (
            "." + str(context["discriminator"]).strip("'"),
            f"must be one of {context['expected_tags']}",
            echo(context["tag"]),
        ),
    }.get(kind)
    return known() if known is not None else ("", _message(error, context), echo(error["input"]))


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"


def _message(error: Mapping[str, Any], context: Mapping[str, Any]) -> str:
    for name, sign in (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<=")):
        if isinstance(limit := context.get(name), int | float):
            return f"must be {sign} {limit:g}"
    text = str(error["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")
    return text.encode("ascii", "backslashreplace").decode()


def _path(location: Sequence[str | int], body: object, *, names_absent_field: bool) -> str:
    if location and location[0] in ("query", "path", "header", "cookie"):
        return ".".join(str(part) for part in location[1:])
    where, current = "", body
    rest = list(location[1:] if location and location[0] == "body" else location)
    for index, part in enumerate(rest):
        last = index == len(rest) - 1
        if isinstance(current, dict) and (part in current or (last and names_absent_field)):
            where, current = f"{where}.{part}" if where else str(part), cast("dict[object, object]", current).get(part)
        elif isinstance(current, list | tuple) and isinstance(part, int):
            items = cast("Sequence[object]", current)
            where, current = f"{where}[{part}]", items[part] if part < len(items) else None
        elif last and not where and isinstance(part, str) and not isinstance(current, dict | list | tuple):
            where = part
    return where


def echo(value: object) -> str:
    """What came, short and as ASCII: a request's own bytes never break or flood the answer."""
    text = ascii(value)
    return text if len(text) <= _LONGEST_ECHO else text[: _LONGEST_ECHO - 3] + "..."


def summary(errors: Sequence[FieldError]) -> str:
    """The errors, one sentence each."""
    return "; ".join(f"{error.field}: {error.message}, got {error.got}" for error in errors)
