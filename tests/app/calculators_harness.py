r"""Events and problems of the calculators' tests."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

SENSITIVITY = {"l2": 1.0, "adjacency": "add_remove", "unit": "record"}


def release(**mechanism):
    return {"kind": "release", "mechanism": {"kind": "complex_gaussian", "std": 1.0, "sensitivity": SENSITIVITY, **mechanism}}


def sampled(event=None, probability=0.1):
    return {"kind": "poisson_sampled", "probability": probability, "event": event or release()}


TRAINING = {"kind": "repeated", "count": 1000, "event": sampled(probability=0.01)}


def without_cost(answer: Any) -> Any:
    """All that two answers to the same question have in common, as JSON or models: not what computing them took."""
    if isinstance(answer, BaseModel):
        return without_cost(answer.model_dump())
    if isinstance(answer, list | tuple):
        return [without_cost(each) for each in answer]
    if isinstance(answer, dict):
        return {name: without_cost(value) for name, value in answer.items() if name != "processor_seconds"}
    return answer


def problem(response, status=422):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert {"type", "title", "status", "detail"} <= body.keys()
    assert "Traceback" not in response.text
    return body
