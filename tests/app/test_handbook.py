"""The handbook: built without a network, complete, and served under the policy of all pages; or a page that says how to build it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from handbook.generated import filled, settings_table
from tests.app.documents import ROOT, build, building
from zetadp.app.calculators.proofs import list_proofs
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app
from zetadp.app.web.rendering import HEADERS
from zetadp.app.web.wording.vocabulary import VOCABULARY


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make docs` builds it, in a folder of its own."""
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("handbook")
    build(folder)
    return folder


@pytest.fixture(scope="module")
def client(built: Path, tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    return _client(tmp_path_factory.mktemp("data"), built)


def _client(data: Path, handbook: Path) -> TestClient:
    return TestClient(create_app(Settings(data_dir=data, handbook_dir=handbook)), base_url="http://127.0.0.1")


@pytest.mark.slow  # each builds a handbook of one page; that of all has no such link
@pytest.mark.parametrize(("link", "told"), [("other.md", "not found"), ("#nothing", "no such anchor"), ("../README.md", "not found")])
def test_a_link_that_leads_nowhere_fails_the_build(link: str, told: str, tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pages = tmp_path / "docs"
    pages.mkdir()
    (pages / "handbook.css").touch()
    (pages / "index.md").write_text(f"# One page\n\nA [link]({link}).\n")
    own = {"INHERIT": str(ROOT / "mkdocs.yml"), "docs_dir": str(pages), "hooks": [str(ROOT / "handbook/hooks.py")]}
    (tmp_path / "mkdocs.yml").write_text(json.dumps(own | {"nav": ["index.md", "durability.md"]}))
    done = building(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode == 1
    assert told in done.stderr
    (pages / "index.md").write_text("# One page\n\nA [link](durability.md).\n")
    assert building(tmp_path / "mkdocs.yml", tmp_path / "site").returncode == 0


@pytest.mark.slow
def test_every_page_and_every_proof_is_in_it(client: TestClient) -> None:
    pages = [path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")]
    for path in [*pages, "durability.html", *(f"proofs/{one.name}.html" for one in list_proofs())]:
        answer = client.get(f"/handbook/{path}")
        assert answer.status_code == 200, path
        assert "<!-- generated" not in answer.text
    assert "AES-256 in counter mode" in client.get("/handbook/limits.html").text
    assert client.get("/handbook").url.path == "/handbook/"


@pytest.mark.slow
def test_every_file_runs_under_the_policy_of_all_pages_and_names_no_other_host(client: TestClient, built: Path) -> None:
    for path in built.rglob("*.html"):
        answer = client.get(f"/handbook/{path.relative_to(built)}")
        assert HEADERS.items() <= dict(answer.headers).items()
        assert re.findall(r"<script(?![^>]*\bsrc=)(?![^>]*\btype=\"?application/json)", answer.text) == []
        assert re.findall(r"<[^>]*\s(?:on\w+|style)=|<style", answer.text) == []
        assert re.findall(r"(?:src|href)=\"?(?:https?:)?//", answer.text) == []
    script = next(built.glob("assets/javascripts/bundle.*.js")).name
    assert client.get(f"/handbook/assets/javascripts/{script}").headers["x-content-type-options"] == "nosniff"


@pytest.mark.slow
def test_every_link_within_it_leads_to_a_file(built: Path) -> None:
    for path in built.rglob("*.html"):
        named = re.findall(r"(?:src|href)=\"?([^\"#?\s>]+)", path.read_text(encoding="utf-8"))
        assert [one for one in named if not one.startswith("/") and not (path.parent / one).exists()] == []


@pytest.mark.slow
def test_proofs_look_as_on_the_services_own_pages(client: TestClient) -> None:
    for one in list_proofs():
        shown, ours = client.get(f"/handbook/proofs/{one.name}.html").text, client.get(f"/proofs/{one.name}").text
        told = [
            _words(text)
            for text in re.findall(r"(?s)<(?:p|li|h2|td)>(.*?)</(?:p|li|h2|td)>", ours.partition("<main")[2].partition("</main>")[0])
        ]
        assert [text for text in told if text not in _words(shown)] == []


@pytest.mark.slow
@pytest.mark.parametrize("path", ["no.html", "../app/main.py", "%2e%2e/%2e%2e/pyproject.toml", "..%2f..%2fpyproject.toml", "proofs"])
def test_what_isnt_in_it_is_said_not_to_be(path: str, client: TestClient) -> None:
    answer = client.get(f"/handbook/{path}")
    assert answer.status_code == 404
    assert "mechanisms" not in answer.text


def test_where_nobody_built_it_a_page_says_how(tmp_path: Path) -> None:
    client = _client(tmp_path / "data", tmp_path / "nothing")
    for path in ("/handbook/", "/handbook/limits.html"):
        answer = client.get(path)
        assert answer.status_code == 404
        assert "run <code>make docs</code> on this machine" in answer.text
    (tmp_path / "nothing").mkdir()
    (tmp_path / "nothing" / "index.html").write_text("built meanwhile")
    assert client.get("/handbook/").text == "built meanwhile"


def test_every_setting_is_in_it_with_a_meaning() -> None:
    rows = re.findall(r"^\| `(ZETADP_\w+)` \| (.+?) \| (.+) \|$", settings_table(), re.MULTILINE)
    assert [name for name, _, _ in rows] == [f"ZETADP_{name.upper()}" for name in Settings.model_fields]
    assert [name for name, _, meaning in rows if len(meaning) < 10] == []


def test_every_setting_that_a_page_names_is_there() -> None:
    known = {f"ZETADP_{name.upper()}" for name in Settings.model_fields} | {"ZETADP_KEY", "ZETADP_SITE_SOCKET"}
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        named = re.findall(r"ZETADP_[A-Z]\w*", path.read_text(encoding="utf-8"))
        assert set(named) <= known, path


def test_its_vocabulary_is_the_services() -> None:
    made = filled((ROOT / "docs" / "vocabulary.md").read_text(encoding="utf-8"))
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", made, re.MULTILINE)
    assert tuple(row for row in rows if row[0] not in {"word", "---"}) == VOCABULARY


def _words(text: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", "", text).split())
