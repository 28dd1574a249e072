"""The README and the handbook's pages: links lead somewhere, and their lines are what the command line, make and the API understand."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from fastapi.testclient import TestClient

from tests.app import documents
from tests.app.documents import DOCUMENTS, NAMES, PAGES, README, ROOT, Call
from tests.app.openapi_harness import document
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app
from zetadp.app.web.start import STEPS

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LONGEST_README = 120
SERVICE = "http://127.0.0.1:8000"
CALCULATING = ("/v1/profiles", "/v1/calibrations", "/v1/conversions", "/v1/compare/", "/v1/papers", "/v1/algorithms")
"""What answers without a key and without a worker: it is asked."""
NAMED_PATH = re.compile(r"`(?:(?:GET|POST|DELETE)(?:, (?:GET|POST|DELETE))* )?(/(?:v1|\.well-known)/[^`\s]*|/livez|/readyz|/metrics)`")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    return TestClient(create_app(Settings(data_dir=tmp_path_factory.mktemp("data"))), base_url=SERVICE)


def routes() -> dict[str, Any]:
    return document()["paths"]


def described(path: str, method: str | None = None) -> bool:
    """Whether the API has such a path; what a text writes in capitals or braces stands for any name."""
    wanted = re.sub(r"\{\w+\}|\b[A-Z]{2,}\b", "*", path.partition("?")[0])
    for route, operations in routes().items():
        pattern = re.escape(route).replace(r"\{", "{").replace(r"\}", "}")
        pattern = re.sub(r"\{[^}]*\}", r"[^/]+", pattern)
        if re.fullmatch(pattern, wanted) and (method is None or method.lower() in operations):
            return True
    return False


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= LONGEST_README


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_begins_with_what_it_is_for(path: Path) -> None:
    title, paragraph = path.read_text(encoding="utf-8").split("\n\n")[:2]
    assert title.startswith("# ")
    assert paragraph.startswith("This ")


@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_every_link_leads_to_a_file_and_a_heading_that_are_there(path: Path, client: TestClient) -> None:
    for target, heading in documents.links(path):
        if target.startswith("/"):
            assert client.get(target).status_code == 200, target
            continue
        file = (path.parent / target).resolve() if target else path
        assert file.is_file(), target
        assert file.is_relative_to(ROOT), target
        assert not heading or heading in documents.anchors(file), f"{target}#{heading}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_every_line_to_type_is_understood(path: Path, client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called = documents.calls(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for call in called:
        if call.program == "zetadp":
            documents.understand(list(call.arguments))
        elif call.program == "make":
            assert set(call.arguments) <= targets
        elif call.program == "pip":
            assert documents.extras(call.arguments) <= set(PROJECT["optional-dependencies"]), call.arguments
        elif call.program == "curl":
            ask(client, call.arguments)
    for arguments in documents.commands(path):
        documents.understand(arguments, whole=False)


def test_the_start_page_shows_the_lines_of_the_readme_which_are_typed_as_they_stand(client: TestClient, tmp_path: Path) -> None:
    text = client.get("/start").text
    shown = {name: html.unescape(lines) for name, lines in re.findall(r'<pre id="step-(\w+)"[^>]*>(.*?)</pre>', text, re.DOTALL)}
    assert list(shown) == [step.name for step in STEPS]
    assert documents.typed([shown.pop("serve")], tmp_path / "serve") == [Call("zetadp", ("serve", "--with-worker"))]
    of_readme = [call for call in documents.calls(README, tmp_path / "readme") if call.program != "make"]
    assert documents.typed(list(shown.values()), tmp_path / "page") == of_readme


@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_every_route_that_a_sentence_names_is_there(path: Path) -> None:
    named = NAMED_PATH.findall(path.read_text(encoding="utf-8"))
    assert [one for one in named if not described(one)] == []


SNIPPETS = [(path, block) for path in DOCUMENTS for block in documents.blocks(path, "python")]


@pytest.mark.slow  # each loads the libraries; the README's walk runs its first one, and looks at the figures
@pytest.mark.parametrize(("path", "block"), SNIPPETS)
def test_every_python_snippet_runs(path: Path, block: str, tmp_path: Path) -> None:
    if "torch" in block:
        pytest.importorskip("torch")
    command, environment = [sys.executable, "-W", "error", "-c", block], os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{path}: {done.stderr}"
    assert done.stdout


def ask(client: TestClient, arguments: tuple[str, ...]) -> None:
    """The request that curl would send: its route is described, and a calculator answers it."""
    rest = list(arguments)
    body = headers = None
    address = ""
    while rest:
        word = rest.pop(0)
        if word in {"-H", "-d"}:
            value = rest.pop(0)
            body, headers = (value, headers) if word == "-d" else (body, value)
        elif not word.startswith("-"):
            address = word
    assert address.startswith(SERVICE)
    path = urlsplit(address).path
    assert described(path, "GET" if body is None else "POST"), address
    if body is not None and not body.startswith("@"):
        json.loads(body)
    if path.startswith(CALCULATING):
        answer = client.get(path) if body is None else client.post(path, content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 200, answer.text
