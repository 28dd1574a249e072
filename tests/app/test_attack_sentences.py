"""Calculators, certificates and pages word an attack's success alike, and nobody else words it."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.app.calculators_harness import release
from tests.app.test_certificate_page import pdf_text
from zetadp import accountants, app, mechanisms, trainer
from zetadp.accountants.attack_sentences import guessing_sentence, naming_sentence
from zetadp.app.certificates.facts.guarantee import ApproximateDp
from zetadp.app.certificates.log.evidence import Evidence
from zetadp.app.certificates.page.html import html_of
from zetadp.app.certificates.page.pdf import pdf_of
from zetadp.app.certificates.page.plain import describe
from zetadp.app.certificates.page.rendering import rendered
from zetadp.app.certificates.signing.keys import PublicKeySet
from zetadp.app.certificates.verification.verify import read
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app
from zetadp.mechanisms import Adjacency, DuchiLinf

SOURCES = [
    path
    for package in (accountants, app, mechanisms, trainer)
    for path in Path(str(package.__file__)).parent.rglob("*")
    if path.suffix in {".py", ".js", ".html", ".md"} and not {"vendor", "swagger-ui"} & set(path.parts)
]
OF_A_POPULATION = re.compile(
    r"of the members\b|fraction of members|outsiders|recognis\w+ at most|wrongly accuse|right at most [^<]", re.IGNORECASE
)
OWN_WORDS = re.compile(r"that names this very|likely beforehand|% of the time")
"""What only the module of these sentences says."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    return TestClient(create_app(Settings(data_dir=tmp_path_factory.mktemp("data"))), base_url="http://127.0.0.1")


def test_no_source_says_anything_of_a_share_of_members() -> None:
    found = {path.name: match[0] for path in SOURCES if (match := OF_A_POPULATION.search(path.read_text()))}
    assert found == {}


def test_one_module_words_it() -> None:
    assert len(SOURCES) > 300
    found = {path.name for path in SOURCES if OWN_WORDS.search(path.read_text())}
    # The vocabulary quotes it, to say what it means.
    assert found == {"attack_sentences.py", "vocabulary.py"}


def test_the_same_numbers_are_the_same_sentence_everywhere(client: TestClient, envelope: bytes, keys: PublicKeySet) -> None:
    certificate = read(envelope)
    guarantee = certificate.guarantee
    assert isinstance(guarantee, ApproximateDp)
    pair = {"epsilon": float(guarantee.epsilon), "delta": float(guarantee.delta), "adjacency": "add_remove", "unit": "record"}
    event = {"kind": "release", "mechanism": {"kind": "approximate_dp", **pair}}
    # What the pages ask for wherever they show an epsilon and a delta.
    answer = client.post("/v1/profiles", json={"event": event, "alphas": [0.01], "priors": [0.5]}).json()
    (named,), (guessed,) = answer["trade_off"], answer["bayes_success"]
    assert named["sentence"] == naming_sentence(0.01, named["beta"], (Adjacency.ADD_REMOVE, "record"))
    assert guessed["sentence"] == guessing_sentence(0.5, guessed["success"], (Adjacency.ADD_REMOVE, "record"))
    document = rendered(envelope, keys, Evidence())
    for sentence in (named["sentence"], guessed["sentence"]):
        assert sentence in describe(certificate)
        assert sentence in document.verdict.lines
        assert sentence in html.unescape(html_of(document))
    assert " ".join(named["sentence"].split()) in " ".join(pdf_text(pdf_of(document)).split())


def test_a_calibration_to_a_trade_off_says_it_too(client: TestClient) -> None:
    asked = {"event": release(), "target": {"trade_off": {"alpha": 0.05, "beta": 0.9}}}
    reached = client.post("/v1/calibrations", json=asked).json()["guarantee"]["trade_off"]
    assert reached["sentence"] == naming_sentence(0.05, reached["beta"], (Adjacency.ADD_REMOVE, "record"))
    assert reached["beta"] >= 0.9


def test_without_a_guarantee_the_calculator_promises_nothing(client: TestClient) -> None:
    mixed = {"kind": "composed", "events": [release(), {"kind": "non_private", "reason": "published"}]}
    answer = client.post("/v1/profiles", json={"event": mixed, "alphas": [0.01], "priors": [0.5], "deltas": [1e-5]}).json()
    assert answer["epsilon"][0]["upper"] == "Infinity"
    assert answer["caveats"] == []  # there is nothing left that could be void
    for point in (*answer["trade_off"], *answer["bayes_success"]):
        assert point["sentence"].startswith("Nothing is promised: ")


def test_a_calculators_caveats_are_those_of_its_event(client: TestClient) -> None:
    sampled = {"kind": "poisson_sampled", "probability": 0.1, "event": release()}
    grouped = {"kind": "grouped", "size": 2, "unit": "person", "event": {"kind": "repeated", "count": 3, "event": sampled}}
    whole, of_groups = (client.post("/v1/profiles", json={"event": event}).json()["caveats"] for event in (release(), grouped))
    assert whole == [
        "no record moves a query by more than the stated sensitivity",
        "noise is independent across coordinates and releases, and exact: floating-point error can reveal records",
    ]
    assert of_groups == [
        whole[0],
        "no person holds more than the stated number of units",
        *whole[1:],
        "samples are drawn as stated, afresh and in secret",
    ]


def test_a_calculator_says_how_an_allocation_draws_steps_and_local_signs(client: TestClient) -> None:
    allocated = {"kind": "randomly_allocated", "steps": 4, "event": release()}
    signs = {"kind": "release", "mechanism": DuchiLinf.example().model_dump(mode="json", exclude_none=True)}
    of_steps, of_signs = (client.post("/v1/profiles", json={"event": event}).json()["caveats"] for event in (allocated, signs))
    assert of_steps[-1] == "every record's step is drawn uniformly, independently of all others, afresh in every epoch and in secret"
    assert of_signs == [
        "every record's values lie in the box, released no more often than stated",
        "signs are drawn with the stated probability, independently of everything else",
    ]
