r"""The schemas of the OpenAPI document as programs that generate clients need them: one for each model, and no name twice.

What the service accepts and answers stays as it is; only its description is made plainer than the framework's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, get_args, get_origin

PREFIX = "#/components/schemas/"
_TWINS = ("-Input", "-Output")
_DATA = frozenset({"const", "default", "enum", "example", "examples"})
"""Keys of a schema below which there are values instead of schemas."""
_BY_NAME = frozenset({"properties", "patternProperties"})
"""Keys of a schema below which there are schemas by names, which may be those of keys."""


def simplify(document: dict[str, Any], unions: Mapping[str, object] = MappingProxyType({})) -> None:
    """Changes the document's schemas in place; each of these unions becomes one schema of its name."""
    _merge_twins(document)
    components: dict[str, dict[str, Any]] = document.get("components", {}).get("schemas", {})
    for schema in list(nodes(document)):
        _require_tag(schema, components)
        _describe_pairs(schema)
        _list_constants(schema)
        _word_default(schema)
    for schema in nodes(document):
        if not any(schema is named for named in components.values()) and schema is not document["info"]:
            _drop_title(schema)
    _name_unions(document, components, unions)
    _prune(document, components)


def nodes(value: object) -> Iterator[dict[str, Any]]:
    """Every object in a document, itself included, except those in examples and other data."""
    if isinstance(value, dict):
        yield value
        for key, part in value.items():
            if key in _BY_NAME and isinstance(part, dict):
                yield from nodes(list(part.values()))
            elif key not in _DATA:
                yield from nodes(part)
    elif isinstance(value, list):
        for part in value:
            yield from nodes(part)


def _merge_twins(document: dict[str, Any]) -> None:
    """Keeps one schema of each model that is both sent and answered: what may be sent, which every answer fits.

    The framework makes two, since an answer always has the fields that a request may leave out.
    """
    schemas: dict[str, Any] = document.get("components", {}).get("schemas", {})
    names = {name: name.removesuffix("-Input").removesuffix("-Output") for name in schemas if name.endswith(_TWINS)}
    for name, plain in names.items():
        found = schemas.pop(name)
        if name.endswith("-Input") or f"{plain}-Input" not in names:
            assert plain not in schemas, f"two models are called {plain}"
            schemas[plain] = found
    references = {PREFIX + name: PREFIX + plain for name, plain in names.items()}
    for node in nodes(document):
        for key, value in node.items():
            if isinstance(value, str) and value in references:
                node[key] = references[value]


def _require_tag(schema: dict[str, Any], components: dict[str, dict[str, Any]]) -> None:
    """Requires the field that tells the members of a union apart, as the service does."""
    discriminator = schema.get("discriminator")
    if not isinstance(discriminator, dict) or "propertyName" not in discriminator:
        return
    name = discriminator["propertyName"]
    for reference in discriminator.get("mapping", {}).values():
        member = components[reference.removeprefix(PREFIX)]
        required = member.setdefault("required", [])
        if name not in required:
            required.insert(0, name)
        member["properties"][name].pop("default", None)


def _describe_pairs(schema: dict[str, Any]) -> None:
    """Describes a tuple whose places are all alike as an array of that length, which every reader understands."""
    places = schema.get("prefixItems")
    if isinstance(places, list) and "items" not in schema and all(place == places[0] for place in places):
        schema["items"] = schema.pop("prefixItems")[0]


def _list_constants(schema: dict[str, Any]) -> None:
    """Describes a text among other values as an enum of one: of a constant there, generators expect that it is the only value."""
    for union in ("anyOf", "oneOf"):
        for member in schema.get(union, ()):
            if isinstance(member.get("const"), str):
                member["enum"] = [member.pop("const")]


def _word_default(schema: dict[str, Any]) -> None:
    """Says in words what an object is by default: generators have constants for plain values only."""
    if isinstance(schema.get("default"), dict):
        text = json.dumps(schema.pop("default"))
        schema["description"] = f"{schema.get('description', '')} Default: {text}".strip()


def _drop_title(schema: dict[str, Any]) -> None:
    """Removes a title that only repeats a property's name: a generator would take it for the name of a model."""
    if isinstance(schema.get("title"), str):
        del schema["title"]


def _name_unions(document: dict[str, Any], components: dict[str, dict[str, Any]], unions: Mapping[str, object]) -> None:
    """Describes a union once, where it stands each time by reference: for a reader it is one thing, and a generator makes one of it."""
    names = {_models(union): name for name, union in unions.items()}
    for schema in list(nodes(document)):
        if "discriminator" not in schema or "oneOf" not in schema:
            continue
        members = frozenset(one.get("$ref", "").removeprefix(PREFIX) for one in schema["oneOf"])
        if (name := names.get(members)) is not None:
            made = {key: schema.pop(key) for key in ("oneOf", "discriminator")}
            assert components.setdefault(name, made) == made, f"{name} is a model's name, or another union's"
            schema["$ref"] = PREFIX + name


def _models(union: object) -> frozenset[str]:
    """The names of all models in a union, whatever is written around them."""
    if isinstance(union, type):
        return frozenset((union.__name__,))
    parts = get_args(union)[:1] if get_origin(union) is Annotated else get_args(union)
    return frozenset().union(*map(_models, parts))


def _prune(document: dict[str, Any], components: dict[str, dict[str, Any]]) -> None:
    """Removes schemas that nothing in the document refers to."""
    reached: set[str] = set()
    waiting = [document["paths"]]
    while waiting:
        named = {node["$ref"].removeprefix(PREFIX) for node in nodes(waiting.pop()) if isinstance(node.get("$ref"), str)} - reached
        reached |= named
        waiting += [components[name] for name in sorted(named)]
    for name in components.keys() - reached:
        del components[name]
