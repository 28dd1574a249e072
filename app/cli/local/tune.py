r"""``tune``: tries settings of a recipe or spec on public data, and says what a private selection among them would cost instead."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from pydantic import TypeAdapter, ValidationError

from zetadp.app.cli.console import AsJson, clear_errors, error, fail, out, print_json
from zetadp.app.cli.exits import Exit
from zetadp.app.cli.recipes import set_in
from zetadp.app.kit.field_errors import field_errors, summary
from zetadp.mechanisms.errors import InvalidParameter, PrivacyError
from zetadp.mechanisms.numerics.rounding import text_up
from zetadp.trainer.data import DataSetFacts, DataSpec, data_set_facts
from zetadp.trainer.recipes import recipe
from zetadp.trainer.specs.algorithms.private_selection import AnyCandidateSpec
from zetadp.trainer.specs.base import RuntimeSpec
from zetadp.trainer.tuning import SPEC, SelectionCost, Settings, Tried, Tuned, best_of, grid, selection_cost, tried_on

_DATA: TypeAdapter[DataSpec] = TypeAdapter(DataSpec)

WARNING = (
    "The data named here are treated as public: these trainings protect nobody who is in them, and settings chosen on private data without "
    "a private selection cost privacy that no certificate counts."
)


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command()(tune)


def tune(
    source: Annotated[str, typer.Argument(help="A recipe's name, or a JSON file like the body of POST /v1/jobs.")],
    tries: Annotated[
        list[str],
        typer.Option("--try", metavar="PATH=VALUE,...", help="Values to try, for example spec.clipping_bound=0.5,1 (repeatable)."),
    ],
    changes: Annotated[list[str], typer.Option("--set", metavar="PATH=VALUE", help="Change what is tuned (repeatable).")] = [],
    public_data: Annotated[
        Path | None,
        typer.Option(help='A JSON file like the "data" of a spec: data that are public. Without it, those of the recipe, which are.'),
    ] = None,
    repetitions: Annotated[int, typer.Option(min=1, max=100, help="Trainings of each combination; their metrics are averaged.")] = 1,
    mean_runs: Annotated[
        float | None, typer.Option(min=1.0, help="Mean number of runs of the private selection; as many as combinations by default.")
    ] = None,
    threads: Annotated[int, typer.Option(min=0, max=1024, help="Threads of each training; 0 leaves torch's default.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Try settings on public data, in this process, and tell what a private selection among them would cost instead."""
    with clear_errors():
        known, body = recipe(source), _asked(source, public_data)
        for change in changes:
            set_in(body, change)
        choices = grid(dict(_values(one) for one in tries))
        specs = [_spec(body, choice) for choice in choices]
        # Of a recipe, not of what it was changed to: those might be anybody's.
        public = known.spec.data if known is not None and public_data is None else _public(public_data)
        facts = known.declared.facts if known is not None and specs[0].data == known.spec.data else None
        error.print(WARNING, markup=False)
        tried: list[Tried] = []
        for number, (choice, spec) in enumerate(zip(choices, specs, strict=True), 1):

            def begun(number: int = number) -> None:
                error.print(f"training {number} of {len(choices)}", markup=False)

            tried.append(tried_on(public, spec, choice, repetitions, RuntimeSpec(threads=threads), begun))
        found = _tuned(public, tried, *_cost(specs, facts, mean_runs or float(len(specs))))
    if as_json:
        print_json(found)
    else:
        out.print("\n".join(_lines(found, source, changes)), markup=False)
    if found.best is None:
        raise typer.Exit(int(Exit.FAILED))


def _asked(source: str, public_data: Path | None) -> dict[str, Any]:
    """The body of a job."""
    if (known := recipe(source)) is not None:
        return {"spec": known.spec.model_dump(mode="json", exclude_none=True)}
    if public_data is None:
        raise InvalidParameter("--public-data", "given for a file: which data are public isn't in it", source)
    read = cast("object", json.loads(sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")))
    if not isinstance(read, dict):
        raise InvalidParameter("the file", "a job's body, or a spec", source)
    given = cast("dict[str, Any]", read)
    return given if "spec" in given else {"spec": given}


def _public(file: Path | None) -> DataSpec:
    assert file is not None  # asked for above where there is no recipe
    try:
        return _DATA.validate_json(file.read_bytes())
    except ValidationError as invalid:
        raise InvalidParameter(
            str(file), f'like the "data" of a spec ({summary(field_errors(invalid.errors(), None))})', file.name
        ) from None


def _values(text: str) -> tuple[str, list[object]]:
    """The path and the values of ``PATH=VALUE,...``: JSON, or plain text where one isn't."""
    path, sign, listed = text.partition("=")
    if not sign or not path or not listed:
        raise InvalidParameter("--try", "of the form path=value,value, like spec.clipping_bound=0.5,1", text)
    try:
        return path, cast("list[object]", json.loads(f"[{listed}]"))
    except ValueError:
        return path, [_number(part) for part in listed.split(",")]


def _number(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text


def _change(path: str, value: object) -> str:
    return f"{path}={json.dumps(value)}"


def _spec(body: dict[str, Any], choice: Settings) -> AnyCandidateSpec:
    changed = cast("dict[str, Any]", json.loads(json.dumps(body)))
    for path, value in choice.items():
        set_in(changed, _change(path, value))
    try:
        return SPEC.validate_json(json.dumps(changed["spec"]))
    except ValidationError as invalid:
        fail(f"{', '.join(map(_change, choice, choice.values()))}: {summary(field_errors(invalid.errors(), changed['spec']))}", Exit.USAGE)
        raise AssertionError from invalid  # fail() leaves


def _cost(specs: Sequence[AnyCandidateSpec], facts: DataSetFacts | None, mean: float) -> tuple[SelectionCost | None, str | None]:
    """The cost of a private selection, or why there is none."""
    try:
        return selection_cost(specs, data_set_facts(specs[0].data) if facts is None else facts, mean), None
    except ValidationError as invalid:
        return None, str(invalid.errors(include_url=False)[0]["msg"])
    except (PrivacyError, OSError) as reason:
        return None, str(reason)


def _tuned(public: DataSpec, tried: Sequence[Tried], cost: SelectionCost | None, reason: str | None) -> Tuned:
    best = best_of(tried)
    changes = () if best is None else tuple(_change(path, value) for path, value in best.settings.items())
    settings = None if best is None else best.settings
    return Tuned(public_data=public, tried=tuple(tried), best=settings, changes=changes, selection=cost, no_selection=reason)


def _lines(found: Tuned, source: str, changes: Sequence[str]) -> list[str]:
    """A table of what was tried, the best of it, and what a private selection would cost; ``changes``: to the recipe, beforehand."""
    lines = [f"Tried on public data ({found.public_data.kind}):"]
    for one in found.tried:
        reached = f"failed: {one.failed}" if one.failed else ", ".join(f"{name} {value:.4f}" for name, value in one.metrics.items())
        lines.append(f"  {', '.join(_change(path, value) for path, value in one.settings.items())}  {reached}")
    if found.best is not None:
        lines.append(f"Best: {json.dumps(found.best)}")
        if recipe(source) is not None:
            changed = " ".join(shlex.join(("--set", change)) for change in (*changes, *found.changes))
            lines.append(f"  zetadp submit --recipe {source} {changed}")
    if found.selection is None:
        lines.append(f"A private selection among these on the private data isn't possible: {found.no_selection}")
        return lines
    cost = found.selection
    lines.append(
        f"A private selection among the {cost.candidates} on the private data instead (algorithm private_selection, a geometric number of "
        f"runs with mean {cost.runs.mean:g}): epsilon {text_up(cost.epsilon, 4)} at delta {cost.delta:g} for one {cost.unit}, with "
        f"noise that alone would give one run {text_up(cost.epsilon_of_one_run, 4)}."
    )
    return lines
