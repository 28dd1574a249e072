"""The pages as the service sends them: forms with words for every field, a strict policy, and no text of others as markup."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from pydantic import TypeAdapter

from tests.selection import thinned
from zetadp.accountants.attack_sentences import strengths_in_words
from zetadp.app.calculators import catalogue
from zetadp.app.calculators.event_kinds import list_events
from zetadp.app.calculators.proofs import ProofEntry, list_proofs
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app
from zetadp.app.papers.router import REPORTS
from zetadp.app.web.forms import fields_of
from zetadp.app.web.layers import LAYERS
from zetadp.app.web.live_forms import COMPARISONS, NOISE_SHAPE, form_of
from zetadp.app.web.wording.declared_words import declared_words_of
from zetadp.app.web.wording.words import words_of
from zetadp.mechanisms import Adjacency
from zetadp.mechanisms.errata import ERRATA
from zetadp.trainer.specs.models.layer_spec import LayerSpec

SCRIPTS = Path(__file__).parents[2] / "app" / "web" / "static" / "js"
MECHANISMS = catalogue.list_mechanisms()
WITHOUT_FIELDS = {"correlated_noise": {"buffers"}}
"""What no field can hold, and the page of any event takes."""
ID = "0" * 32
OF_TENANTS = ("/jobs", "/jobs/new", f"/jobs/{ID}", "/ledgers", f"/ledgers/{ID}", "/certificates")
PAGES = (
    "/",
    "/calculators",
    "/calculators/training",
    "/calculators/event",
    "/papers",
    *(f"/papers/{paper}" for paper in REPORTS),
    "/comparisons",
    *(f"/comparisons/{name}" for name in COMPARISONS),
    "/noise-shapes",
    "/conversions",
    "/proofs",
    *(f"/proofs/{one.name}" for one in list_proofs()),
    "/vocabulary",
    "/start",
    *OF_TENANTS,
    *(f"/calculators/{one.kind}" for one in MECHANISMS),
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    return TestClient(create_app(Settings(data_dir=tmp_path_factory.mktemp("data"))), base_url="http://127.0.0.1")


@pytest.mark.parametrize("path", thinned(PAGES, every=4))
def test_a_page_runs_our_own_files_only(path: str, client: TestClient) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert re.findall(r"<script(?![^>]*\bsrc=)", answer.text) == []
    assert re.findall(r"\son\w+=|\sstyle=", answer.text) == []
    assert re.findall(r"(?:src|href)=\"(?!/|#|/static)", answer.text) == []


@pytest.mark.parametrize("path", thinned(PAGES, every=4))
def test_every_file_that_a_page_names_is_there(path: str, client: TestClient) -> None:
    named = re.findall(r'(?:src|href)="(/static/[^"]+)"', client.get(path).text)
    assert named
    assert [one for one in named if client.get(one).status_code != 200] == []


@pytest.mark.parametrize("path", thinned(PAGES, every=4))
def test_no_page_says_of_delta_that_epsilon_is_exceeded_with_it_or_calls_an_epsilon_alone_strong(path: str, client: TestClient) -> None:
    text = client.get(path).text
    # With (epsilon, delta) the loss may exceed epsilon with a larger probability than delta.
    assert "may be exceeded" not in text
    assert "except for outputs of probability delta" not in text
    assert "0.1 is strong" not in text


def test_pages_carry_the_words_that_scripts_read_and_no_others(client: TestClient) -> None:
    found = re.search(r'data-terms="([^"]*)"', client.get("/").text)
    assert found is not None
    terms = json.loads(html.unescape(found[1]))
    assert set(terms) == {"neighbours", "papers"}
    assert set(terms["neighbours"]) == {one.value for one in Adjacency}
    scripts = "".join(path.read_text() for path in SCRIPTS.glob("*.js"))
    for words in terms["neighbours"].values():
        assert [name for name in words if not re.search(rf"(words|neighbours|\))\??\.{name}\b|\{{ absent, present \}}", scripts)] == []
    assert strengths_in_words() in html.unescape(client.get("/vocabulary").text)


def test_pages_files_and_catalogues_go_out_compressed_and_other_answers_as_they_are(client: TestClient) -> None:
    for path in ("/", "/v1/algorithms", "/static/zetadp.css", "/static/vendor/redoc/redoc.standalone.js", "/openapi.json"):
        answer = client.get(path, headers={"accept-encoding": "gzip"})
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.content == client.get(path, headers={"accept-encoding": "identity"}).content
    assert "content-encoding" not in client.get("/v1/conversions", headers={"accept-encoding": "gzip"}).headers


@pytest.mark.parametrize("one", thinned(MECHANISMS, every=4), ids=lambda one: one.kind)
def test_every_field_of_a_mechanism_is_asked_for(one: catalogue.MechanismEntry, client: TestClient) -> None:
    text = client.get(f"/calculators/{one.kind}").text
    fields = fields_of(one.schema_, one.example, declared_words_of if one.declared else words_of)
    assert {field.path.split(".")[0] for field in fields} == set(one.schema_["properties"]) - {"kind"} - WITHOUT_FIELDS.get(one.kind, set())
    for field in fields:
        assert f'data-path="{field.path}"' in text
        assert f'for="{field.id}"' in text
        assert f'id="{field.id}-problem"' in text


@pytest.mark.parametrize(
    ("kind", "path", "allowed"),
    [
        ("laplace", "scale", "more than 0"),
        ("duchi_linf", "lower", ""),
        ("duchi_linf", "dimension", "1 to 1000000"),
        ("spof_coefficients", "upper", "only 1"),
        ("spectral", "kept", ""),
        ("complex_gaussian", "correlation", "more than -1 and less than 1"),
    ],
)
def test_limits_are_said_as_one_would_type_them(kind: str, path: str, allowed: str) -> None:
    one = next(one for one in catalogue.list_mechanisms() if one.kind == kind)
    assert next(field for field in fields_of(one.schema_, one.example) if field.path == path).allowed == allowed


@pytest.mark.parametrize("under", ["calculators", "comparisons", "jobs", "ledgers", "papers", "proofs"])
def test_what_isnt_there_is_said_not_to_be_and_its_name_is_only_text(under: str, client: TestClient) -> None:
    answer = client.get(f"/{under}/%3Cimg%20src=x%20onerror=alert(1)%3E")
    assert answer.status_code == 404
    assert "<img src=x" not in answer.text
    assert "&lt;img src=x" in answer.text


def test_a_browser_at_an_unknown_address_gets_a_page_that_leads_on_and_a_client_the_problem(client: TestClient) -> None:
    path, browser = "/nothing/%3Cb%3E", {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    shown = client.get(path, headers=browser)
    assert (shown.status_code, shown.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "default-src 'none'" in shown.headers["content-security-policy"]
    assert "<h1>There is no such page</h1>" in shown.text
    assert "<code>/nothing/&lt;b&gt;</code>" in shown.text
    assert '<a href="/calculators">' in shown.text
    for answer in (client.get(path), client.get("/v1/nothing", headers=browser), client.post(path, headers=browser)):
        assert (answer.status_code, answer.json()["type"]) == (404, "http-not-found")


@pytest.mark.parametrize("one", thinned(list_proofs(), every=5), ids=lambda one: one.name)
def test_a_proof_is_a_page_to_read_and_names_of_others_lead_to_them(one: ProofEntry, client: TestClient) -> None:
    text = client.get(f"/proofs/{one.name}").text
    assert f"<h1>{one.title}</h1>" in html.unescape(text)
    assert "**" not in re.sub(r"(?s)<(code|pre).*?</\1>", "", text)
    for named in set(re.findall(r'href="(/proofs/[a-z_]+)"', text)):
        assert client.get(named).status_code == 200


@pytest.mark.parametrize("one", thinned(MECHANISMS, every=5), ids=lambda one: one.kind)
def test_a_calculator_leads_to_its_proof(one: catalogue.MechanismEntry, client: TestClient) -> None:
    assert f'href="/proofs/{one.facts.proof.removesuffix(".md")}"' in client.get(f"/calculators/{one.kind}").text


@pytest.mark.parametrize("name", thinned(COMPARISONS, every=4))
def test_a_comparisons_page_asks_an_endpoint_that_is_there_and_says_what_each_field_means(name: str, client: TestClient) -> None:
    asked = COMPARISONS[name]
    assert asked.path == f"/v1/compare/{name}"
    assert client.post(asked.path, json=asked.request.model_json_schema()["examples"][0]).status_code == 200
    fields = form_of(asked)
    assert fields
    assert [field.path for field in fields if not field.help] == []
    # "Epsilon per record" is the parameter of one mechanism; printed statements are about others.
    assert {field.label for field in fields if field.path == "epsilon"} <= {"Epsilon"}


def test_the_best_shape_of_noise_can_be_asked_by_size_and_by_what_it_has_to_reach() -> None:
    paths = {field.path: field for field in form_of(NOISE_SHAPE)}
    assert {"total_std", "target.epsilon", "target.delta", "target.gdp_mu", "target.rdp.order", "sensitivity.l2_imag"} <= set(paths)
    assert not paths["target.rdp.order"].required  # only where a Renyi target is wanted at all


def test_the_lines_to_type_name_the_address_that_was_asked(client: TestClient) -> None:
    assert "curl -s http://127.0.0.1/v1/profiles" in client.get("/start").text


def test_a_budget_is_asked_for_with_neighbours_that_there_are(client: TestClient) -> None:
    choice = re.search(r'<select id="adjacency">(.*?)</select>', client.get("/ledgers").text)
    assert choice is not None
    assert re.findall(r'value="(\w+)"', choice[1]) == [one.value for one in Adjacency]


def test_what_is_only_declared_is_listed_apart_and_asked_for_without_what_it_cannot_have(client: TestClient) -> None:
    mechanisms, _, declared = client.get("/calculators").text.partition("What others ran")
    for one in MECHANISMS:
        assert f'href="/calculators/{one.kind}"' in (declared if one.declared else mechanisms)
    page = client.get("/calculators/pure_dp").text
    # That it stands or falls with the declaration is said with each answer.
    event = {"kind": "release", "mechanism": {"kind": "pure_dp", "epsilon": 1.0, "adjacency": "add_remove", "unit": "record"}}
    assert client.post("/v1/profiles", json={"event": event}).json()["caveats"][0].startswith("what is declared, unchecked, holds")
    assert 'name="mode" value="noise"' not in page
    assert "What papers print" not in page


def test_any_event_starts_from_one_of_each_kind(client: TestClient) -> None:
    page = client.get("/calculators/event").text
    examples = [json.loads(html.unescape(found)) for found in re.findall(r'<option value="([^"]+)">', page)]
    assert {one["kind"] for one in examples} == {one.kind for one in list_events()}
    assert {one["mechanism"]["kind"] for one in examples if one["kind"] == "release"} >= {one.kind for one in MECHANISMS if one.declared}


@pytest.mark.parametrize("layer", LAYERS, ids=lambda one: f"{one['kind']} {one.get('name', '')}")
def test_a_layer_that_the_form_adds_is_one_and_says_everything(layer: dict[str, object]) -> None:
    assert TypeAdapter(LayerSpec).validate_json(json.dumps(layer)).model_dump(mode="json") == layer


def test_all_errata_are_on_the_page(client: TestClient) -> None:
    text = client.get("/papers").text
    assert [row.row for row in ERRATA if f'<th scope="row">{row.row}</th>' not in text] == []
