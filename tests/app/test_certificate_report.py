"""The report for an evaluator: every factor and hazard has an answer or is marked open, and none says more than the certificate."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from tests.app.certificates_harness import lied
from tests.app.forked import run_command
from zetadp.app.certificates.facts.report import Check, Status
from zetadp.app.certificates.facts.statement import PrivacyCertificate
from zetadp.app.certificates.log.evidence import Evidence
from zetadp.app.certificates.page.annex import annex_of
from zetadp.app.certificates.page.blocks import Document, Table
from zetadp.app.certificates.page.factors import ANSWERED, NOT_HELD, OPEN, report_of
from zetadp.app.certificates.page.html import html_of
from zetadp.app.certificates.page.pdf import pdf_of
from zetadp.app.certificates.page.rendering import rendered
from zetadp.app.certificates.signing.keys import PublicKeySet, jwks
from zetadp.app.certificates.verification.verify import read
from zetadp.app.kit.settings import Settings

LIMIT = "a limit for several uses of the same data"
ALWAYS_OPEN = {
    "accuracy, and whom errors hit", "security and access control", "collection of the data", "side channels",
    "choice of settings by looking at the data", "a unit that is smaller than a person", "correct implementation",
    "trainings that nobody mentions",
}  # fmt: skip


def rows(document: Document) -> dict[str, tuple[str, str]]:
    tables = [block for section in document.sections[:2] for block in section.blocks if isinstance(block, Table)]
    return {name: (answer, state) for table in tables for name, answer, state in table.rows}


@pytest.fixture(scope="module")
def certificate(envelope: bytes) -> PrivacyCertificate:
    return read(envelope)


def test_every_row_is_answered_not_met_or_open(certificate: PrivacyCertificate) -> None:
    found = rows(report_of(certificate))
    assert {state for _, state in found.values()} <= {ANSWERED, NOT_HELD, OPEN}
    assert all(answer for answer, _ in found.values())
    assert {name for name in ALWAYS_OPEN if found[name][1] != OPEN} == set()


def test_what_a_certificate_lacks_is_open_and_what_it_has_is_answered(envelope: bytes, settings: Settings) -> None:
    bare = rows(report_of(read(envelope)))
    assert bare["several releases of the same data"][1] == bare["trainings that nobody mentions"][1] == OPEN
    assert bare["records that the guarantee leaves out"][1] == OPEN  # its held-out records were declared public
    ledger = {"ledger": "a" * 32, "reservation": "b" * 32, "entry": 3, "sha256": "0" * 64}
    announced = {"index": 1, "attempt": 1, "data_set": "c" * 32, "number": 1, "head_size": 2, "time_stamps": 0, "cosignatures": 0}
    more = rows(report_of(read(lied(envelope, settings, {"ledger": ledger, "announced": announced, "run.noise_numbers": 10}))))
    told, state = more["several releases of the same data"]
    assert (told.endswith("; this budget is never renewed"), state) == (True, ANSWERED)
    renewed = rows(report_of(read(lied(envelope, settings, {"ledger": ledger | {"renews_after_days": 90}}))))
    told, state = renewed["several releases of the same data"]
    assert state == OPEN
    assert told.endswith("its budget is free again every 90 days, so it bounds no uses of the same data over longer times")
    assert rows(annex_of(read(lied(envelope, settings, {"ledger": ledger}))))[LIMIT][1] == ANSWERED
    assert rows(annex_of(read(lied(envelope, settings, {"ledger": ledger | {"renews_after_days": 90}}))))[LIMIT][1] == OPEN
    # A count of what this service planned, and an audit that found nothing, leave both questions open.
    assert {name for name in ALWAYS_OPEN if more[name][1] != OPEN} == set()
    assert "isn't counted" in more["trainings that nobody mentions"][0]


def test_without_a_guarantee_the_first_factor_is_not_met(envelope: bytes, settings: Settings) -> None:
    nothing = read(lied(envelope, settings, {"guarantee": {"kind": "none", "reason": "a seed"}}))
    assert rows(report_of(nothing))["privacy parameters"] == ("there is no guarantee: a seed", NOT_HELD)


def test_a_delta_of_one_over_the_units_is_not_met(envelope: bytes, settings: Settings) -> None:
    found = rows(report_of(read(lied(envelope, settings, {"guarantee.delta": "0.002"}))))
    assert found["a delta that allows publishing somebody whole"][1] == NOT_HELD


def test_a_signature_that_nobody_checked_is_open_and_a_broken_one_is_not_met(
    envelope: bytes, keys: PublicKeySet, tmp_path_factory: pytest.TempPathFactory
) -> None:
    row = "who signed, and whether it was checked"
    unchecked, (answer, state) = (
        rows(rendered(envelope, None, Evidence(), report_of))[row],
        rows(rendered(envelope, keys, Evidence(), report_of))[row],
    )
    assert unchecked[1] == OPEN
    # The signature holds; whether the certificate is in the log and its key still counts wasn't checked.
    assert "signature: holds" in answer
    assert state == OPEN
    others = jwks(Settings(data_dir=tmp_path_factory.mktemp("others")))
    assert rows(rendered(envelope, others, Evidence(), report_of))[row][1] == NOT_HELD
    passed = [Check(name="signature", status=Status.PASSED, detail="by k"), Check(name="log", status=Status.PASSED, detail="entry 1")]
    assert rows(report_of(read(envelope), checks=passed))[row][1] == ANSWERED


def test_delta_times_the_units_is_exact(envelope: bytes, settings: Settings) -> None:
    certificate = read(lied(envelope, settings, {"guarantee.delta": "0.000996"}))
    answer = rows(report_of(certificate))["a delta that allows publishing somebody whole"][0]
    units = certificate.plan.units
    assert answer == f"delta times {units} units is {(Decimal('0.000996') * units).normalize():f}"


def test_the_report_is_a_page_and_a_pdf_and_claims_no_endorsement(certificate: PrivacyCertificate) -> None:
    document = report_of(certificate)
    assert "NIST has endorsed none of it" in html_of(document)
    assert pdf_of(document).startswith(b"%PDF")


def test_the_command_writes_it(envelope: bytes, keys: PublicKeySet, tmp_path: Path) -> None:
    (tmp_path / "certificate.json").write_bytes(envelope)
    (tmp_path / "jwks.json").write_text(keys.model_dump_json(exclude_none=True))
    done = run_command("report", str(tmp_path / "certificate.json"), "-o", str(tmp_path / "report.html"))
    assert done.returncode == 0, done.stderr
    assert "What the guarantee depends on" in (tmp_path / "report.html").read_text()


def test_the_annex_leads_with_odds_and_leaves_to_people_what_no_certificate_knows(certificate: PrivacyCertificate) -> None:
    document = annex_of(certificate)
    assert [section.heading for section in document.sections[:3]] == [
        "What this means for the people in the data", "Processing, necessity and measures", "What published statements often leave out"
    ]  # fmt: skip
    tables = [block for section in document.sections[:3] for block in section.blocks if isinstance(block, Table)]
    risks, measures, fields = ({name: (answer, state) for name, answer, state in table.rows} for table in tables)
    assert "guess" in next(iter(risks.values()))[0]
    for name in ("purposes, and on which legal basis", "why these data are needed, and no fewer", "what everything rests on"):
        assert measures[name][1] == OPEN
    assert len(fields) == 6
    assert all(answer for table in (risks, measures, fields) for answer, _ in table.values())
    assert document.sections[3:] == report_of(certificate).sections


def test_the_annex_asks_what_the_adjacency_hides_and_names_the_unit(
    certificate: PrivacyCertificate, issued: Callable[[str], bytes]
) -> None:
    of_presence = annex_rows(certificate)
    assert "the odds that somebody finds out whether this record was included" in of_presence
    assert "whether a record was in the data at all" not in of_presence
    of_values = annex_rows(read(issued("spof_users")))  # its neighbours have another's data in one user's place
    assert "the odds that somebody finds out whether this user's data are another's" in of_values
    assert of_values["whether a user was in the data at all"] == ("The user's presence isn't hidden.", NOT_HELD)


def test_the_annex_has_the_same_odds_as_the_headline(certificate: PrivacyCertificate) -> None:
    guess = next(iter(annex_rows(certificate).values()))[0]
    assert guess in annex_of(certificate).verdict.lines


def annex_rows(certificate: PrivacyCertificate) -> dict[str, tuple[str, str]]:
    table = annex_of(certificate).sections[0].blocks[0]
    assert isinstance(table, Table)
    return {name: (answer, state) for name, answer, state in table.rows}


def test_the_annex_of_a_run_without_a_guarantee_promises_nothing(envelope: bytes, settings: Settings) -> None:
    nothing = annex_of(read(lied(envelope, settings, {"guarantee": {"kind": "none", "reason": "a seed"}})))
    table = nothing.sections[0].blocks[0]
    assert isinstance(table, Table)
    assert table.rows[0][2] == NOT_HELD
    assert not [row for row in table.rows if "odds above" in row[1]]


def test_one_command_writes_the_annex_and_the_registrys_entry(envelope: bytes, settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "certificate.json").write_bytes(envelope)
    (tmp_path / "jwks.json").write_text(jwks(settings).model_dump_json())
    lines = ("name", "description", "intended_use", "curator", "region", "preprocessing", "justification", "actors")
    told: dict[str, object] = dict.fromkeys(lines, "something")
    told |= {"url_slug": "an-example", "curator_type": "Nonprofit", "publication_date": "2026-01-31", "authors": ["somebody"]}
    (tmp_path / "publication.yaml").write_text(json.dumps(told))
    names = [str(tmp_path / name) for name in ("certificate.json", "annex.html", "publication.yaml", "entry.yaml")]
    done = run_command("annex", names[0], "-o", names[1], "--publication", names[2], "--entry", names[3])
    assert done.returncode == 0, done.stderr
    assert "Annex to a data protection impact assessment" in (tmp_path / "annex.html").read_text()
    assert (tmp_path / "entry.yaml").read_text().startswith("url_slug: an-example")
    assert run_command("annex", names[0], "-o", names[1], "--entry", names[3]).returncode == 2
    (tmp_path / "publication.yaml").write_text(json.dumps(told | {"region": None}))
    refused = run_command("annex", names[0], "-o", names[1], "--publication", names[2], "--entry", names[3])
    assert (refused.returncode, "region" in refused.stderr) == (2, True)
