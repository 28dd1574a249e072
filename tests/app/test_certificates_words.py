"""What a certificate says in every setting, in words: whom it protects, on what that rests, and what it doesn't cover."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from tests.app.certificate_kinds import BASELINE, DIGITS, KINDS, MLP, SETTINGS, SPECTRAL
from tests.app.certificates_harness import finished_run, run_of, statement_of
from tests.selection import thinned
from zetadp.accountants.events import non_private_reason
from zetadp.app.certificates.facts.guarantee import ApproximateDp
from zetadp.app.certificates.facts.ledger_entry import LedgerFacts
from zetadp.app.certificates.facts.wording import SAMPLED
from zetadp.app.certificates.issuing.issue import CertificateInput, issue_certificate
from zetadp.app.certificates.page.plain import describe
from zetadp.app.certificates.signing.envelope import Envelope
from zetadp.app.certificates.signing.keys import PublicKeySet
from zetadp.app.certificates.verification.verify import read, verify
from zetadp.app.certificates.words.caveats import RESTS, SEEDED, of_run
from zetadp.app.certificates.words.reading import Reading
from zetadp.app.kit.settings import Settings
from zetadp.mechanisms import ComplexGaussian
from zetadp.trainer.specs.report import RunReport

Issued = Callable[[str], bytes]
Readings = Callable[[str], Reading]
Texts = Callable[[str], str]

ENTRY = LedgerFacts(ledger="0" * 31 + "1", reservation="0" * 31 + "2", entry=7, sha256="ab" * 32)
OWNERS = "each record belongs to the user that the data set states; which of a user's records are used depends on its own records alone"


WEIGHTS = save({"1_convolution.weight": np.zeros((4, 2, 5, 5), np.float32), "1_convolution.bias": np.zeros(4, np.float32)})
DIGEST = hashlib.sha256(WEIGHTS).hexdigest()
GIVEN: dict[str, object] = {"kind": "given", "file": "start.safetensors", "sha256": DIGEST, "frozen_layers": 0, "given_layers": 2}
STARTED: dict[str, object] = {"model": MLP | {"initial_weights": GIVEN}}


@pytest.mark.parametrize("name", thinned(SETTINGS, every=4))
def test_a_certificate_of_every_setting_verifies(name: str, issued: Issued, keys: PublicKeySet) -> None:
    report = verify(issued(name), keys, None)
    assert report.verdict == "valid", report.checks


# Facts, not prose


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    entries = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for one in entries:
        yield from _strings(one)


@pytest.mark.parametrize("name", thinned([*KINDS, *SETTINGS], every=6))
def test_no_prose_is_signed(name: str, issued: Issued) -> None:
    # Why an algorithm has no guarantee is a fact of its plan, and may take some lines.
    reason = non_private_reason(read(issued(name)).event) or "no reason"
    assert [text for text in _strings(statement_of(issued(name))) if len(text) > 400 and reason not in text] == []


def test_a_plain_certificate_is_short(issued: Issued) -> None:
    assert len(Envelope.model_validate_json(issued("plain")).content) <= 4096


# Who is protected, and on what that rests


def test_a_guarantee_for_patients_says_what_a_patient_is_and_that_its_sum_is_clipped(text: Texts) -> None:
    told = text("patients")
    assert "Protected: each patient of the training data; one patient is all rows of the training data that are that patient's" in told
    assert "160 training records of 40 units (patient), of which at most 3 records each are used" in told
    assert "each patient's whole gradient" in told
    assert "a patient's gradient is the sum of the gradients of its records that are used" in told
    assert "each patient drawn with probability 0.25" in told


def test_a_record_is_one_row_and_whoever_has_several_is_protected_less(reading: Readings) -> None:
    meaning = "one record is one row of the training data as described; a person with several rows is protected less"
    assert reading("plain").unit_meaning == meaning


def test_a_guarantee_for_owners_rests_on_the_data_sets_word_for_whose_records_they_are(reading: Readings) -> None:
    assert OWNERS in reading("sums_users").assumptions
    assert OWNERS.replace("user", "patient") in reading("patients").assumptions
    for name in ("sums", "federated"):
        assert not any("each record belongs to the" in line for line in reading(name).assumptions)


def test_a_guarantee_for_rows_of_people_names_the_row_of_the_errata(reading: Readings) -> None:
    assert "C10" in reading("slices").certificate.errata
    assert "C10" not in reading("patients").certificate.errata


@pytest.mark.parametrize(
    ("name", "noise", "assumption"),
    [
        (
            "truncated",
            "drawn with probability 0.056338028169014086, samples cut to at most 60 of at most 711 (counted in units of one record)",
            "is used",
        ),
        ("fixed_size", "on samples of exactly 40 of 710 (counted in units of one record)", "random set"),
        (
            "allocated",
            "noise of standard deviation 1.0 on each real component, each over 7 steps",
            "one step",
        ),
        ("cyclic", "14 releases with complex Gaussian noise", "one group"),
        ("cyclic_patients", "10 releases with complex Gaussian noise", "one group"),
    ],
)
def test_a_certificate_tells_how_samples_were_drawn(name: str, noise: str, assumption: str, text: Texts, reading: Readings) -> None:
    assert noise in text(name)
    (told,) = (line for line in reading(name).assumptions if line in SAMPLED.values())
    assert assumption in told


@pytest.mark.parametrize("name", ["plain", "fixed_size", "allocated", "truncated"])
def test_what_the_errata_say_of_samples_is_true_of_each_way_of_drawing_them(name: str, reading: Readings) -> None:
    (of_samples,) = (meaning for row, meaning in reading(name).errata if row.row == "Z12")
    assert "here every sample is accounted for as it was drawn" in of_samples
    assert "uses Poisson" not in of_samples


def test_a_declared_number_is_called_so_and_nothing_counts_the_units(issued: Issued, text: Texts, reading: Readings) -> None:
    assert "Data: 1000 units (record) by a number that was declared without counting them." in text("declared")
    patients = "64 units (patient) by a number that was declared without counting them, of which at most"
    assert patients in text("declared_patients")
    for name, counted in (("declared", 710), ("declared_patients", 160)):
        assert any(
            line.startswith("the number of units, from which the sampling probability follows, was declared")
            for line in reading(name).assumptions
        )
        assert counted not in set(_numbers(statement_of(issued(name))))
        assert f"{counted} training" not in text(name)
    assert any(line.startswith("the numbers of units, of training records and of held-out") for line in reading("patients").assumptions)


def _numbers(value: object) -> Iterator[object]:
    entries = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for one in entries:
        yield from _numbers(one)
    yield None if isinstance(value, dict | list) else value


def test_a_delta_of_one_over_the_units_is_pointed_out(text: Texts) -> None:
    assert "Delta is large: one over the number of units (710) or more." in text("large_delta")
    assert "Delta is large" not in text("private")


def test_public_numbers_are_named_as_an_assumption_and_the_divisor_is_told(text: Texts) -> None:
    assert "the numbers of units, of training records and of held-out records are public" in text("private")
    assert "each sum divided by the public number 10." in text("patients")


def test_a_run_is_told_with_what_voids_its_epsilon_the_gravest_first(folder: Path) -> None:
    settings = {"nothing": {"evaluation": None}, "public": {}, "seeded": {"reproducible": True, "seed": 3}}
    told = {name: of_run(finished_run(folder / "caveats" / name, **changes).spec) for name, changes in settings.items()}
    assert told["nothing"] == (RESTS,)
    assert told["seeded"] == (SEEDED, *told["public"])
    (of_public, rests) = told["public"]
    assert of_public.startswith("the held-out records: whoever asked for the training declared the held-out records public")
    assert rests == RESTS


def test_a_seeded_run_says_of_nothing_that_it_is_covered(text: Texts) -> None:
    told = text("seeded")
    assert "THERE IS NO PRIVACY GUARANTEE" in told
    assert "no guarantee covers any of it" in told
    assert "not covered, since nothing in this run is: a checkpoint holds" in told
    assert "holds even against" not in told
    assert "further cost" not in told
    assert "What a guarantee would rest on" in told


# Federations


def test_a_federated_run_names_its_nodes_and_whose_noise_it_is(text: Texts) -> None:
    told = text("federated")
    assert "Nodes: 4, each with units of its own. Every node takes part in every round" in told
    assert "Every node adds the whole stated noise to its own sum before anything leaves it" in told
    assert "probability 0.16901408450704225 at each node." in told  # 30 * 4 / 710
    trust = "Trust: Here all nodes and the server were simulated in one place: the party that ran the simulation held all data"
    assert f"{trust} and is trusted with them" in told
    assert "Nodes:" not in text("per_layer")


def test_shares_of_noise_are_said_to_be_shares_and_rest_on_the_other_nodes(text: Texts, reading: Readings) -> None:
    told, found = text("secure"), reading("secure")
    assert "Every node adds a share of the noise to its own sum, of the stated variance divided by 2, and only one sum" in told
    assert "2 shares: so many of 4 are left if 1 drop out and the noise of 1 more is known to an attacker" in told
    assert "probability 0.16901408450704225 in the shares of 2 nodes together." in told
    assert "at least 2 of any 3 of the 4 nodes are honest: one node's own noise is only a share" in found.trust
    assert any(one.startswith("at most 1 of the 4 nodes are an attacker's") for one in found.assumptions)
    assert "whether sums are right" in found.not_covered[-1]
    assert {"shared_noise.md", "secure_sum.md"} <= set(found.kind.proofs)
    # Nothing is left of what is said of whole noise.
    assert "whole" not in found.trust
    assert "whole stated noise" not in told
    assert "every node's noisy update" not in told
    assert "every noisy gradient sum" not in told
    assert "who sees the sum of every round, from which the model is computed, but not a node's own sum" in told


def test_a_federations_neighbours_leave_everybody_else_where_they_were(reading: Readings) -> None:
    at_one = "every unit's data are at one node only, that node depends on that unit alone, and the nodes' random numbers are independent"
    assert at_one in reading("federated_private").assumptions
    assert at_one not in reading("private").assumptions


def test_a_federations_private_held_out_records_are_trusted_to_one_place(text: Texts) -> None:
    assert "the held-out records are at one place, which is trusted with them" in text("federated_private")


# Clipping


def test_clipping_by_layer_says_how_the_layers_share_the_bound(text: Texts) -> None:
    assert "divided by the square root of the number of layers, so that the whole has at most this l2 norm" in text("per_layer")


def test_adaptive_clipping_names_its_quantile_and_in_what_units_its_noise_is(text: Texts) -> None:
    told = text("adaptive")
    assert "starts at 0.5 and follows the 0.5 quantile of the norms; its count accounts for 0.01 of the squared sensitivity" in told
    assert "in units of the joint vector of sum and count, not of the gradient." in told
    assert "is the stated one times the step's bound, divided by the square root of 1 minus the count's share" in told


def test_a_scheduled_bound_is_told_with_its_schedule_and_costs_what_a_constant_one_does(text: Texts, reading: Readings) -> None:
    told = text("scheduled")
    assert "to a bound that starts at 0.5 and falls along half a cosine to 0.25 of it, over 40 steps" in told
    assert "standard deviation 2.0" in told
    assert "in units of the step's clipping bound, not of the gradient" in told
    assert reading("scheduled").certificate.guarantee == reading("plain").certificate.guarantee


def test_adaptive_clipping_is_accounted_with_the_joint_vectors_sensitivity(reading: Readings) -> None:
    (noise,) = reading("adaptive").certificate.plan.mechanisms
    assert isinstance(noise, ComplexGaussian)
    assert (noise.sensitivity.l2, noise.std) == (1.0, 2.0)


# Held-out records


def test_private_counts_are_told_as_what_they_are_and_cost_epsilon(text: Texts, reading: Readings) -> None:
    # After steps 15, 30 and the last of 40.
    told = "3 counts of correct answers among all 181 held-out records with Gaussian noise of standard deviation 20.0."
    assert told in text("private")
    assert "on all of the data" not in text("private")
    assert reading("private").releases[-1].count == 3
    with_counts, without = (reading(name).certificate.guarantee for name in ("private", "unmeasured"))
    assert isinstance(with_counts, ApproximateDp)
    assert isinstance(without, ApproximateDp)
    assert float(with_counts.epsilon) > float(without.epsilon)


@pytest.mark.parametrize("name", thinned(SETTINGS, every=6))
def test_held_out_records_are_uncovered_unless_they_are_private(name: str, reading: Readings) -> None:
    assert any("held-out" in line for line in reading(name).not_covered) == (name not in {"private", "federated_private"})


def test_metrics_are_shortened_for_reading_and_whole_in_the_file(run: CertificateInput, settings: Settings) -> None:
    long = RunReport.model_validate(dict(run.report) | {"metrics": {"accuracy": 0.7624309392265194}})
    certificate = read(issue_certificate(replace(run, report=long), settings))
    assert "Held-out records: accuracy 0.7624, on 181 records" in describe(certificate)
    assert certificate.run.metrics == {"accuracy": "0.7624309392265194"}


def test_a_run_that_measured_nothing_says_so(text: Texts) -> None:
    assert "Held-out records: no metrics, on 181 records; nothing about the held-out records left the run" in text("unmeasured")
    assert "Checkpoints: 3, covered: a checkpoint holds the model, the optimizer and the step count" in text("unmeasured")


def test_held_out_records_of_protected_people_are_said_to_be_uncovered(text: Texts) -> None:
    sentence = "no held-out record is protected, not even one of somebody who is also in the training data"
    assert text("patients").count(sentence) == 2  # with epsilon and with what was measured on them, in the same words


# Ledgers


def test_a_ledgers_entry_is_named_and_what_it_ties_together_is_said(folder: Path, settings: Settings, keys: PublicKeySet) -> None:
    envelope = issue_certificate(replace(finished_run(folder / "charged"), ledger=ENTRY), settings)
    assert verify(envelope, keys, None).verdict == "valid"
    assert read(envelope).ledger == ENTRY
    told = " ".join(describe(read(envelope)).split())
    assert f"Budget: reserved in ledger {ENTRY.ledger}, entry 7, whose digest is {'ab' * 32}; this budget is never renewed." in told
    assert "ties this one only to those that were charged to the same ledger" in told
    assert "no ledger entry ties" not in told


def test_a_renewed_ledger_is_said_to_bound_one_period_alone(folder: Path, settings: Settings, keys: PublicKeySet) -> None:
    renewed = LedgerFacts.model_validate(dict(ENTRY) | {"renews_after_days": 90})
    envelope = issue_certificate(replace(finished_run(folder / "renewed"), ledger=renewed), settings)
    assert verify(envelope, keys, None).verdict == "valid"
    told = " ".join(describe(read(envelope)).split())
    assert f"{'ab' * 32}; its budget is free again every 90 days, so it bounds no uses of the same data over longer times." in told
    assert "charged to the same ledger in the same period of its budget, which is free again in the next one" in told


def test_a_run_without_a_ledger_says_that_nothing_ties_it_to_others(text: Texts) -> None:
    assert "no ledger entry ties this one to others" in text("plain")
    assert "Budget:" not in text("plain")


# Given weights


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "start.safetensors").write_bytes(WEIGHTS)
    monkeypatch.setenv("ZETADP_DATA_SETS_DIR", str(tmp_path))
    return tmp_path


AVERAGED = "is a running mean of the parameters over the steps"
FREE_MEAN = f"{AVERAGED}, computed from what was released at no further cost in privacy"


@pytest.mark.parametrize(("changes", "told"), [({}, FREE_MEAN), ({"reproducible": True, "seed": 5}, AVERAGED)], ids=["private", "seeded"])
def test_a_running_mean_of_parameters_is_named_and_costs_nothing(
    changes: dict[str, object], told: str, folder: Path, settings: Settings, keys: PublicKeySet
) -> None:
    run = finished_run(folder / "averaged" / str(len(changes)), averaging={"kind": "exponential", "decay": 0.99}, **changes)
    envelope = issue_certificate(run, settings)
    assert f"the model {told}." in " ".join(describe(read(envelope)).split())
    assert verify(envelope, keys, None).verdict == "valid"


def test_a_running_mean_of_any_part_of_a_comparison_is_named(root: Path, settings: Settings, issued: Issued, text: Texts) -> None:
    parts = [{"name": "last", "spec": SPECTRAL}, {"name": "mean", "spec": SPECTRAL | {"averaging": {"kind": "exponential"}}}]
    envelope = issue_certificate(run_of({"algorithm": "comparison", "data": DIGITS, "parts": parts}, root / "run"), settings)
    assert f"a model {FREE_MEAN}." in " ".join(describe(read(envelope)).split())
    assert AVERAGED not in text("plain") + text("comparison")
    assert b"averaged" not in Envelope.model_validate_json(issued("plain")).content


def test_given_weights_are_named_and_not_covered(root: Path, settings: Settings, keys: PublicKeySet) -> None:
    envelope = issue_certificate(run_of(SPECTRAL | STARTED, root / "run"), settings)
    sentence = f"the weights that training started from (SHA-256 {DIGEST}): they are assumed to be public"
    assert read(envelope).run.given_weights == (DIGEST,)
    assert any(line.startswith(sentence) for line in Reading(read(envelope)).not_covered)
    assert sentence in describe(read(envelope))
    assert verify(envelope, keys, None).verdict == "valid"


def test_weights_of_any_part_of_a_comparison_are_named(root: Path, settings: Settings) -> None:
    parts = [{"name": "fresh", "spec": SPECTRAL}, {"name": "given", "spec": BASELINE | STARTED}]
    envelope = issue_certificate(run_of({"algorithm": "comparison", "data": DIGITS, "parts": parts}, root / "run"), settings)
    assert read(envelope).run.given_weights == (DIGEST,)


def test_a_training_that_draws_its_own_weights_says_nothing_of_others(issued: Issued, reading: Readings) -> None:
    assert b"given_weights" not in Envelope.model_validate_json(issued("spectral")).content
    assert not any("weights that training started from" in line for line in reading("spectral").not_covered)
