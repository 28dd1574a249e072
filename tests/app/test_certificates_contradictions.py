"""Certificates whose sections contradict the rest of them: each is refused, with both sides told."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.certificates.issue import issue_certificate
from app.certificates.keys import PublicKeySet
from app.certificates.verification import read, verify
from app.settings import Settings
from tests.app.certificate_kinds import KINDS, Document, write_table
from tests.app.certificates_harness import details, forged, run_of

Issue = Callable[[str], bytes]


@pytest.fixture(scope="module")
def issued(folder: Path, settings: Settings) -> Generator[Issue]:
    write_table(folder / "sets")
    found: dict[str, bytes] = {}

    def issue(name: str) -> bytes:
        document: Document = KINDS[name]
        if name not in found:
            found[name] = issue_certificate(replace(run_of(document, folder / name), job_id=name), settings)
        return found[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZETADP_DATA_SETS_DIR", str(folder / "sets"))
        yield issue


def _problems(envelope: bytes, settings: Settings, keys: PublicKeySet, lie: Callable[[dict[str, Any]], None]) -> str:
    report = verify(forged(envelope, settings, lambda statement: lie(statement["predicate"])), keys, None)
    assert report.verdict == "invalid"
    return details(report, "event")


def test_more_rows_of_a_unit_than_its_releases_were_accounted_for(issued: Issue, settings: Settings, keys: PublicKeySet) -> None:
    def lie(predicate: dict[str, Any]) -> None:
        predicate["data"]["records_per_unit"] = 5

    told = "local_release.records_per_unit: 3, but 5 of a unit are used at most"
    assert told in _problems(issued("spof_users"), settings, keys, lie)


def test_counts_of_held_out_records_that_no_part_of_a_comparison_released(issued: Issue, settings: Settings, keys: PublicKeySet) -> None:
    def lie(predicate: dict[str, Any]) -> None:
        predicate["scope"]["evaluation"]["kind"] = "private"

    told = "part spectral: counts are stated exactly for a private evaluation, got kind 'private'"
    assert told in _problems(issued("comparison"), settings, keys, lie)


def test_an_l2_bound_that_laplace_noise_says_nothing_of(issued: Issue, settings: Settings, keys: PublicKeySet) -> None:
    def lie(predicate: dict[str, Any]) -> None:
        predicate["clipping"] |= {"kind": "flat", "bound": "1.0"}
        sensitivity = predicate["event"]["event"]["event"]["mechanism"]["sensitivity"]
        stated = predicate["releases"][0]["mechanism"]["sensitivity"]
        sensitivity |= {"l2": 2.0, "l2_contribution": 1.0}
        stated |= {"l2": "2.0", "l2_contribution": "1.0"}

    told = "clipping.kind: the certificate says flat, the event's noise is for another norm"
    assert told in _problems(issued("laplace"), settings, keys, lie)


def test_times_and_memory_in_a_table_are_said_not_to_be_covered(issued: Issue) -> None:
    predicate = read(issued("comparison"))
    assert "but for the times and the memory that the table and the plots tell" in predicate.scope.released
    assert any(line.startswith("running time and memory, which the table and the plots tell") for line in predicate.not_covered)
