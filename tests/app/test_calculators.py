from __future__ import annotations

import json
import math
import re

import pytest
from fastapi.testclient import TestClient

from tests.app.calculators_harness import SENSITIVITY, problem, release, sampled
from tests.app.jobs_harness import ADMIN_KEY, AUTHORIZED
from tests.selection import thinned
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app
from zetadp.mechanisms import DECLARED


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    app = create_app(Settings(data_dir=tmp_path_factory.mktemp("data")))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False, headers=AUTHORIZED) as client:
        app.state.keys.adopt(ADMIN_KEY)
        yield client


def test_a_profile_answers_all_its_lists_with_bounds_and_a_derivation(client):
    request = {"event": release(), "epsilons": [1.0], "deltas": [1e-5], "orders": [2.0], "alphas": [0.5], "derivation": True}
    answer = client.post("/v1/profiles", json=request).json()
    assert answer["delta"][0]["lower"] <= 0.12693673750664394 <= answer["delta"][0]["upper"]
    assert answer["delta"][0]["log_upper"] == pytest.approx(math.log(0.12693673750664394), rel=1e-12)
    assert answer["epsilon"][0]["upper"] == pytest.approx(4.3771780956812, rel=1e-12)
    assert answer["rdp"][0]["value"] == pytest.approx(1.0, rel=1e-12)
    assert answer["gdp_mu"] == 1.0
    assert answer["trade_off"][0]["beta"] == pytest.approx(0.15865525393145707, rel=1e-10)
    assert answer["route"] == "gdp"
    assert {"symbol", "value", "formula", "source"} == answer["derivation"][0].keys()


def test_a_derivation_is_made_only_for_whoever_asks(client, monkeypatch):
    request = {"event": release(), "deltas": [1e-5]}
    derived = client.post("/v1/profiles", json=request | {"derivation": True}).json()

    def unasked(_profile):
        raise AssertionError

    monkeypatch.setattr("zetadp.accountants.routes.closed.closed_form.GdpProfile.derivation", unasked)
    answer = client.post("/v1/profiles", json=request).json()
    assert answer["derivation"] is None
    assert answer["epsilon"] == derived["epsilon"]


def test_shuffled_batches_are_answered_between_both_ends_and_refused_for_one_record_more(client):
    def batches(adjacency):
        return {"kind": "shuffled", "steps": 10_000, "event": release(kind="gaussian", std=0.4, sensitivity={**SENSITIVITY, **adjacency})}

    request = {"epsilons": [4.0], "deltas": [1e-5], "derivation": True}
    answer = client.post("/v1/profiles", json={"event": batches({"adjacency": "zero_out"}), **request}).json()
    assert 0.2259 <= answer["delta"][0]["lower"] <= answer["delta"][0]["upper"] <= 0.2439
    assert answer["gdp_mu"] is None
    assert "not amplified" in answer["derivation"][0]["formula"]
    assert any("exactly one batch of an epoch" in caveat for caveat in answer["caveats"])
    refused = problem(client.post("/v1/profiles", json={"event": batches({}), **request}))
    assert refused["type"] == "unsupported-event"
    assert "one record more moves others to the next batches" in refused["detail"]


def test_infinite_epsilon_is_written_as_text(client):
    request = {"event": {"kind": "non_private", "reason": "raw data released"}, "deltas": [1e-5]}
    assert client.post("/v1/profiles", json=request).json()["epsilon"][0]["upper"] == "Infinity"


@pytest.mark.parametrize(
    ("correlation", "proven", "zeta", "federated"),
    [(0.0, 1.0, math.sqrt(0.5), 1.0), (0.5, math.sqrt(2.0), None, math.sqrt(8 / 3)), (0.9, math.sqrt(10.0), None, math.sqrt(2.8 / 0.19))],
)
def test_comparison_shows_the_printed_theorems_beside_the_proven_mu(client, correlation, proven, zeta, federated):
    answer = client.post(
        "/v1/compare/complex_gaussian", json={"mechanism": release(correlation=correlation)["mechanism"], "epsilons": [1.0]}
    ).json()
    assert answer["proven"]["gdp_mu"] == pytest.approx(proven, rel=1e-13)
    printed = {found["erratum"]: found["printed"] for found in answer["published"]}
    assert (printed["Z2"], printed["C3"]) == (zeta and pytest.approx(zeta), pytest.approx(federated))


def test_overclaiming_theorem_is_called_by_its_name(client):
    found = client.post("/v1/compare/complex_gaussian", json={"mechanism": release()["mechanism"]}).json()["published"][0]
    assert (found["direction"], found["erratum"]) == ("overclaims", "Z2")


@pytest.mark.parametrize("path", ["/v1/mechanisms", "/v1/accountants", "/v1/algorithms"])
def test_lists_name_their_sources(client, path):
    entries = client.get(path).json()
    assert entries
    assert all(entry.get("sources") or entry["facts"]["sources"] for entry in entries)


def test_every_mechanisms_example_is_accepted_as_it_is_shown(client):
    for entry in client.get("/v1/mechanisms").json():
        response = client.post("/v1/profiles", json={"event": {"kind": "release", "mechanism": entry["example"]}, "deltas": [1e-5]})
        assert response.status_code == 200, response.text


def test_what_is_only_declared_is_listed_as_such_and_its_answer_says_so(client):
    declared = {entry["kind"]: entry for entry in client.get("/v1/mechanisms").json() if entry["declared"]}
    assert declared.keys() == {one.kind_name() for one in DECLARED}
    assert (declared["pure_dp"]["noisy"], declared["noisy_max"]["noisy"]) == (False, True)
    for entry in declared.values():
        answer = client.post("/v1/profiles", json={"event": {"kind": "release", "mechanism": entry["example"]}, "deltas": [1e-5]}).json()
        assert any("declared" in caveat for caveat in answer["caveats"])


def test_every_kind_of_event_is_listed_with_an_example_that_is_accepted_and_a_schema_whose_parts_are_in_the_document(client):
    document, entries = client.get("/openapi.json").json(), client.get("/v1/events").json()
    assert {entry["kind"] for entry in entries} == set(document["components"]["schemas"]["Event"]["discriminator"]["mapping"])
    for entry in entries:
        assert entry["summary"].endswith(".")
        assert client.post("/v1/profiles", json={"event": entry["example"], "deltas": [1e-5]}).status_code == 200
        assert entry["schema"]["properties"].keys() == entry["example"].keys()
        for reference in re.findall(r"/openapi.json#/components/schemas/(\w+)", json.dumps(entry["schema"])):
            assert reference in document["components"]["schemas"]
        assert entry["proof"] is None or client.get(entry["proof"]).status_code == 200


def test_the_accountants_of_a_request_are_the_registered_ones(client):
    registered = [entry["name"] for entry in client.get("/v1/accountants").json()]
    field = client.get("/openapi.json").json()["components"]["schemas"]["ProfileRequest"]["properties"]["accountant"]
    assert field["enum"] == registered


def test_a_proof_is_served(client):
    assert "**Proof.**" in client.get("/v1/mechanisms/laplace/proof").json()["markdown"]


def test_an_unknown_proof_is_refused_with_the_kinds_there_are(client):
    assert "one of gaussian, complex_gaussian, laplace" in problem(client.get("/v1/mechanisms/spof/proof"))["detail"]


BAD = {
    "misspelled field": ({"event": release(sttd=1.0)}, "event.mechanism.sttd: there is no field with this name"),
    "missing field": (
        {"event": {"kind": "release", "mechanism": {"kind": "gaussian", "sensitivity": SENSITIVITY}}},
        "event.mechanism.std: this field is required",
    ),
    "missing event": ({}, "event: this field is required"),
    "unknown kind": ({"event": {"kind": "relase"}}, "'release', 'poisson_sampled'"),
    "negative std": ({"event": release(std=-1)}, "event.mechanism.std: must be >= 1e-50, got -1"),
    "text for a number": ({"event": release(std="1")}, "event.mechanism.std: must be a valid number, got '1'"),
    "true for a number": ({"event": release(std=True)}, "event.mechanism.std: must be a valid number, got True"),
    "correlation 1": ({"event": release(correlation=1)}, "event.mechanism.correlation: must be < 1, got 1"),
    "correlation -1.5": ({"event": release(correlation=-1.5)}, "event.mechanism.correlation: must be > -1, got -1.5"),
    "part above whole": (
        {"event": release(sensitivity={**SENSITIVITY, "l2_real": 2.0})},
        "event.mechanism.sensitivity.l2_real: must be <= l2 = 1.0, got 2.0",
    ),
    "no adjacency": (
        {"event": release(sensitivity={"l2": 1.0, "unit": "record"})},
        "event.mechanism.sensitivity.adjacency: this field is required",
    ),
    "no unit": (
        {"event": release(sensitivity={"l2": 1.0, "adjacency": "add_remove"})},
        "event.mechanism.sensitivity.unit: this field is required",
    ),
    "delta 0": ({"event": release(), "deltas": [0.0]}, "deltas[0]: must be > 0, got 0.0"),
    "delta 1": ({"event": release(), "deltas": [1e-5, 1.0]}, "deltas[1]: must be < 1, got 1.0"),
    "order 1": ({"event": release(), "orders": [1]}, "orders[0]: must be > 1, got 1"),
    "probability 2": ({"event": sampled(probability=2)}, "event.probability: must be <= 1, got 2"),
    "mixed units": (
        {"event": {"kind": "composed", "events": [release(), release(sensitivity={**SENSITIVITY, "unit": "user"})]}},
        "all parts of an event must have the same unit, got 'record' and 'user'",
    ),
    "unknown accountant": ({"event": release(), "accountant": "clt"}, "accountant: must be 'auto', 'gdp'"),
    "accountant that can't": ({"event": sampled(), "accountant": "gdp"}, "a Poisson-sampled Gaussian has no closed form"),
    "below the floor": ({"event": sampled(), "accountant": "pld", "deltas": [1e-12]}, "beyond this route's floor of 1e-08"),
    "list for an object": ([], "body: must be"),
}


@pytest.mark.parametrize("name", thinned(BAD, every=5))
def test_bad_input_is_answered_with_the_field_and_what_was_expected(client, name):
    body, text = BAD[name]
    assert text in problem(client.post("/v1/profiles", json=body))["detail"]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_not_finite_are_refused(client, number):
    text = json.dumps({"event": release(std=12345.0)}).replace("12345.0", number)
    body = problem(client.post("/v1/profiles", content=text, headers={"content-type": "application/json"}))
    assert "event.mechanism.std: must be a finite number" in body["detail"]


@pytest.mark.parametrize("levels", [65, 90, 10_000])
def test_an_event_nested_too_deep_is_refused(client, levels):
    text = '{"event":' + '{"kind":"repeated","count":1,"event":' * (levels - 1) + json.dumps(release()) + "}" * levels
    body = problem(client.post("/v1/profiles", content=text, headers={"content-type": "application/json"}))
    assert "nested at most 64 deep" in body["detail"] or "at most 200 levels" in body["detail"]


@pytest.mark.parametrize("text", thinned(["", "{", "\x00", '{"event": ' + "9" * 5000 + "}", '"\\ud800"', "\udcff", "[" * 10_000], every=3))
def test_text_that_is_not_a_request_is_refused(client, text):
    content = text.encode("utf-8", "surrogateescape")
    problem(client.post("/v1/profiles", content=content, headers={"content-type": "application/json"}))


def test_a_body_beyond_the_limit_is_refused(client):
    body = problem(client.post("/v1/profiles", content=b" " * (2**20 + 1), headers={"content-type": "application/json"}), 413)
    assert body["detail"] == "expected at most 1048576 bytes"


def test_an_unknown_path_is_a_problem_too(client):
    problem(client.get("/v1/nothing"), 404)


@pytest.mark.parametrize("host", ["attacker.example", "attacker.example:8000", "127.0.0.1.attacker.example", "", "[attacker.example]"])
def test_a_foreign_host_name_is_refused(client, host):
    refused = problem(client.get("/v1/mechanisms", headers={"host": host}), 400)
    assert "expected an address, a name without a dot, or one of" in refused["detail"]


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost", "[::1]:8000", "zetadp"])
def test_a_local_host_name_is_answered(client, host):
    assert client.get("/livez", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("path", ["/docs", "/redoc"])
def test_a_documentation_page_loads_nothing_from_elsewhere(path, client):
    page = client.get(path)
    assert "http" not in page.text
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    named = re.findall(r'(?:src|href)="(/[^"]*)"', page.text)
    assert [one for one in named if client.get(one).status_code != 200] == []


def test_the_description_is_openapi_3_1_and_names_every_path_of_the_design(client):
    description = client.get("/openapi.json").json()
    assert description["openapi"].startswith("3.1")
    names = ("profiles", "profiles/batch", "calibrations", "calculations", "mechanisms", "accountants", "algorithms")
    compared = ("complex_gaussian", "zeta_dp_sgd_step", "zeta_dp_means", "zeta_dp_lipschitz")
    calculators = {f"/v1/{name}" for name in (*names, "noise-shapes", *(f"compare/{name}" for name in compared))}
    jobs = {f"/v1/jobs{rest}" for rest in ("", "/{job_id}", "/{job_id}/events", "/{job_id}/cancel", "/{job_id}/artifacts")}
    certificates = {"/v1/certificates/{certificate_id}", "/v1/certificates/verify", "/.well-known/jwks.json"}
    assert calculators | jobs | certificates <= description["paths"].keys()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda client: client.get("/v1/jobs?limit=0"), "limit: must be >= 1, got '0'"),
        (lambda client: client.get("/v1/jobs?state=done"), "state"),
        (lambda client: client.get("/v1/jobs?cursor=xyz"), "cursor"),
        (lambda client: client.post("/v1/jobs", json={}, headers={"Idempotency-Key": "a b"}), "idempotency-key"),
    ],
)
def test_bad_query_parameters_and_headers_are_named(client, call, text):
    assert text in problem(call(client))["detail"]
