"""Certificates of obfuscated features: the printed method has no guarantee, the sound form that of its noise; both tell their attacks."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from zetadp import accountants
from zetadp.app.certificates.facts.attacks import ATTACKS, MEASURES
from zetadp.app.certificates.facts.guarantee import ApproximateDp, NoGuarantee
from zetadp.app.certificates.facts.statement import PrivacyCertificate
from zetadp.app.certificates.page.blocks import Table
from zetadp.app.certificates.page.content import document_of
from zetadp.app.certificates.words.reading import Reading
from zetadp.trainer.specs.findings.attacks import AttackName, Measure

pytestmark = pytest.mark.usefixtures("table_of_kinds")


# The printed method


def test_a_turned_feature_has_no_guarantee_and_the_errata_say_why(predicates: dict[str, PrivacyCertificate]) -> None:
    predicate = predicates["rotated"]
    assert isinstance(predicate.guarantee, NoGuarantee)
    assert "that isn't differentially private at any epsilon" in predicate.guarantee.reason
    assert {"O1", "O5", "O6", "O11", "O12"} <= set(predicate.errata)


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
    columns = [re.split(" {2,}", line.strip()) for line in text.splitlines()]
    judged = ["the angle from a learned judge of both quadratures", "mean error in radians", "0.0215", "0.02128 to 0.02172", "1.571", "363"]
    assert judged in columns
    assert ["the answer by way of the estimated angle", "share that is right", "0.96"] in [row[:3] for row in columns]
    assert "at a resolution of 0.05 radians it has 6.973" in text
    assert "- the angle from a learned judge of both quadratures: a small network" in text


def test_a_method_without_attacks_has_no_table(predicates: dict[str, PrivacyCertificate], texts: dict[str, str]) -> None:
    assert predicates["sent_as_it_is"].run.attacks is None
    assert "What attacks found" not in texts["sent_as_it_is"]


def test_the_page_has_the_attacks_as_a_table(predicates: dict[str, PrivacyCertificate]) -> None:
    document = document_of(predicates["noisy_rotation"])
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
    # Four queries of mu 1/2 are one of mu 1, whose epsilon at 1e-5 is 4.3772.
    assert float(predicate.guarantee.epsilon) == pytest.approx(accountants.profile(predicate.event).epsilon_upper(1e-5), rel=1e-6)
    assert float(predicate.guarantee.gdp_mu or "0") == pytest.approx(1.0)
    assert "feature_release.md" in Reading(predicate).proofs


def test_the_sound_form_says_whom_it_protects_and_that_turning_earns_nothing(texts: dict[str, str]) -> None:
    text = texts["noisy_rotation"]
    assert "Protected: each image of the held-out data; one image is one row of the held-out data as described" in text
    assert "they add no privacy, and the figures are those of the same noise sent without them, with the angle known" in text
    assert (
        "the training records, on which the network and the attackers were trained: whoever submitted the job treats them as public" in text
    )
    assert "Released: 4 noisy features of each of 363 held-out records, Gaussian noise of standard deviation 12.0" in text
    assert "on each real component, C 3.0: mu 0.5 a query." in text


def test_the_curve_states_mu_of_each_noise(predicates: dict[str, PrivacyCertificate]) -> None:
    attacks = predicates["noisy_rotation"].run.attacks
    assert attacks is not None
    assert [(point.noise_multiplier, point.std, point.mu) for point in attacks.curve] == [("0.5", "3.0", "2"), ("2.0", "12.0", "0.5")]


def test_intervals_are_rounded_outwards(predicates: dict[str, PrivacyCertificate]) -> None:
    attacks = predicates["rotated"].run.attacks
    assert attacks is not None
    one = attacks.figures[0]
    assert float(one.lower) <= 0.99 * 0.0214987
    assert float(one.upper) >= 1.01 * 0.0214987
