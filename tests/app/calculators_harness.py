r"""Events and problems of the calculators' tests."""

from __future__ import annotations

from zetadp.app.calculators.schemas import Profile

SENSITIVITY = {"l2": 1.0, "adjacency": "add_remove", "unit": "record"}


def release(**mechanism):
    return {"kind": "release", "mechanism": {"kind": "complex_gaussian", "std": 1.0, "sensitivity": SENSITIVITY, **mechanism}}


def sampled(event=None, probability=0.1):
    return {"kind": "poisson_sampled", "probability": probability, "event": event or release()}


TRAINING = {"kind": "repeated", "count": 1000, "event": sampled(probability=0.01)}


def without_cost(answer: Profile) -> dict[str, object]:
    """All that two answers to the same question have in common: not what computing them took."""
    return answer.model_dump(exclude={"processor_seconds"})


def problem(response, status=422):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert {"type", "title", "status", "detail"} <= body.keys()
    assert "Traceback" not in response.text
    return body
