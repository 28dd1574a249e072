r"""``recipes``, and how ``submit`` turns one into a job: the recipe's body with the user's changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

import typer
from pydantic import ValidationError

from zetadp.app.cli.console import DEFAULT_ADDRESS, Address, AsJson, Exit, Key, clear_errors, fail, out
from zetadp.app.client import Client
from zetadp.app.jobs.resources import JobSubmission
from zetadp.app.kit.field_errors import field_errors, summary
from zetadp.app.recipes.schemas import ProvenEpsilon, RecipeEntry
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.numerics.rounding import text_up


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command()(recipes)


def recipes(address: Address = DEFAULT_ADDRESS, key: Key = None, as_json: AsJson = False) -> None:
    """List the experiments that are ready to run: what their papers printed, what is proven, and whether their data are available."""
    with clear_errors(), Client(address, key) as client:
        found = client.recipes()
        if as_json:
            out.print(json.dumps([entry.model_dump(mode="json") for entry in found], indent=2), markup=False)
            return
        for entry in found:
            out.print("\n".join(_lines(entry)), markup=False)


def recipe_submission(client: Client, name: str, changes: Sequence[str]) -> JobSubmission:
    r"""The body of a job from one of the service's recipes.

    Args:
      changes: of the form ``path=value``, with a path in the body like ``spec.steps`` or ``spec.model.hidden[0]`` and a value in JSON, or
        plain text where it isn't JSON.
    """
    body = client.recipe(name).model_dump(mode="json")
    try:
        for change in changes:
            set_in(body, change)
    except InvalidParameter as refused:
        fail(str(refused), Exit.USAGE)
    try:
        return JobSubmission.model_validate_json(json.dumps(body))
    except ValidationError as invalid:
        fail(f"recipe {name} as changed: {summary(field_errors(invalid.errors(), body))}", Exit.USAGE)
        raise AssertionError from invalid  # fail() leaves


def set_in(body: dict[str, Any], change: str) -> None:
    """Apply one change, of the form ``path=value``, to the body of a job.

    Raises:
      InvalidParameter: it isn't of the form, or its path leads through something that has no parts.
    """
    path, sign, text = change.partition("=")
    parts = [part for part in path.replace("[", ".").replace("]", "").split(".") if part]
    if not sign or not parts:
        raise InvalidParameter("--set", "of the form path=value, like spec.steps=100", change)
    place: Any = body
    for part in parts[:-1]:
        place = _within(place, part, path)
    _put(place, parts[-1], _value(text), path)


def _within(place: Any, part: str, path: str) -> Any:
    if isinstance(place, list):
        return cast("list[Any]", place)[_index(cast("list[Any]", place), part, path)]
    if not isinstance(place, dict):
        raise InvalidParameter("--set", f"a path in the body of a job; {part!r} lies in something without parts", path)
    return cast("dict[str, Any]", place).setdefault(part, {})


def _put(place: Any, part: str, value: object, path: str) -> None:
    if isinstance(place, list):
        items = cast("list[Any]", place)
        items[_index(items, part, path)] = value
    elif not isinstance(place, dict):
        raise InvalidParameter("--set", f"a path in the body of a job; {part!r} lies in something without parts", path)
    else:
        cast("dict[str, Any]", place)[part] = value


def _index(items: list[Any], part: str, path: str) -> int:
    if not (part.isascii() and part.isdigit() and int(part) < len(items)):
        raise InvalidParameter("--set", f"an entry from 0 to {len(items) - 1} of the list in its path", path)
    return int(part)


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _lines(entry: RecipeEntry) -> list[str]:
    here = "data here" if entry.data.available else f"data missing: {entry.data.missing}"
    printed = ", ".join(f"{claim.epsilon:g} at {claim.delta:g} ({claim.method}, {claim.where})" for claim in entry.printed_epsilons)
    lines = [f"{entry.name}: {entry.title} ({here})"]
    if printed:
        lines.append(f"  epsilon printed: {printed}")
    if entry.proven_as_printed is not None:
        lines.append(f"  epsilon proved of the paper's own rate, noise and steps: {_described(entry.proven_as_printed)}")
    if entry.proven is None:
        lines.append(f"  no guarantee: {entry.no_guarantee}")
    else:
        lines.append(f"  epsilon proved of this recipe's run: {_described(entry.proven)}")
    return lines


def _described(proven: ProvenEpsilon) -> str:
    pure = "" if proven.pure_epsilon is None else f" ({text_up(proven.pure_epsilon, 6)} at 0)"
    return f"{text_up(proven.epsilon, 6)} at {proven.delta:g}{pure}, for one {proven.unit}"
