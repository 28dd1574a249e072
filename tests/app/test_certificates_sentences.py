"""What a certificate's sentences say of runs where the usual ones would mislead, and that a verifier knows whose sentences they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.certificates.consistency import check_parts, check_sentences
from app.certificates.issue import CertificateInput, issue_certificate
from app.certificates.keys import PublicKeySet
from app.certificates.report import Status
from app.certificates.statement import PrivacyCertificate
from app.certificates.text import describe
from app.certificates.verification import read, verify
from app.settings import Settings
from tests.app.certificates_harness import details, finished_run, forged, statement_of
from tests.app.test_certificates_settings import ADAPTIVE, FEDERATED, PATIENTS, PRIVATE

RUNS: dict[str, dict[str, object]] = {
    "adaptive": ADAPTIVE,
    "federated_private": FEDERATED | PRIVATE,
    "patients": PATIENTS,
    "private": PRIVATE,
    "seeded": {"reproducible": True, "seed": 5},
    "large_delta": {"privacy": {"adjacency": "add_remove", "unit": "record", "delta": 0.01, "noise_multiplier": 2.0}},
    "slices": PATIENTS
    | {"privacy": {"adjacency": "add_remove", "unit": "slice", "delta": 1e-4, "noise_multiplier": 4.0}, "records_per_user": None},
}
Lie = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def envelopes(folder: Path, settings: Settings) -> dict[str, bytes]:
    runs: dict[str, CertificateInput] = {
        name: replace(finished_run(folder / f"sentences_{name}", **changes), job_id=f"sentences-{name}") for name, changes in RUNS.items()
    }
    return {name: issue_certificate(run, settings) for name, run in runs.items()}


@pytest.fixture(scope="module")
def texts(envelopes: dict[str, bytes]) -> dict[str, str]:
    return {name: describe(read(envelope)) for name, envelope in envelopes.items()}


@pytest.mark.parametrize("name", RUNS)
def test_every_sentence_is_one_that_this_version_writes(name: str, envelopes: dict[str, bytes], keys: PublicKeySet) -> None:
    assert details(verify(envelopes[name], keys, None), "sentences", Status.PASSED)


def test_adaptive_noise_is_said_to_be_in_units_of_the_joint_vector(texts: dict[str, str]) -> None:
    assert "in units of the joint vector of sum and count, not of the gradient." in texts["adaptive"]
    assert "the stated deviation times the step's bound over the root of 1 minus the count's share" in texts["adaptive"]


def test_a_simulated_federation_says_that_one_place_held_all_data(texts: dict[str, str]) -> None:
    assert "whoever ran it held all data and is trusted with them" in texts["federated_private"]


def test_a_federations_neighbours_leave_everybody_else_where_they_were(texts: dict[str, str]) -> None:
    assert (
        "every unit's data are at one node only, which follows from that unit alone, and the nodes' random numbers are independent"
        in texts["federated_private"]
    )


def test_a_federations_private_held_out_records_are_trusted_to_one_place(texts: dict[str, str]) -> None:
    assert "the held-out records are at one place, which is trusted with them" in texts["federated_private"]


def test_a_federations_releases_are_each_nodes(texts: dict[str, str]) -> None:
    assert "probability 0.16901408450704225 at each node." in texts["federated_private"]


def test_private_counts_arent_told_as_releases_on_the_training_data(texts: dict[str, str]) -> None:
    assert "3 counts of right answers among all 181 held-out records with gaussian noise of standard deviation 20.0." in texts["private"]
    assert "on all of the data" not in texts["private"]


def test_a_run_without_guarantee_says_of_nothing_that_it_is_covered(texts: dict[str, str]) -> None:
    text = texts["seeded"]
    assert "no guarantee covers any of it" in text
    assert "not covered, as nothing of this run is: a checkpoint holds" in text
    assert "stronger than the model needs" not in text
    assert "What a guarantee would rest on" in text


def test_the_public_divisor_is_told(texts: dict[str, str]) -> None:
    assert "each sum divided by the public number 10." in texts["patients"]


def test_public_numbers_are_named_as_an_assumption(texts: dict[str, str]) -> None:
    assert "the numbers of units, of training records and of held-out records are public" in texts["private"]


def test_held_out_records_of_protected_people_are_said_to_be_uncovered(texts: dict[str, str]) -> None:
    assert "even where one is of somebody who is also in the training data" in texts["patients"]


def test_a_delta_of_one_over_the_units_is_pointed_out(texts: dict[str, str]) -> None:
    assert "Mind delta: it is one over the 710 units or more" in texts["large_delta"]
    assert "Mind delta" not in texts["private"]


def test_a_guarantee_for_rows_of_people_names_the_row_of_the_errata(envelopes: dict[str, bytes]) -> None:
    assert "C10" in {note.row for note in read(envelopes["slices"]).errata}
    assert "C10" not in {note.row for note in read(envelopes["patients"]).errata}


def _lied(envelope: bytes, lie: Lie) -> PrivacyCertificate:
    predicate: dict[str, Any] = statement_of(envelope)["predicate"]
    lie(predicate)
    return PrivacyCertificate.model_validate_json(json.dumps(predicate))


def _set(*path: str, value: object) -> Lie:
    def change(predicate: dict[str, Any]) -> None:
        place = predicate
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("lie", "field"),
    [
        (_set("scope", "trust_model", value="Nobody can see the data"), "scope.trust_model"),
        (_set("data", "unit_meaning", value="one patient is a whole family"), "data.unit_meaning"),
        (_set("data", "records_per_unit", value=8), "data.unit_meaning"),
        (_set("clipping", "kind", value="per_layer"), "clipping.meaning"),
        (_set("clipping", "meaning", value="nothing was clipped that needn't be"), "clipping.meaning"),
        (_set("scope", "test_metrics", value="covered"), "scope.test_metrics"),
        (_set("scope", "checkpoints", value="none"), "scope.checkpoints"),
        (_set("not_covered", value=[]), "not_covered"),
        (_set("assumptions", value=[]), "assumptions"),
        (_set("environment", "precision", value="bfloat16"), "randomness.floating_point"),
        (_set("audit", "detail", value="an audit found nothing"), "audit.detail"),
        (_set("job", "algorithm", value="federated_zeta_dp_sgd"), "scope.trust_model"),
    ],
)
def test_other_words_are_told_as_nobodys_here(lie: Lie, field: str, envelopes: dict[str, bytes]) -> None:
    check = check_sentences(_lied(envelopes["patients"], lie))
    assert (check.status, field in check.detail) == (Status.NOT_CHECKED, True)


def test_a_verdict_names_sentences_that_nobody_here_writes(envelopes: dict[str, bytes], settings: Settings, keys: PublicKeySet) -> None:
    lie = _set("scope", "trust_model", value="Nobody can see the data")
    report = verify(forged(envelopes["patients"], settings, lambda statement: lie(statement["predicate"])), keys, None)
    assert "Not checked: sentences" in report.meaning


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (_set("steps", "planned", value=39), "steps: 40 were released of 39 planned"),
        (_set("job", "resumptions", value=2), "job: 2 attempts can't have gone on from a checkpoint 2 times"),
        (_set("job", "finished", value="2025-01-01T00:00:00Z"), "job: it finished before it started"),
    ],
)
def test_a_history_that_cant_be_is_refused(lie: Lie, reason: str, envelopes: dict[str, bytes]) -> None:
    check = check_parts(_lied(envelopes["patients"], lie))
    assert (check.status, reason in check.detail) == (Status.FAILED, True)
