"""Certificates of local releases: box, epsilon and groups are said as they are, and checked against the event."""

from __future__ import annotations

import json

import pytest

from accountants.events import Event, FixedSizeSampled, Grouped, PoissonSampled, Repeated
from app.certificates.claims import guarantee_of
from app.certificates.consistency import check_words
from app.certificates.facts import BoxFacts, GroupFacts, ReleaseFacts, largest_group, releases_of
from app.certificates.guarantee import ApproximateDp
from app.certificates.issue import CertificateInput, predicate_of
from app.certificates.recomputation import check_figures
from app.certificates.report import Check, Status
from app.certificates.statement import PrivacyCertificate
from app.certificates.text import describe
from mechanisms import RandomOrigin
from tests.accountants.two_point_truth import local_laplace, response
from trainer.data import data_set_facts

EVENTS: dict[str, Event] = {
    "whole": Repeated(count=20, event=response(0.5)),
    "even": Repeated(count=20, event=response(0.5, dimension=14)),
    "users": Grouped(size=4, unit="user", event=Repeated(count=5, event=response(0.25))),
    "sampled": Repeated(count=50, event=PoissonSampled(probability=0.1, event=response(0.5))),
    "fixed size": Repeated(count=50, event=FixedSizeSampled(sample_size=10, population_size=100, event=local_laplace(0.5))),
}


def test_a_local_release_is_stated_with_its_box_and_its_parameter() -> None:
    duchi = releases_of(EVENTS["even"])[0].mechanism
    assert (duchi.kind, duchi.epsilon, duchi.laplace_scale) == ("duchi_linf", "0.5", None)
    assert duchi.box == BoxFacts(lower="0.0", upper="1.0", dimension=14)
    noise = releases_of(EVENTS["fixed size"])[0].mechanism
    assert (noise.kind, noise.epsilon, noise.laplace_scale) == ("local_laplace", None, "4.0")
    assert noise.box == BoxFacts(lower="0.0", upper="1.0", dimension=2)


def test_a_group_of_local_releases_is_stated_although_each_is_accounted_by_itself() -> None:
    assert largest_group(EVENTS["users"]) == 4
    (facts,) = releases_of(EVENTS["users"])
    assert (facts.group, facts.count) == (GroupFacts(size=4, of="record"), 5)


@pytest.mark.parametrize("name", EVENTS)
def test_facts_survive_their_json(name: str) -> None:
    for facts in releases_of(EVENTS[name]):
        assert ReleaseFacts.model_validate_json(facts.model_dump_json()) == facts


@pytest.mark.parametrize("name", EVENTS)
def test_figures_are_recomputed_and_a_smaller_epsilon_is_caught(name: str) -> None:
    guarantee = guarantee_of(EVENTS[name], 1e-5, RandomOrigin.OPERATING_SYSTEM)
    assert isinstance(guarantee, ApproximateDp)
    assert [check for check in check_figures(EVENTS[name], guarantee) if check.status is Status.FAILED] == []
    smaller = ApproximateDp.model_validate({**dict(guarantee), "epsilon": f"{0.9 * float(guarantee.epsilon):.6f}", "epsilon_lower": "0"})
    assert Status.FAILED in {check.status for check in check_figures(EVENTS[name], smaller)}


@pytest.fixture(scope="module")
def predicate(run: CertificateInput) -> PrivacyCertificate:
    return predicate_of(run, data_set_facts(run.spec.data))


def words(predicate: PrivacyCertificate, *, units_are_records: bool) -> Check:
    event = EVENTS["users"]
    document = json.loads(predicate.model_dump_json())
    document |= {"event": json.loads(event.model_dump_json())}
    document |= {"releases": [json.loads(facts.model_dump_json()) for facts in releases_of(event)]}
    document["neighbourhood"] |= {
        "adjacency": "replace_one",
        "meaning": "two data sets are neighbours if one is the other with one unit replaced by another",
        "unit": "user",
    }
    document["steps"] = {"planned": 5, "released": 5}
    document["data"] |= {"units_are_records": units_are_records}
    return check_words(PrivacyCertificate.model_validate_json(json.dumps(document)))


def test_users_of_many_records_are_not_called_records(predicate: PrivacyCertificate) -> None:
    found = words(predicate, units_are_records=True)
    assert "data.units_are_records: the certificate says True, its event has groups of up to 4" in found.detail
    assert "units_are_records" not in words(predicate, units_are_records=False).detail


def test_text_tells_box_epsilon_and_group(predicate: PrivacyCertificate) -> None:
    event = EVENTS["users"]
    text = describe(PrivacyCertificate.model_validate({**dict(predicate), "releases": releases_of(event), "event": event}))
    told = "5 releases with duchi_linf noise of epsilon 0.25 for each record, on every record by itself, of 1 coordinates in [0.0, 1.0]"
    assert told in text
    assert "where one protected unit holds at most 4 of the unit 'record'" in text
