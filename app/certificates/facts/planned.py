r"""Compares a spec's plan on its data with the plan that a run was made from. The noise isn't calibrated again: the event names it."""

from __future__ import annotations

from collections.abc import Iterator

from zetadp.app.certificates.facts.statement import MODEL_FILE
from zetadp.mechanisms.base import Value
from zetadp.trainer import AnyPlan


def differences(expected: AnyPlan, plan: AnyPlan) -> Iterator[tuple[str, object, object]]:
    """(field, value from the spec, value in the plan) for every field of either."""
    first, second = dict(_fields("plan", expected)), dict(_fields("plan", plan))
    for path in dict.fromkeys((*first, *second)):
        yield path, first.get(path), second.get(path)


def has_counts(plan: AnyPlan) -> bool:
    """Whether noisy counts of held-out records are in the event, in every part of a comparison."""
    return all(one.counts is not None for one in [part.plan for part in plan.compared] or [plan])


def model_files(plan: AnyPlan) -> tuple[str, ...]:
    """Names of the models that a run of this plan leaves."""
    return tuple(f"{part.name}.{MODEL_FILE}" for part in plan.compared) or (MODEL_FILE,)


def _fields(path: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Value):
        if "kind" not in type(value).model_fields:
            yield f"{path} is", type(value).__name__
        for name in type(value).model_fields:
            yield from _fields(f"{path}.{name}", getattr(value, name))
    elif isinstance(value, tuple):
        yield f"{path}, how many", len(value)
        for index, part in enumerate(value):
            yield from _fields(f"{path}[{index}]", part)
    else:
        yield path, value
