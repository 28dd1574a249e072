"""The certificate read aloud: what a physician is told is what the figures say, and never more."""

from __future__ import annotations

import math
import re

import pytest

from tests.app.certificates_harness import finished_run
from zetadp.app.certificates.facts.guarantee import ApproximateDp, DeltaPoint
from zetadp.app.certificates.facts.statement import Environment, PrivacyCertificate, RunFacts
from zetadp.app.certificates.issuing.issue import CertificateInput, predicate_of
from zetadp.app.certificates.page.plain import describe
from zetadp.app.certificates.words.caveats import caveats, not_covered_elsewhere
from zetadp.app.certificates.words.reading import Reading
from zetadp.app.certificates.words.strength import advantage, most_true_positives
from zetadp.mechanisms.numerics.gdp import gdp_log_delta, gdp_trade_off
from zetadp.trainer.data import data_set_facts
from zetadp.trainer.specs.models import weights
from zetadp.version import VERSION


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> CertificateInput:
    return finished_run(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def predicate(run: CertificateInput) -> PrivacyCertificate:
    return predicate_of(run, data_set_facts(run.spec.data))


@pytest.fixture(scope="module")
def text(predicate: PrivacyCertificate) -> str:
    return describe(predicate)


def _claim(*points: tuple[str, str]) -> ApproximateDp:
    return ApproximateDp(
        epsilon=points[0][0],
        delta=points[0][1],
        epsilon_lower="0",
        route="test",
        delta_curve=tuple(DeltaPoint(epsilon=epsilon, delta=delta) for epsilon, delta in points),
    )


def test_text_names_epsilon_and_delta_as_certified(text: str, predicate: PrivacyCertificate) -> None:
    assert isinstance(predicate.guarantee, ApproximateDp)
    assert text.splitlines()[3] == f"Privacy guarantee: epsilon {predicate.guarantee.epsilon} at delta 1e-05"


def test_what_can_void_it_stands_directly_after_epsilon(text: str, predicate: PrivacyCertificate) -> None:
    lines = text.splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("Privacy guarantee:"))
    (held_out,) = (line for line in Reading(predicate).not_covered if line.startswith("the held-out records"))
    expected = [
        "  It holds only if all of the following hold:",
        *(f"    - {line}" for line in Reading(predicate).assumptions),
        "  Part of this run, and not covered by it:",
        f"    - {held_out}; no held-out record is protected, not even one of somebody who is also in the training data",
    ]
    assert lines[start + 1 : start + 1 + len(expected)] == expected


def test_weights_from_elsewhere_and_a_large_delta_stand_beside_epsilon_too(predicate: PrivacyCertificate) -> None:
    guarantee, digest = predicate.guarantee, "0" * 64
    assert isinstance(guarantee, ApproximateDp)
    large = ApproximateDp.model_validate({**dict(guarantee), "delta": "0.01"})
    run = RunFacts.model_validate({**dict(predicate.run), "given_weights": (digest,)})
    changed = Reading(PrivacyCertificate.model_validate({**dict(predicate), "run": run}))
    first, *_, last = caveats(changed, large)
    assert first.lead.startswith("Delta is large: one over the number of units (710) or more.")
    assert last.lines[-1] == weights.not_covered(digest)
    assert weights.not_covered(digest) not in not_covered_elsewhere(changed)


def test_text_says_what_is_not_covered(text: str, predicate: PrivacyCertificate) -> None:
    assert all(line in text for line in Reading(predicate).not_covered)


def test_text_has_a_length_that_is_read(text: str) -> None:
    assert 20 <= len(text.splitlines()) <= 40


def test_text_says_that_the_audit_did_not_run(text: str) -> None:
    assert "Audit: not run" in text


def test_words_of_another_version_than_the_runs_are_said_to_be(predicate: PrivacyCertificate) -> None:
    of = Environment.model_validate({**dict(predicate.environment), "versions": {"zetadp": "0.0.1"}})
    other = PrivacyCertificate.model_validate({**dict(predicate), "environment": of})
    told = f"The run used version 0.0.1; this text is by version {VERSION}, as for its own runs."
    assert f"  {told}" in describe(other).split("\n\n")[1].splitlines()
    assert Reading(predicate).other_version is None


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> str:
    run = finished_run(tmp_path_factory.mktemp("seeded"), reproducible=True, seed=3)
    return describe(predicate_of(run, data_set_facts(run.spec.data)))


def test_text_of_a_seeded_run_says_first_that_there_is_no_guarantee(seeded: str) -> None:
    assert seeded.splitlines()[3] == "THERE IS NO PRIVACY GUARANTEE"


def test_text_of_a_seeded_run_says_directly_after_it_that_nothing_is_promised(seeded: str) -> None:
    why, promised = seeded.splitlines()[4:6]
    assert why.startswith("  Why: not private against someone who knows the seed")
    assert promised.startswith("  Nothing is promised")


def test_text_of_a_seeded_run_states_no_epsilon(seeded: str) -> None:
    assert "Privacy guarantee: epsilon" not in seeded
    assert not re.search(r"epsilon (= )?[0-9]", seeded)


def test_true_positives_at_one_point_are_those_of_the_formula() -> None:
    # epsilon = 1, delta = 0.001, a = 0.01: min(e/100 + 0.001, 1 - (1 - 0.001 - 0.01)/e) = 0.0281828.
    assert most_true_positives(_claim(("1", "0.001")), 0.01) == pytest.approx(math.e * 0.01 + 0.001, rel=1e-9)


def test_true_positives_at_a_large_epsilon_come_from_the_other_branch() -> None:
    expected = 1.0 - math.exp(-6.0) * (1.0 - 1e-5 - 0.01)
    assert most_true_positives(_claim(("6", "1e-05")), 0.01) == pytest.approx(expected, rel=1e-9)


def test_the_best_point_of_the_curve_is_used() -> None:
    both = _claim(("4", "1e-05"), ("0.5", "0.01"))
    assert most_true_positives(both, 0.01) == most_true_positives(_claim(("0.5", "0.01")), 0.01)


def test_advantage_at_epsilon_zero_is_delta() -> None:
    assert advantage(_claim(("0", "0.25"))) == pytest.approx(0.25, rel=1e-9)


def test_advantage_of_randomised_response_is_attained() -> None:
    # Randomised response at epsilon is right with probability e^eps/(1 + e^eps): advantage (e^eps - 1)/(e^eps + 1), no less.
    epsilon = math.log(3.0)
    assert advantage(_claim((repr(epsilon), "0"))) >= 0.5


def test_success_told_is_never_below_that_of_the_exact_attack() -> None:
    # mu-GDP with mu = 1: the best test at 1 % false positives has power Phi(mu - 2.3263) = 0.0924.

    points = [(epsilon, math.exp(gdp_log_delta(1.0, epsilon))) for epsilon in (0.5, 1.0, 1.5, 2.0, 3.0)]
    claim = _claim(*((repr(epsilon), repr(delta)) for epsilon, delta in points))
    exact = 1.0 - gdp_trade_off(1.0, 0.01)
    assert exact <= most_true_positives(claim, 0.01) <= 1.3 * exact


def test_success_is_never_told_as_more_than_certain() -> None:
    assert most_true_positives(_claim(("900", "1e-05")), 0.01) <= 1.0
