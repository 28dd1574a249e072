"""Every example in the service's own description runs as it stands."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from fastapi.testclient import TestClient

from app.main import create_app
from app.settings import Settings

DATA = TemporaryDirectory()
APP = create_app(Settings(data_dir=Path(DATA.name)))
DOCUMENT = APP.openapi()

# What needs a key needs a worker or something stored too, and verification a certificate: tests of their own send them.
POSTS = [
    path
    for path, item in DOCUMENT["paths"].items()
    if "security" not in item.get("post", {"security": ()}) and not path.endswith("/verify")
]


def _resolved(schema):
    while "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return schema


def examples_of(path):
    """All examples of a path's request body: of its schema and of its media type."""
    content = DOCUMENT["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    named = [example["value"] for example in content.get("examples", {}).values()]
    return [*([content["example"]] if "example" in content else []), *named, *_resolved(content["schema"]).get("examples", [])]


EXAMPLES = [pytest.param(path, example, id=f"{path}-{i}") for path in POSTS for i, example in enumerate(examples_of(path))]


@pytest.fixture(scope="module")
def client():
    return TestClient(APP, base_url="http://127.0.0.1")


@pytest.mark.parametrize("path", POSTS)
def test_every_post_has_an_example(path):
    assert examples_of(path), f"POST {path} has no example for the documentation page"


@pytest.mark.parametrize(("path", "example"), EXAMPLES)
def test_every_example_is_answered(client, path, example):
    answer = client.post(path, json=example)
    assert answer.status_code == 200, answer.text
    assert "NaN" not in answer.text


def _named_rows(answer):
    """Every text that an answer gives as ``erratum`` or in ``errata``, however deep."""
    if isinstance(answer, list):
        return [row for part in answer for row in _named_rows(part)]
    if not isinstance(answer, dict):
        return []
    here = [answer["erratum"]] if isinstance(answer.get("erratum"), str) else []
    return [*here, *answer.get("errata", ()), *(row for part in answer.values() for row in _named_rows(part))]


def test_every_row_that_an_answer_names_can_be_read(client):
    requests = [each.values for each in EXAMPLES if not each.values[0].endswith("/batch")]
    answers = [client.post(path, json=example).json() for path, example in requests]
    answers += [client.get(path).json() for path in ("/v1/papers", "/v1/mechanisms", "/v1/algorithms")]
    named = set(_named_rows(answers))
    assert {"Z2", "C3", "S7", "P1", "O5"} <= named
    for row in sorted(named):
        assert client.get(f"/v1/errata/{row}").status_code == 200, row


def test_every_readable_path_answers_with_its_parameters_examples(client):
    filled = {"row": "Z2", "name": "laplace", "kind": "laplace", "paper": "zeta_dp"}
    tried = 0
    for path, item in DOCUMENT["paths"].items():
        tags = set(item.get("get", {}).get("tags", ()))
        if tags & {"calculators", "papers"}:
            answer = client.get(path.format(**filled))
            assert answer.status_code == 200, (path, answer.text)
            tried += 1
    assert tried >= 10
