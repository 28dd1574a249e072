"""Every example in the service's own description runs as it stands."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from tests.app.openapi_harness import OPERATIONS, document
from tests.selection import thinned
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app

# What needs a key needs a worker or something stored too, and verification a certificate: tests of their own send them.
POSTS = [name.removeprefix("POST ") for tag in ("calculators", "papers") for name in OPERATIONS[tag] if name.startswith("POST ")]


def _resolved(schema):
    while "$ref" in schema:
        schema = document()["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return schema


def examples_of(path):
    """All examples of a path's request body: of its schema and of its media type."""
    content = document()["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    named = [example["value"] for example in content.get("examples", {}).values()]
    return [*([content["example"]] if "example" in content else []), *named, *_resolved(content["schema"]).get("examples", [])]


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    return TestClient(create_app(Settings(data_dir=tmp_path_factory.mktemp("data"))), base_url="http://127.0.0.1")


def test_only_verification_is_a_post_without_a_key_beside_the_calculators():
    posts = {path: item["post"] for path, item in document()["paths"].items() if "post" in item}
    assert {path for path, post in posts.items() if "security" not in post} == {*POSTS, "/v1/certificates/verify"}


@pytest.mark.parametrize("path", thinned(POSTS, every=4))
def test_every_post_has_examples_and_each_is_answered(client, path):
    examples = examples_of(path)
    assert examples, f"POST {path} has no example for the documentation page"
    for example in examples:
        answer = client.post(path, json=example)
        assert answer.status_code == 200, (example, answer.text)
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
    requests = [(path, example) for path in POSTS if not path.endswith("/batch") for example in examples_of(path)]
    answers = [client.post(path, json=example).json() for path, example in requests]
    answers += [client.get(path).json() for path in ("/v1/papers", "/v1/mechanisms", "/v1/algorithms")]
    named = set(_named_rows(answers))
    assert {"Z2", "C3", "S7", "P1", "O5"} <= named
    for row in sorted(named):
        assert client.get(f"/v1/errata/{row}").status_code == 200, row


def test_every_readable_path_answers_with_its_parameters_examples(client):
    filled = {"row": "Z2", "name": "laplace", "kind": "laplace", "paper": "zeta_dp"}
    tried = 0
    for path, item in document()["paths"].items():
        operation = item.get("get", {})
        if set(operation.get("tags", ())) & {"calculators", "papers"}:
            asked = [each for each in operation.get("parameters", ()) if each["in"] == "query" and "examples" in each["schema"]]
            query = {each["name"]: each["schema"]["examples"][0] for each in asked}
            answer = client.get(path.format(**filled), params=query)
            assert answer.status_code == 200, (path, answer.text)
            tried += 1
    assert tried >= 10
