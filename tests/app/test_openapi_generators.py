"""The service's description suits generators of clients: what it says is unambiguous, and the clients that they make from it work.

The slow tests run the generators and linters that ``make generators`` installs; without them they are skipped with that reason.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.app.fake_child import Order
from tests.app.jobs_harness import ADMIN_KEY, serving, settings, spec, working
from tests.app.openapi_harness import document
from zetadp.app.calculators.schemas import TRAINING
from zetadp.app.kit.openapi_schemas import PREFIX, nodes, simplify

ROOT = Path(__file__).parents[2]
FILES = ROOT / "tests" / "generators"
TOOLS = ROOT / "build" / "generators"
LONGEST_ID = 32

REQUESTS = {
    "profile": {"event": TRAINING, "deltas": [1e-5], "epsilons": [1.0]},
    "calibration": {"event": TRAINING, "target": {"epsilon": 1.0, "delta": 1e-5}},
    "short": {"noise_multiplier": 1.0, "sampling_probability": 0.01, "steps": 1000, "delta": 1e-5},
    "job": {"spec": spec(), "runtime": {"microbatch_size": int(Order.FINISH), "checkpoint_seconds": 0.01}},
}


def _operations() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def _schemas() -> dict[str, dict[str, Any]]:
    return document()["components"]["schemas"]


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    return _schemas()[schema["$ref"].removeprefix(PREFIX)] if "$ref" in schema else schema


def test_operation_ids_are_short_names_and_none_is_given_twice() -> None:
    ids = [operation["operationId"] for _, operation in _operations()]
    assert [name for name, count in Counter(ids).items() if count > 1] == []
    assert [name for name in ids if re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) is None or len(name) > LONGEST_ID] == []


def test_every_model_has_one_schema_and_a_short_name() -> None:
    assert [name for name in _schemas() if re.fullmatch(r"[A-Z][A-Za-z0-9]*", name) is None] == []


def test_no_two_schemas_have_the_same_title() -> None:
    titles = Counter(node["title"] for node in nodes(document()) if isinstance(node.get("title"), str))
    assert [title for title, count in titles.items() if count > 1] == []
    assert [name for name, schema in _schemas().items() if schema.get("title", name) != name] == []


def test_it_names_its_licence_its_server_and_what_each_tag_is_about() -> None:
    assert document()["info"]["license"]["identifier"] == "Apache-2.0"
    assert [server["url"] for server in document()["servers"]] == ["/"]
    described = {tag["name"] for tag in document()["tags"] if tag["description"]}
    assert described == {tag for _, operation in _operations() for tag in operation["tags"]}


def test_every_body_has_an_example() -> None:
    missing = []
    for name, operation in _operations():
        for kind, content in operation.get("requestBody", {}).get("content", {}).items():
            if "example" not in content and not _resolved(content["schema"]).get("examples"):
                missing.append((name, kind))
    assert missing == []


def test_every_answer_says_what_is_in_it_for_each_media_type() -> None:
    untyped = [
        (name, status, kind)
        for name, operation in _operations()
        for status, response in operation["responses"].items()
        for kind, content in response.get("content", {}).items()
        if not content.get("schema")
    ]
    empty = [
        name
        for name, operation in _operations()
        for status, answer in operation["responses"].items()
        if status == "200" and "content" not in answer
    ]
    assert (untyped, empty) == ([], [])


def test_a_signed_certificate_is_described_as_an_envelope() -> None:
    content = document()["paths"]["/v1/certificates/{certificate_id}"]["get"]["responses"]["200"]["content"]
    assert content["application/vnd.dsse.envelope.v1+json"]["schema"] == {"$ref": PREFIX + "Envelope"}


def test_event_streams_are_described_as_openapi_3_1_can() -> None:
    assert document()["openapi"].startswith("3.1")
    assert [node for node in nodes(document()) if "itemSchema" in node] == []
    streams = [
        content["text/event-stream"]["schema"]["type"]
        for _, operation in _operations()
        if "text/event-stream" in (content := operation["responses"].get("200", {}).get("content", {}))
    ]
    assert streams == ["string"] * 3


def test_no_enum_has_members_that_differ_by_case_alone() -> None:
    enums = [node["enum"] for node in nodes(document()) if isinstance(node.get("enum"), list)]
    assert len(enums) > 20
    assert [members for members in enums if len({str(member).lower() for member in members}) < len(members)] == []


def test_every_union_of_models_says_which_field_tells_them_apart_and_they_all_require_it() -> None:
    unions = 0
    for node in nodes(document()):
        members = [one for key in ("anyOf", "oneOf") for one in node.get(key, ()) if _resolved(one).get("type") == "object"]
        if len(members) < 2:
            continue
        unions += 1
        name, mapping = node["discriminator"]["propertyName"], node["discriminator"]["mapping"]
        assert {one["$ref"] for one in members} == set(mapping.values())
        for value, reference in mapping.items():
            model = _schemas()[reference.removeprefix(PREFIX)]
            assert name in model["required"], (reference, name)
            assert model["properties"][name].get("const", value) == value
    assert unions > 20


def test_a_union_of_four_and_more_that_is_used_again_is_described_once_by_its_name() -> None:
    inline = Counter(
        frozenset(one["$ref"] for one in node["oneOf"])
        for node in nodes(document())
        if "oneOf" in node and "discriminator" in node and not any(node is named for named in _schemas().values())
    )
    again = [sorted(members) for members, count in inline.items() if count > 1 and len(members) > 3]
    assert again == []
    assert {"Event", "DataSpec", "TrainingSpec"} <= {name for name, schema in _schemas().items() if "oneOf" in schema}
    assert _schemas()["ProfileRequest"]["properties"]["event"]["$ref"] == PREFIX + "Event"


def test_every_reference_leads_to_a_schema_and_every_schema_is_referred_to() -> None:
    named = {node["$ref"].removeprefix(PREFIX) for node in nodes(document()) if isinstance(node.get("$ref"), str)}
    assert named == _schemas().keys()


def test_no_default_is_an_object_since_generators_have_no_constants_for_these() -> None:
    assert [node for node in nodes(document()) if isinstance(node.get("default"), dict)] == []
    assert _schemas()["JobSubmission"]["properties"]["runtime"]["description"].startswith('Default: {"device"')


def test_two_models_of_one_name_are_refused() -> None:
    twins = {"A-Input": {"type": "object"}, "A": {"type": "string"}}
    with pytest.raises(AssertionError, match="two models are called A"):
        simplify({"info": {}, "paths": {}, "components": {"schemas": twins}})


def test_of_a_models_two_schemas_the_one_of_requests_stays() -> None:
    twins = {
        "A-Output": {"required": ["x"], "properties": {"x": {}}},
        "A-Input": {"properties": {"x": {"title": "X"}, "title": {"default": 1}}},
    }
    made = {"info": {}, "paths": {"/": {"$ref": PREFIX + "A-Output"}, "/b": {"$ref": PREFIX + "A-Input"}}, "components": {"schemas": twins}}
    simplify(made)
    assert made["components"]["schemas"] == {"A": {"properties": {"x": {}, "title": {"default": 1}}}}
    assert made["paths"] == {"/": {"$ref": PREFIX + "A"}, "/b": {"$ref": PREFIX + "A"}}


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("described") / "openapi.json"
    path.write_text(json.dumps(document()))
    return path


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The address of a service with a worker."""
    of = settings(tmp_path_factory.mktemp("service"))
    with serving(of) as client, working(of):
        yield str(client.base_url).rstrip("/")


def _tool(name: str, needs: str) -> str:
    """The path of a generator or linter; skips the test where it, or what it needs, isn't there."""
    found = next((path for path in (TOOLS / "bin" / name, TOOLS / "node_modules" / ".bin" / name) if path.exists()), None)
    if found is None or shutil.which(needs) is None:
        pytest.skip(f"there is no {name}: run make generators" if found is None else f"{name} needs {needs}")
    return str(found)


def _ran(*command: str, cwd: Path, entered: str = "") -> str:
    """What a command wrote; it has to succeed."""
    path = f"{TOOLS / 'bin'}:/usr/local/bin:/usr/bin:/bin"
    environment = {"PATH": path, "HOME": str(cwd), "PYTHONPATH": str(cwd), "CI": "true"}
    done = subprocess.run(command, cwd=cwd, env=environment, input=entered, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout + done.stderr


def _check(answer: dict[str, Any]) -> None:
    """What a generated client got is what the service answers."""
    assert answer["profile"]["epsilon"][0]["upper"] == pytest.approx(1.82824, abs=1e-5)
    assert answer["calibration"]["guarantee"]["epsilon"]["upper"] <= 1.0
    assert answer["short"]["kind"] == "profile"
    assert answer["short"]["profile"]["epsilon"][0]["upper"] == pytest.approx(1.82824, abs=1e-5)
    assert '"succeeded"' in answer["followed"]
    assert answer["job"]["state"] == "succeeded"
    assert answer["payload_type"] == "application/vnd.in-toto+json"
    assert answer["report"]["verdict"] == "valid"


@pytest.mark.slow
def test_openapi_python_client_runs_clean_and_its_client_works(described: Path, service: str, tmp_path: Path) -> None:
    generator = _tool("openapi-python-client", "python3")
    config = str(FILES / "openapi_python_client.json")
    told = _ran(generator, "generate", "--path", str(described), "--config", config, "--output-path", str(tmp_path / "made"), cwd=tmp_path)
    assert re.findall(r"WARNING|ERROR|Unable", told) == []
    (tmp_path / "made" / "zetadp_client").rename(tmp_path / "zetadp_client")
    everything = "import pkgutil, zetadp_client as z; [__import__(m.name) for m in pkgutil.walk_packages(z.__path__, 'zetadp_client.')]"
    _ran(_tool("python", "python3"), "-c", everything, cwd=tmp_path)
    user = [_tool("python", "python3"), str(FILES / "openapi_python_client.py"), service, ADMIN_KEY]
    _check(json.loads(_ran(*user, cwd=tmp_path, entered=json.dumps(REQUESTS))))


@pytest.mark.slow
def test_openapi_generator_runs_clean_and_its_python_client_works(described: Path, service: str, tmp_path: Path) -> None:
    generator = _tool("openapi-generator-cli", "java")
    told = _ran(generator, "generate", "-i", str(described), "-g", "python", "-o", str(tmp_path), cwd=tmp_path)
    assert re.findall(r"(?m)^.*\b(?:ERROR|Exception)\b.*$", told) == []
    everything = "import pkgutil, openapi_client as z; [__import__(m.name) for m in pkgutil.walk_packages(z.__path__, 'openapi_client.')]"
    _ran(_tool("python", "python3"), "-c", everything, cwd=tmp_path)
    user = [_tool("python", "python3"), str(FILES / "openapi_generator.py"), service, ADMIN_KEY]
    _check(json.loads(_ran(*user, cwd=tmp_path, entered=json.dumps(REQUESTS))))


@pytest.mark.slow
def test_openapi_generator_runs_clean_and_its_typescript_client_works(described: Path, service: str, tmp_path: Path) -> None:
    compiler, generator = _tool("tsc", "node"), _tool("openapi-generator-cli", "java")
    told = _ran(generator, "generate", "-i", str(described), "-g", "typescript-fetch", "-o", str(tmp_path / "client"), cwd=tmp_path)
    assert re.findall(r"(?m)^.*\b(?:ERROR|Exception)\b.*$", told) == []
    shutil.copy(FILES / "openapi_generator.ts", tmp_path / "use.ts")
    options = ("--strict", "--target", "es2022", "--module", "commonjs", "--lib", "es2022,dom", "--outDir", "out")
    _ran(compiler, *options, "use.ts", cwd=tmp_path)
    answer = _ran("node", "out/use.js", service, ADMIN_KEY, json.dumps(REQUESTS), cwd=tmp_path)
    _check(json.loads(answer))


@pytest.mark.slow
def test_openapi_typescript_runs_clean_and_its_types_are_right(described: Path, tmp_path: Path) -> None:
    compiler, generator = _tool("tsc", "node"), _tool("openapi-typescript", "node")
    _ran(generator, str(described), "-o", "types.d.ts", cwd=tmp_path)
    used = 'import type { components, operations } from "./types";\n'
    used += f"const event: components['schemas']['ProfileRequest']['event'] = {json.dumps(TRAINING)};\n"
    used += "const query: operations['account_dp_sgd']['parameters']['query'] = { sampling_probability: 0.1, steps: 1, delta: 1e-5 };\n"
    (tmp_path / "use.ts").write_text(used + "console.log(event, query);\n")
    _ran(compiler, "--strict", "--noEmit", "use.ts", cwd=tmp_path)
    (tmp_path / "use.ts").write_text(used.replace('"kind": "complex_gaussian"', '"kind": "complex"'))
    with pytest.raises(AssertionError, match="TS2322"):
        _ran(compiler, "--strict", "--noEmit", "use.ts", cwd=tmp_path)


@pytest.mark.slow
def test_redocly_finds_no_error_and_no_warning(described: Path, tmp_path: Path) -> None:
    told = _ran(_tool("redocly", "node"), "lint", str(described), "--format", "json", cwd=tmp_path)
    totals = json.loads(told[told.index("{") : told.rindex("}") + 1])["totals"]
    assert (totals["errors"], totals["warnings"]) == (0, 0)


@pytest.mark.slow
def test_spectral_finds_no_error(described: Path, tmp_path: Path) -> None:
    command = (_tool("spectral", "node"), "lint", str(described), "-r", str(FILES / "spectral.yaml"), "--format", "json", "--quiet")
    found = json.loads(_ran(*command, cwd=tmp_path)[:None])
    assert [one for one in found if one["severity"] == 0] == []
