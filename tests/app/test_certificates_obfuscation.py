"""Certificates of obfuscated features: the printed method has no guarantee, the sound form that of its noise; both tell their attacks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest

import accountants
from app.certificates.attacks import ATTACKS, MEASURES
from app.certificates.errors import CertificateRefused
from app.certificates.guarantee import ApproximateDp, NoGuarantee
from app.certificates.issue import CertificateInput, issue_certificate
from app.certificates.keys import PublicKeySet
from app.certificates.page.content import document_of
from app.certificates.page.document import Table
from app.certificates.report import Status
from app.certificates.statement import PrivacyCertificate
from app.certificates.verification import read_statement, verify
from app.settings import Settings
from tests.app.certificates_harness import details, forged
from trainer.attacks import AttackName, Measure
from trainer.plans import FeatureReleasePlan
from trainer.report import RunReport

pytestmark = pytest.mark.usefixtures("table_of_kinds")


# The printed method


def test_a_turned_feature_has_no_guarantee_and_the_errata_say_why(predicates: dict[str, PrivacyCertificate]) -> None:
    predicate = predicates["rotated"]
    assert isinstance(predicate.guarantee, NoGuarantee)
    assert "differential privacy at no epsilon" in predicate.guarantee.reason
    assert {"O1", "O5", "O6", "O11", "O12"} <= {note.row for note in predicate.errata}


def test_k_anonymity_is_never_named_without_saying_that_it_is_none(texts: dict[str, str]) -> None:
    for name in ("rotated", "noisy_rotation"):
        for line in texts[name].splitlines():
            if "k-anonymity" in line:
                assert any(
                    words in line
                    for words in ("isn't k-anonymity", "not k-anonymity", "k-anonymity isn't differential privacy", "it isn't")
                ), line


def test_the_text_tells_every_attack_beside_guessing(texts: dict[str, str]) -> None:
    text = texts["rotated"]
    assert "What attacks found" in text
    assert (
        "the angle from a learned judge of both quadratures: mean error in radians 0.0215 (0.02128 to 0.02172; guessing 1.571; 363 trials)"
        in text
    )
    assert "the answer by way of the estimated angle: share that is right 0.96 (" in text
    assert "told to 0.05 radians it has 6.973" in text
    assert "Attacker for the angle from a learned judge of both quadratures: a small network." in text


def test_a_method_without_attacks_has_no_table(predicates: dict[str, PrivacyCertificate], texts: dict[str, str]) -> None:
    assert predicates["sent_as_it_is"].attacks is None
    assert "What attacks found" not in texts["sent_as_it_is"]


def test_the_page_has_the_attacks_as_a_table(envelopes: dict[str, bytes]) -> None:
    document = document_of(read_statement(envelopes["noisy_rotation"]), ())
    section = next(section for section in document.sections if section.heading == "What attacks found")
    tables = [block for block in section.blocks if isinstance(block, Table)]
    assert len(tables) == 3  # the run's own figures and two noises
    assert tables[0].rows[0][2:5] == ("0.0215", "0.02128 to 0.02172", "1.571")


def test_every_attack_and_every_measure_has_words() -> None:
    assert set(ATTACKS) == set(get_args(AttackName))
    assert set(MEASURES) == set(get_args(Measure))


# The sound form


def test_the_sound_form_guarantees_what_its_noise_does(predicates: dict[str, PrivacyCertificate]) -> None:
    predicate = predicates["noisy_rotation"]
    assert isinstance(predicate.guarantee, ApproximateDp)
    release = predicate.feature_release
    assert release is not None
    assert (release.clipping_norm, release.queries, release.records, release.mu_per_query) == ("3.0", 4, 363, "0.5")
    # Four queries of mu 1/2 are one of mu 1, whose epsilon at 1e-5 is 4.3772.
    assert float(predicate.guarantee.epsilon) == pytest.approx(accountants.profile(predicate.event).epsilon_upper(1e-5), rel=1e-6)
    assert float(predicate.guarantee.gdp_mu or "0") == pytest.approx(1.0)
    assert "mechanisms" not in predicate.proofs
    assert "feature_release.md" in predicate.proofs


def test_the_sound_form_says_whom_it_protects_and_that_turning_earns_nothing(texts: dict[str, str]) -> None:
    text = texts["noisy_rotation"]
    assert "Protected: each image of the held-out data; one image is one row of the held-out data as described" in text
    assert "they earn nothing, and the figures are those of the same noise sent without them, with the angle told" in text
    assert "the training records, which network and attackers were trained on: whoever submitted the job takes them for public" in text
    assert "Released: 4 noisy features of each of 363 held-out records, gaussian noise of standard deviation 12.0" in text


def test_the_curve_states_mu_of_each_noise(predicates: dict[str, PrivacyCertificate]) -> None:
    attacks = predicates["noisy_rotation"].attacks
    assert attacks is not None
    assert [(point.noise_multiplier, point.std, point.mu) for point in attacks.curve] == [("0.5", "3.0", "2"), ("2.0", "12.0", "0.5")]


def test_intervals_are_rounded_outwards(predicates: dict[str, PrivacyCertificate]) -> None:
    attacks = predicates["rotated"].attacks
    assert attacks is not None
    one = attacks.figures[0]
    assert float(one.lower) <= 0.99 * 0.0214987
    assert float(one.upper) >= 1.01 * 0.0214987


# Lies, validly signed


LIES: dict[str, tuple[str, Any]] = {
    "more key": ("attacks.key_bits", "128.0"),
    "no intervals": ("attacks.figures.1.lower", "1.5"),
    "a better chance": ("attacks.figures.0.chance", "0.0215"),
    "less mu": ("attacks.curve.1.mu", "0.1"),
    "less noise than said": ("attacks.curve.0.std", "30.0"),
    "curve upside down": ("attacks.curve.0.noise_multiplier", "5.0"),
    "fewer queries": ("feature_release.queries", 1),
    "smaller mu": ("feature_release.mu_per_query", "0.1"),
    "smaller norm": ("feature_release.clipping_norm", "1.0"),
    "other records": ("feature_release.records", 3),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_named(lie: str, envelopes: dict[str, bytes], settings: Settings, keys: PublicKeySet) -> None:
    path, value = LIES[lie]

    def change(statement: Any) -> None:
        *way, last = path.split(".")
        place = statement["predicate"]
        for step in way:
            place = place[int(step)] if step.isdigit() else place[step]
        place[last] = value

    report = verify(forged(envelopes["noisy_rotation"], settings, change), keys, None)
    assert report.verdict == "invalid"
    named = path.split(".")[0]
    assert any(named in check.detail for check in report.checks if check.status is Status.FAILED), report.checks


def test_a_guarantee_on_top_of_a_turned_feature_is_found_out(envelopes: dict[str, bytes], settings: Settings, keys: PublicKeySet) -> None:
    def change(statement: Any) -> None:
        statement["predicate"]["attacks"]["meaning"] = "The features are 8-anonymous."

    report = verify(forged(envelopes["rotated"], settings, change), keys, None)
    assert "attacks.meaning" in details(report, "sentences", Status.NOT_CHECKED)


# Runs that aren't as planned


def test_a_run_without_its_attacks_isnt_signed(finished: dict[str, CertificateInput], settings: Settings) -> None:
    run = finished["rotated"]
    with pytest.raises(CertificateRefused, match="whether attacks were tried"):
        issue_certificate(replace(run, report=RunReport.model_validate(dict(run.report) | {"attacks": None})), settings)


def test_less_noise_than_the_spec_comes_to_isnt_signed(finished: dict[str, CertificateInput], settings: Settings) -> None:
    run = finished["noisy_rotation"]
    plan = run.plan
    assert isinstance(plan, FeatureReleasePlan)
    quieter = FeatureReleasePlan.model_validate(dict(plan) | {"mechanism": plan.mechanism.scaled(0.7)})
    report = RunReport.model_validate(dict(run.report) | {"event": quieter.event, "noise_std": quieter.noise_std})
    with pytest.raises(CertificateRefused, match="std"):
        issue_certificate(replace(run, plan=quieter, report=report), settings)
