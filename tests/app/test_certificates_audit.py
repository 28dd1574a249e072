"""Audits in certificates: what was found is stated and checked, and a run that contradicts its own claim gets no certificate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.app.certificates_harness import CANARIES, details, finished_run, lied
from tests.selection import thinned
from zetadp.app.certificates.errors import CertificateRefused
from zetadp.app.certificates.facts.audit import CanaryFacts, audit_in_words
from zetadp.app.certificates.facts.guarantee import ApproximateDp, figures
from zetadp.app.certificates.issuing.issue import CertificateInput, issue_certificate
from zetadp.app.certificates.page.plain import describe
from zetadp.app.certificates.signing.keys import PublicKeySet
from zetadp.app.certificates.verification.verify import read, verify
from zetadp.app.kit.settings import Settings
from zetadp.trainer.specs.report import RunReport

NOISE = {"status": "consistent", "numbers": 100_000}
SAMPLES = {"status": "consistent", "samples": 40}
FOUND = {
    "kind": "canaries",
    "canaries": 500,
    "members": 260,
    "one_run_p_value": 1.0,
    "independent_p_value": 0.25,
    "epsilon_lower": 0.5,
    "epsilon_lower_if_gaussian": 0.75,
    "epsilon_lower_if_independent": 1.25,
    "status": "consistent",
}
ASKED = {"kind": "canaries", "canaries": 500}


def audited(folder: Path, *, asked: object = ASKED, **report: object) -> CertificateInput:
    """A finished run whose report says this of its audit."""
    run = finished_run(folder, audit=asked)
    told = RunReport.model_validate({**run.report.model_dump(), "noise_test": NOISE, "sample_test": SAMPLES, "audit": FOUND} | report)
    return replace(run, report=told, job_id=f"audited-{folder.name}")


@pytest.fixture(scope="module")
def certificate(folder: Path, settings: Settings) -> bytes:
    return issue_certificate(audited(folder / "audited"), settings)


def test_findings_are_stated_and_called_a_lower_bound(certificate: bytes, keys: PublicKeySet) -> None:
    assert verify(certificate, keys, None).verdict == "valid"
    stated = read(certificate).run
    assert stated.noise_numbers == 100_000
    assert stated.canaries == CanaryFacts.model_validate(CANARIES)
    text = " ".join(describe(read(certificate)).split())
    assert "the audit couldn't tell better than the guarantee allows which of 500 made-up records took part" in text
    assert "a probability of at most 1 under the guarantee, at most 0.25 if they are independent" in text
    assert "what the run told about them has an epsilon of at least 0.5 with 95% confidence, if coins were fair" in text
    # Its releases are of samples.
    assert "(a Gaussian trade-off would make it 0.75, independent scores as well 1.25: estimates, no bounds, since these releases" in text
    assert "it told as much about real records if the code treats them as it does these; a lower bound, not a proof" in text
    assert "tests of 100000 numbers of the drawn noise found no component with another scale than is claimed" in text
    assert "no release that repeats the one before or its own first half" in text
    assert "tests of 40 samples (their sizes, the units' turns and overlaps, as far as this sampling has them) found no other draws" in text
    assert (
        "epsilon and delta don't count that the outcomes of these tests are published: this adds at most 1e-17 (1 + e^epsilon) to delta"
        in text
    )


GAUSSIAN = {"gdp_mu": "0.5"}
WORDED = CanaryFacts.model_validate(CANARIES)


@pytest.mark.parametrize(
    ("facts", "claim", "word"),
    [
        ({}, {}, "consistent"),
        # Above the guarantee's epsilon of 1, but no bounds: its trade-off isn't a Gaussian pair's.
        ({"epsilon_lower_if_gaussian": "1.5", "epsilon_lower_if_independent": "1.5"}, {}, "consistent"),
        ({"epsilon_lower_if_gaussian": "1.5"}, GAUSSIAN, "doubtful"),
        ({"epsilon_lower_if_independent": "1.5"}, GAUSSIAN, "doubtful"),
        ({"epsilon_lower": "1.5"}, {}, "doubtful"),
        ({"one_run_p_value": "0.04"}, {}, "doubtful"),
        ({"independent_p_value": "0.04"}, {}, "doubtful"),
    ],
)
def test_scores_that_speak_against_the_guarantee_are_not_called_consistent(
    certificate: bytes, facts: dict[str, str], claim: dict[str, str], word: str
) -> None:
    guarantee = figures(read(certificate).guarantee)
    assert guarantee is not None
    claimed = ApproximateDp.model_validate(dict(guarantee) | {"epsilon": "1", "gdp_mu": None} | claim)
    told = audit_in_words(None, None, CanaryFacts.model_validate(dict(WORDED) | {"epsilon_lower_if_independent": "0.9"} | facts), claimed)
    assert told.startswith(f"{word}: ")
    assert ("as these releases have" in told) is (claim == GAUSSIAN)


def test_marks_are_said_to_be_no_records(folder: Path, settings: Settings, keys: PublicKeySet) -> None:
    envelope = issue_certificate(audited(folder / "marks", asked=ASKED | {"kind": "marks"}, audit=FOUND | {"kind": "marks"}), settings)
    assert verify(envelope, keys, None).verdict == "valid"
    text = " ".join(describe(read(envelope)).split())
    assert "which of 500 made-up units (each with a number of its own, where nobody's gradient is) took part" in text
    assert "about real records if they are sampled, scaled and covered by noise as these are; how their gradients come about isn't" in text


def test_without_canaries_the_noise_alone_is_spoken_of(folder: Path, settings: Settings, keys: PublicKeySet) -> None:
    envelope = issue_certificate(audited(folder / "noise", asked=None, audit=None), settings)
    assert verify(envelope, keys, None).verdict == "valid"
    told = "Audit: not run: no empirical lower bound on epsilon was measured; tests of 100000 numbers of the drawn noise found no"
    assert told in describe(read(envelope))


def test_canaries_are_counted_among_those_whom_samples_of_a_fixed_size_are_drawn_from(folder: Path, settings: Settings) -> None:
    finished = finished_run(folder / "fixed", audit=ASKED, sampling={"kind": "fixed_size"})
    told = RunReport.model_validate({**finished.report.model_dump(), "audit": FOUND})
    text = " ".join(describe(read(issue_certificate(replace(finished, report=told), settings))).split())
    assert "on samples of exactly 40 of 970 (counted in units of one record; 260 are made up" in text
    assert "and the guarantee is that of 40 of 710, which is no stronger)" in text


def test_noise_that_nobody_drew_is_not_spoken_of(folder: Path, settings: Settings) -> None:
    nothing = {"noise_test": {"status": "not run", "numbers": 0}, "sample_test": {"status": "not run", "samples": 0}}
    finished = audited(folder / "none", asked=None, audit=None, **nothing)
    certificate = read(issue_certificate(finished, settings))
    assert (certificate.run.noise_numbers, certificate.run.samples) == (None, None)
    assert not [told for told in ("drawn noise", "samples were such", "1e-17") if told in describe(certificate)]


@pytest.mark.parametrize(
    ("report", "reason"),
    thinned(
        [
            (
                {"noise_test": NOISE | {"status": "violated"}},
                "violated by the drawn noise, which doesn't have the .* claimed, or repeats itself",
            ),
            ({"sample_test": SAMPLES | {"status": "violated"}}, "violated by the samples, which aren't drawn as the plan says"),
            ({"audit": FOUND | {"status": "violated", "independent_p_value": 1e-9}}, "violated by canaries: .* at most 1 under .* 1e-09"),
            ({"audit": None}, "the number of canaries"),
            ({"audit": FOUND | {"canaries": 400}}, "the number of canaries"),
            ({"asked": None}, "the number of canaries"),
            ({"audit": FOUND | {"kind": "marks"}}, "the kind of made-up units"),
        ],
        every=2,
    ),
    ids=["noise", "samples", "canaries", "left out", "fewer", "never asked", "another kind"],
)
def test_a_contradicted_run_gets_no_certificate(folder: Path, settings: Settings, report: dict[str, object], reason: str) -> None:
    with pytest.raises(CertificateRefused, match=reason):
        issue_certificate(audited(folder / "refused", **report), settings)


@pytest.mark.parametrize(
    ("field", "value", "told"),
    thinned(
        [
            ("members", 501, "501 of 500 took part"),
            ("one_run_p_value", "0.0000001", "one_run_p_value: in"),
            ("independent_p_value", "1.5", "independent_p_value: in"),
            ("confidence", "95", "confidence: in (0, 1), got 95"),
        ],
        every=3,
    ),
)
def test_a_signed_audit_that_contradicts_itself_is_found(
    certificate: bytes, settings: Settings, keys: PublicKeySet, field: str, value: object, told: str
) -> None:
    report = verify(lied(certificate, settings, {f"run.canaries.{field}": value}), keys, None)
    assert report.verdict == "invalid"
    assert told in details(report, "parts")
