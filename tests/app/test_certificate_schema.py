"""The published JSON Schema, with a validator that isn't ours: every kind of certificate fits it, and altered ones don't."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import jsonschema_rs
import pytest
from fastapi.testclient import TestClient

from tests.app.certificate_kinds import KINDS
from tests.selection import thinned
from zetadp.app.certificates.facts.schema import statement_schema
from zetadp.app.certificates.verification.opening import open_certificate
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app

Document = dict[str, Any]


@pytest.fixture(scope="module")
def validator() -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(statement_schema(), validate_formats=True)


@pytest.mark.parametrize("kind", thinned(KINDS, every=4))
def test_every_kind_of_certificate_fits_the_schema(
    kind: str, envelopes: dict[str, bytes], validator: jsonschema_rs.Draft202012Validator
) -> None:
    validator.validate(json.loads(open_certificate(envelopes[kind]).content))


def without(*path: str) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        for name in path[:-1]:
            document = document[name]
        del document[path[-1]]

    return change


def put(value: object, *path: str) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        for name in path[:-1]:
            document = document[name]
        document[path[-1]] = value

    return change


CHANGES: dict[str, Callable[[Document], None]] = {
    "another type": put("https://in-toto.io/Statement/v0.1", "_type"),
    "another predicate": put("urn:zetadp:privacy-certificate:v2", "predicateType"),
    "no subject": put([], "subject"),
    "no predicate": without("predicate"),
    "no guarantee": without("predicate", "guarantee"),
    "a number for epsilon": put(0.5, "predicate", "guarantee", "epsilon"),
    "words for epsilon": put("about 1", "predicate", "guarantee", "epsilon"),
    "a negative epsilon": put("-1", "predicate", "guarantee", "epsilon"),
    "an unknown guarantee": put("total", "predicate", "guarantee", "kind"),
    "more in the predicate": put(1, "predicate", "more"),
    "more in the guarantee": put(1, "predicate", "guarantee", "more"),
    "an event beside the plan": put({"kind": "release"}, "predicate", "event"),
    "negative noise": put(-1.0, "predicate", "plan", "mechanism", "std"),
    "a point of the curve with names": put([{"epsilon": "1", "delta": "1e-05"}], "predicate", "guarantee", "delta_curve"),
    "a point of the curve of three figures": put([["1", "1e-05", "1"]], "predicate", "guarantee", "delta_curve"),
    "an unknown adjacency": put("any", "predicate", "plan", "mechanism", "sensitivity", "adjacency"),
    "no plan": without("predicate", "plan"),
    "unknown arithmetic": put(["by hand"], "predicate", "run", "arithmetic"),
    "steps in words": put("many", "predicate", "run", "steps_released"),
    "no time": put("yesterday", "predicate", "job", "finished"),
}


@pytest.mark.parametrize("change", thinned(CHANGES, every=3))
def test_an_altered_certificate_does_not_fit(
    change: str, envelopes: dict[str, bytes], validator: jsonschema_rs.Draft202012Validator
) -> None:
    document = copy.deepcopy(json.loads(open_certificate(envelopes["spectral"]).content))
    CHANGES[change](document)
    assert not validator.is_valid(document)


def test_it_is_a_schema_of_2020_12_that_names_the_predicate() -> None:
    schema = statement_schema()
    jsonschema_rs.meta.validate(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["properties"]["predicateType"]["const"] == "urn:zetadp:privacy-certificate:v1"


def test_it_is_published_to_everybody(tmp_path_factory: pytest.TempPathFactory) -> None:
    with TestClient(create_app(Settings(data_dir=tmp_path_factory.mktemp("schema")))) as client:
        answer = client.get("/v1/certificates/schema")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/schema+json")
    assert answer.json() == json.loads(json.dumps(statement_schema()))
