"""The budget that a run was charged to, in its certificate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from app.certificates.issue import issue_certificate
from app.certificates.keys import PublicKeySet
from app.certificates.ledger import LedgerFacts
from app.certificates.report import Status
from app.certificates.text import describe
from app.certificates.verification import read, verify
from app.settings import Settings
from tests.app.certificates_harness import details, finished_run, forged

ENTRY = LedgerFacts(ledger="0" * 31 + "1", reservation="0" * 31 + "2", entry=7, sha256="ab" * 32)


@pytest.fixture(scope="module")
def certificate(folder: Path, settings: Settings) -> bytes:
    return issue_certificate(replace(finished_run(folder / "charged"), ledger=ENTRY), settings)


def test_the_entry_is_named_and_what_it_ties_together_is_said(certificate: bytes, keys: PublicKeySet) -> None:
    assert verify(certificate, keys, None).verdict == "valid"
    assert details(verify(certificate, keys, None), "sentences", Status.PASSED)
    assert read(certificate).ledger == ENTRY
    text = " ".join(describe(read(certificate)).split())
    assert f"Budget: reserved in ledger {ENTRY.ledger}, entry 7, whose digest is {'ab' * 32}." in text
    assert "ties this one to those alone that were charged to the same ledger" in text
    assert "no ledger entry ties" not in text


def test_a_run_without_a_ledger_says_that_nothing_ties_it_to_others(folder: Path, settings: Settings) -> None:
    envelope = issue_certificate(replace(finished_run(folder / "free"), job_id="free"), settings)
    assert read(envelope).ledger is None
    assert "no ledger entry ties this one to others" in describe(read(envelope))
    assert "Budget:" not in describe(read(envelope))


def test_an_entry_that_was_added_afterwards_contradicts_the_sentences(
    folder: Path, settings: Settings, certificate: bytes, keys: PublicKeySet
) -> None:
    free = issue_certificate(replace(finished_run(folder / "lied"), job_id="lied"), settings)
    added = forged(free, settings, lambda statement: statement["predicate"].update(ledger=ENTRY.model_dump()))
    removed = forged(certificate, settings, lambda statement: cast("dict[str, object]", statement["predicate"]).update(ledger=None))
    for forgery in (added, removed):
        assert "not_covered" in details(verify(forgery, keys, None), "sentences", Status.NOT_CHECKED)
