r"""Single calculators in this process: CPU time of one thread for reading the documented example, answering it and writing the answer.

No peer has these calculators, so the target is a time: 2 ms. The first answer of a process stands beside, since some keep what they found.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.compare import goal

REPETITIONS = 50
LONGEST_MILLISECONDS = 2.0
MODULES = ("zetadp.app.calculators.compare", "zetadp.app.calculators.notions", "zetadp.app.calculators.noise_shapes")
"""Where the calculators are that take closed forms; profiles and calibrations are measured by ``accounting``."""


def run() -> Iterator[str]:
    """The report's lines."""
    slowest = 0.0
    for path, answer in _calculators():
        first, *later = [_cpu_milliseconds(answer) for _ in range(1 + REPETITIONS)]
        typical, questions = statistics.median(later), answer()
        slowest = max(slowest, typical / questions)
        several = f", {questions} questions of {typical / questions:.3f} ms" if questions > 1 else ""
        yield f"calculator {path}: {typical:.3f} ms of CPU (first answer {first:.3f} ms){several}"
    yield goal("calculators, slowest question of all", slowest, LONGEST_MILLISECONDS, "ms", at_most=True)


def _calculators() -> Iterator[tuple[str, Any]]:
    """Each calculator with a function that answers its documented example, from JSON to JSON."""
    # Only this part needs the application.
    import inspect

    from fastapi.routing import APIRoute
    from pydantic import BaseModel

    from zetadp.app.calculators.limits import Calculators
    from zetadp.app.kit.settings import Settings
    from zetadp.app.main import create_app

    settings = Settings(data_dir=Path("unused"))
    for route in _routes(create_app(settings).routes):
        if not (isinstance(route, APIRoute) and "POST" in route.methods and route.endpoint.__module__.startswith(MODULES)):
            continue
        (field,) = route.dependant.body_params
        model = field.field_info.annotation
        assert isinstance(model, type)
        assert issubclass(model, BaseModel)
        text = json.dumps(model.model_config["json_schema_extra"]["examples"][0])  # pyright: ignore

        fixed = {"desk": Calculators(settings)} if "desk" in inspect.signature(route.endpoint).parameters else {}

        def answer(
            endpoint: Any = route.endpoint,
            model: type[BaseModel] = model,
            text: str = text,
            name: str = field.name,
            fixed: dict[str, Any] = fixed,
        ) -> int:
            found = endpoint(**{name: model.model_validate_json(text)}, **fixed)
            found.model_dump_json()
            # Two of the examples ask several questions at once.
            return max(len(getattr(found, "conversions", ())), len(getattr(found, "conventions", ())), 1)

        module = route.endpoint.__module__.removeprefix("zetadp.app.calculators.")
        yield f"{module} {route.path}", answer


def _routes(routes: list[Any]) -> Iterator[Any]:
    for route in routes:
        # An included router is a route of its own, and resolves its paths late.
        if (included := getattr(route, "original_router", None)) is not None:
            yield from _routes(included.routes)
        else:
            yield route


def _cpu_milliseconds(work: Any) -> float:
    start = time.process_time()
    work()
    return 1e3 * (time.process_time() - start)
