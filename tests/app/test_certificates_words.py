"""Certificates of runs in other settings: federated, clipped by layer or adaptively, evaluated in private; each verified and lied about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.certificates.errors import CertificateRefused
from app.certificates.guarantee import ApproximateDp
from app.certificates.issue import CertificateInput, issue_certificate
from app.certificates.keys import PublicKeySet
from app.certificates.statement import PrivacyCertificate
from app.certificates.text import describe
from app.certificates.verification import read, verify
from app.settings import Settings
from tests.app.certificates_harness import details, finished_run, forged
from trainer.plan import FlatClipping
from trainer.report import RunReport

FEDERATED: dict[str, object] = {
    "algorithm": "federated_zeta_dp_sgd",
    "optimizer": None,
    "server": {"kind": "fed_adam", "learning_rate": 0.01},
    "nodes": 4,
    "distribution_seed": 0,
    "expected_batch_size": 30,
}
ADAPTIVE: dict[str, object] = {"clipping": {"kind": "adaptive", "quantile": 0.5, "learning_rate": 0.2, "count_share": 0.01}}
PRIVATE: dict[str, object] = {"evaluation": {"kind": "private_accuracy", "noise_std": 20.0, "every_steps": 15}}
PATIENTS: dict[str, object] = {
    "data": {"kind": "mri_phantoms", "patients": 40, "test_patients": 2, "slices": 1, "seed": 0},
    "model": {
        "kind": "sequential",
        "numbers": "complex",
        "layers": [{"kind": "flatten"}, {"kind": "linear", "outputs": 4}],
        "head": "magnitude",
    },
    "privacy": {"adjacency": "add_remove", "unit": "patient", "delta": 1e-3, "noise_multiplier": 4.0},
    "records_per_user": 3,
    "expected_batch_size": 10,
}
SETTINGS: dict[str, dict[str, object]] = {
    "patients": PATIENTS,
    "federated_patients": PATIENTS | FEDERATED | {"expected_batch_size": 5},
    "federated": FEDERATED,
    "declared": {"declared_units": 1000},
    "declared_patients": PATIENTS | {"declared_units": 64},
    "per_layer": {"clipping": {"kind": "per_layer"}},
    "adaptive": ADAPTIVE,
    "private": PRIVATE,
    "unmeasured": {"evaluation": None},
    "federated_private": FEDERATED | PRIVATE,
}

Lie = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def runs(folder: Path) -> dict[str, CertificateInput]:
    return {name: replace(finished_run(folder / name, **changes), job_id=name) for name, changes in SETTINGS.items()}


@pytest.fixture(scope="module")
def envelopes(runs: dict[str, CertificateInput], settings: Settings) -> dict[str, bytes]:
    return {name: issue_certificate(run, settings) for name, run in runs.items()}


@pytest.fixture(scope="module")
def predicates(envelopes: dict[str, bytes]) -> dict[str, PrivacyCertificate]:
    return {name: read(envelope) for name, envelope in envelopes.items()}


@pytest.fixture(scope="module")
def texts(predicates: dict[str, PrivacyCertificate]) -> dict[str, str]:
    return {name: describe(predicate) for name, predicate in predicates.items()}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_certificate_of_every_setting_verifies(name: str, envelopes: dict[str, bytes], keys: PublicKeySet) -> None:
    report = verify(envelopes[name], keys, None)
    assert report.verdict == "valid", report.checks


# What is said


def test_a_federated_run_names_its_nodes_and_whose_noise_it_is(texts: dict[str, str]) -> None:
    assert "Nodes: 4, each with units of its own. Every node takes part in every round" in texts["federated"]
    assert "Every node adds the whole stated noise to its own sum before anything leaves it" in texts["federated"]
    assert (
        "Trust: Here all nodes and the server were simulated at one place: whoever ran it held all data and is trusted with them"
        in texts["federated"]
    )


def test_a_federated_guarantee_is_that_of_every_nodes_rate(predicates: dict[str, PrivacyCertificate]) -> None:
    assert predicates["federated"].releases[0].sampling.probability == repr(30 * 4 / 710)


def test_a_declared_number_is_called_so_and_nothing_counts_the_units(
    texts: dict[str, str], predicates: dict[str, PrivacyCertificate], runs: dict[str, CertificateInput]
) -> None:
    assert "Data: taken to be of 1000 of the unit 'record', a number that was declared without counting them." in texts["declared"]
    assert (
        "taken to be of 64 of the unit 'patient', a number that was declared without counting them, at most" in texts["declared_patients"]
    )
    for name, declared in (("declared", 1000), ("declared_patients", 64)):
        predicate, report = predicates[name], runs[name].report
        assert (predicate.data.declared_units, predicate.data.training_records) == (declared, None)
        assert any(
            line.startswith("the number of units that the sampling probability follows from was declared") for line in predicate.assumptions
        )
        assert report.training_records not in set(_numbers(predicate.model_dump(mode="json")))
        assert f"{report.training_records} training" not in texts[name]
    assert any(line.startswith("the numbers of units, of training records and of held-out") for line in predicates["patients"].assumptions)


def _numbers(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _numbers(one)
    else:
        yield value


def test_a_central_run_names_no_nodes(texts: dict[str, str]) -> None:
    assert "Nodes:" not in texts["per_layer"]


def test_clipping_by_layer_says_how_the_layers_share_the_bound(texts: dict[str, str]) -> None:
    assert "over the root of the number of layers, so that the whole has at most this l2 norm" in texts["per_layer"]


def test_adaptive_clipping_names_its_quantile_and_what_its_count_takes(texts: dict[str, str]) -> None:
    assert "starts at 0.5 and follows the 0.5 quantile of the norms; its count takes 0.01 of the squared sensitivity" in texts["adaptive"]


def test_adaptive_clipping_is_accounted_with_the_joint_vectors_sensitivity(predicates: dict[str, PrivacyCertificate]) -> None:
    noise = predicates["adaptive"].releases[0].mechanism
    assert (noise.sensitivity.l2, noise.noise_multiplier) == ("1.0", "2.0")


def test_private_counts_are_releases_of_the_event(predicates: dict[str, PrivacyCertificate]) -> None:
    counts = predicates["private"].releases[-1]
    # After steps 15, 30 and the last of 40.
    assert (counts.count, counts.mechanism.kind, counts.mechanism.std_real, counts.sampling.kind) == (3, "gaussian", "20.0", "none")


def test_private_counts_cost_epsilon(predicates: dict[str, PrivacyCertificate]) -> None:
    with_counts, without = predicates["private"].guarantee, predicates["unmeasured"].guarantee
    assert isinstance(with_counts, ApproximateDp)
    assert isinstance(without, ApproximateDp)
    assert float(with_counts.epsilon) > float(without.epsilon)


def test_held_out_records_are_uncovered_only_where_they_are_public(predicates: dict[str, PrivacyCertificate]) -> None:
    told = {name: any("held-out" in line for line in predicate.not_covered) for name, predicate in predicates.items()}
    assert told == {
        "patients": True,
        "federated_patients": True,
        "federated": True,
        "per_layer": True,
        "adaptive": True,
        "private": False,
        "unmeasured": True,
        "declared": True,
        "declared_patients": True,
        "federated_private": False,
    }


def test_a_run_that_measured_nothing_says_so(texts: dict[str, str], predicates: dict[str, PrivacyCertificate]) -> None:
    assert "Held-out records: no metrics on 181 of them: nothing about the held-out records left the run" in texts["unmeasured"]
    assert predicates["unmeasured"].scope.test_accuracy is None


def test_released_checkpoints_are_counted(texts: dict[str, str]) -> None:
    assert "Checkpoints: 3, covered: a checkpoint holds model, optimizer and step count" in texts["unmeasured"]


def test_a_guarantee_for_patients_says_what_a_patient_is_and_that_its_sum_is_clipped(texts: dict[str, str]) -> None:
    text = texts["patients"]
    assert "Protected: each patient of the training data; one patient is all rows of the training data that are that patient's" in text
    assert "160 training records, of 40 of the unit 'patient', at most 3 records of each used" in text
    assert "each patient's whole gradient" in text
    assert "a patient's gradient is the sum over all of its records that are used" in text
    assert "each patient drawn with probability 0.25" in text


def test_a_guarantee_for_patients_rests_on_the_data_sets_word_for_whose_records_they_are(predicates: dict[str, PrivacyCertificate]) -> None:
    assert any("whose record each one is, is as the data set says" in line for line in predicates["patients"].assumptions)
    assert not any("whose record each one is" in line for line in predicates["federated"].assumptions)


def test_units_are_records_only_where_a_record_is_the_unit(predicates: dict[str, PrivacyCertificate]) -> None:
    told = {name: predicate.data.units_are_records for name, predicate in predicates.items()}
    assert {name for name, is_record in told.items() if not is_record} == {"patients", "federated_patients", "declared_patients"}


# Lies


def _set(*path: str, value: object) -> Lie:
    def change(predicate: dict[str, Any]) -> None:
        place = predicate
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("name", "lie", "told"),
    [
        ("patients", _set("data", "units", value=160), "expected_batch_size / units is 0.0625, the event samples with 0.25"),
        ("declared", _set("data", "declared_units", value=999), "expected_batch_size / declared_units is"),
        ("declared", _set("data", "training_records", value=1000), "exactly one of the two is stated"),
        ("declared", _set("data", "declared_units", value=None), "exactly one of the two is stated"),
        ("declared_patients", _set("data", "units", value=40), "data.units: 40, but 64 were declared"),
        ("patients", _set("data", "units", value=None), "expected_batch_size / training_records is 0.0625"),
        ("patients", _set("data", "units_are_records", value=True), "its event is of units that hold several records"),
        ("federated_patients", _set("federation", "nodes", value=5), "expected_batch_size * federation.nodes / units is"),
        ("federated", _set("federation", "nodes", value=3), "expected_batch_size * federation.nodes / training_records is"),
        ("federated", _set("federation", value=None), "expected_batch_size / training_records is"),
        ("federated", _set("data", "expected_batch_size", value=31), "expected_batch_size * federation.nodes / training_records is"),
        ("per_layer", _set("clipping", "bound", value="0.25"), "the event's sensitivity is for 0.5"),
        ("per_layer", _set("clipping", "quantile", value="0.5"), "are stated exactly for adaptive clipping"),
        ("adaptive", _set("clipping", "count_share", value="1.5"), "clipping.count_share must be in (0, 1), got 1.5"),
        ("adaptive", _set("clipping", "quantile", value=None), "are stated exactly for adaptive clipping"),
        (
            "adaptive",
            _set("clipping", "kind", value="flat"),
            "clipping.bound: the certificate says 0.5, the event's sensitivity is for 1.0",
        ),
        ("per_layer", _set("clipping", "kind", value="adaptive"), "the adaptive vector moves by 1.0, the event's sensitivity is for 0.5"),
        ("private", _set("scope", "evaluation", "counts", value=2), "says 2 counts with noise 20.0, its event has 3 with 20.0"),
        ("private", _set("scope", "evaluation", "noise_std", value="30.0"), "says 3 counts with noise 30.0, its event has 3 with 20.0"),
        ("private", _set("scope", "evaluation", "every_steps", value=40), "don't make 3 counts"),
        ("private", _set("scope", "evaluation", "kind", value="public"), "are of a private evaluation, got kind 'public'"),
        ("private", _set("scope", "evaluation", "metrics", "accuracy", value="1.5"), "accuracy must be in [0, 1], got 1.5"),
        ("per_layer", _set("scope", "evaluation", "kind", value="private"), "the event doesn't end with their releases"),
        ("per_layer", _set("scope", "evaluation", value=None), "test_accuracy or evaluation must be stated, and not both"),
        ("per_layer", _set("scope", "test_accuracy", value="0.5"), "test_accuracy or evaluation must be stated, and not both"),
        ("unmeasured", _set("scope", "evaluation", "metrics", value={"accuracy": "0.9"}), "stated exactly where something was measured"),
        ("unmeasured", _set("data", "units", value=10), "data.units and data.records_per_unit: both are stated, or neither"),
        ("unmeasured", _set("randomness", "generator", value="AES-256-CTR keyed by a user's seed"), "aren't those of origin"),
    ],
)
def test_a_statement_that_its_event_refutes_is_invalid(
    name: str, lie: Lie, told: str, envelopes: dict[str, bytes], settings: Settings, keys: PublicKeySet
) -> None:
    report = verify(forged(envelopes[name], settings, lambda statement: lie(statement["predicate"])), keys, None)
    assert report.verdict == "invalid"
    assert told in details(report, "event") + details(report, "parts")


# Refusals


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("unmeasured", {"held_out": "public", "metrics": {"accuracy": 0.5}}, "what the held-out records are was planned as 'none'"),
        ("federated", {"training_units": 709}, "the number of units in the training data was planned as 710"),
    ],
)
def test_a_report_of_another_run_is_refused(
    name: str, changes: dict[str, object], message: str, runs: dict[str, CertificateInput], settings: Settings
) -> None:
    report = RunReport.model_validate({**dict(runs[name].report), **changes})
    with pytest.raises(CertificateRefused, match=message):
        issue_certificate(replace(runs[name], report=report), settings)


def test_a_plan_that_clips_otherwise_than_its_spec_is_refused(runs: dict[str, CertificateInput], settings: Settings) -> None:
    run = runs["per_layer"]
    plan = type(run.plan).model_validate({**dict(run.plan), "clipping": FlatClipping(bound=0.5)})
    with pytest.raises(CertificateRefused, match=r"plan\.clipping\.kind was planned as 'per_layer' and the run reports 'flat'"):
        issue_certificate(replace(run, plan=plan), settings)
