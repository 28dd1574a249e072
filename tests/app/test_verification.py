"""Verification: what is valid, and that everything else is invalid with a reason and never an exception."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.app.certificates_harness import details, finished_run, forged, statement_of
from tests.selection import thinned
from zetadp.app.certificates.facts.report import Status, VerificationReport
from zetadp.app.certificates.facts.statement import Digest, Subject
from zetadp.app.certificates.issuing.issue import CertificateInput, issue_certificate
from zetadp.app.certificates.signing.digests import code_manifest, sha256_of
from zetadp.app.certificates.signing.keys import PublicKeySet, jwks, rotate
from zetadp.app.certificates.verification.files import check_file
from zetadp.app.certificates.verification.verify import verify
from zetadp.app.kit.settings import Settings
from zetadp.trainer.specs.report import RunReport

Change = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def report(envelope: bytes, keys: PublicKeySet, folder: Path) -> VerificationReport:
    return verify(envelope, keys, folder / "files")


@pytest.fixture(scope="module")
def subjects(envelope: bytes) -> dict[str, Subject]:
    return {subject["name"]: Subject.model_validate(subject) for subject in statement_of(envelope)["subject"]}  # pyright: ignore


@pytest.fixture(scope="module")
def manifest(settings: Settings, envelope: bytes) -> bytes:
    return next((settings.data_dir / "manifests").glob("*.json")).read_bytes()


@pytest.fixture
def forge(envelope: bytes, settings: Settings, keys: PublicKeySet) -> Callable[[Change], VerificationReport]:
    """Changes the predicate, signs it again with the same key, and verifies that."""

    def do(change: Change) -> VerificationReport:
        return verify(forged(envelope, settings, lambda statement: change(statement["predicate"])), keys, None)

    return do


def _noise(predicate: dict[str, Any]) -> dict[str, Any]:
    return predicate["plan"]["mechanism"]


# Valid


def test_an_issued_certificate_is_valid(report: VerificationReport) -> None:
    assert report.verdict == "valid", [check for check in report.checks if check.status is Status.FAILED]


def test_a_valid_certificate_says_that_there_is_a_guarantee(report: VerificationReport) -> None:
    assert report.guarantee == "stated"


def test_what_doesnt_hold_says_nothing_of_a_guarantee(envelope: bytes, settings: Settings) -> None:
    place = envelope.index(b'"payload"') + 100
    forged = envelope[:place] + (b"A" if envelope[place : place + 1] != b"A" else b"B") + envelope[place + 1 :]
    assert verify(forged, jwks(settings), None).guarantee is None


def test_epsilon_is_recomputed_independently(report: VerificationReport) -> None:
    assert "is at least the independently recomputed" in details(report, "recomputation", Status.PASSED)


def test_epsilon_is_bracketed_by_another_accountant_than_the_one_named(report: VerificationReport) -> None:
    told = details(report, "accountants", Status.PASSED)
    assert "named accountant contour" in told
    answered = re.findall(r"(\w+) \[[0-9.]+, [0-9.]+\]", told)
    assert answered[0] == "contour"
    assert set(answered[1:]) - {"contour", "rdp"}  # another route, and one with a lower end


def test_files_beside_the_certificate_are_compared(report: VerificationReport) -> None:
    found = {check.name for check in report.checks if check.name.startswith("file ") and check.status is Status.PASSED}
    assert {"file model.safetensors", "file spec.json"} <= found


def test_a_missing_file_is_said_not_to_be_checked(report: VerificationReport) -> None:
    assert (
        details(report, "file data-manifest.json", Status.NOT_CHECKED) == "not found next to the certificate, so its digest wasn't compared"
    )
    assert "Not checked: file data-manifest.json" in report.meaning


def test_the_meaning_disclaims_how_the_training_was_done(report: VerificationReport) -> None:
    assert "This doesn't prove that the training was done as stated" in report.meaning


def test_without_a_folder_no_file_is_checked(subjects: dict[str, Subject]) -> None:
    found = check_file(subjects["model.safetensors"], None)
    assert (found.status, found.detail) == (Status.NOT_CHECKED, "no folder was given to look for it in")


def test_the_data_manifest_passes_where_it_is_shown(subjects: dict[str, Subject], manifest: bytes, tmp_path: Path) -> None:
    (tmp_path / "data-manifest.json").write_bytes(manifest)
    assert check_file(subjects["data-manifest.json"], tmp_path).status is Status.PASSED


def test_a_spec_laid_out_for_reading_is_the_same_spec(subjects: dict[str, Subject], folder: Path, tmp_path: Path) -> None:
    pretty = json.dumps(json.loads((folder / "files" / "spec.json").read_bytes()), indent=2)
    (tmp_path / "spec.json").write_text(pretty)
    assert check_file(subjects["spec.json"], tmp_path).status is Status.PASSED


def test_a_certificate_signed_before_a_rotation_stays_valid(envelope: bytes, settings: Settings, tmp_path: Path) -> None:
    shutil.copytree(settings.data_dir / "keys", tmp_path / "keys")
    later = Settings(data_dir=tmp_path)
    rotate(later)
    assert details(verify(envelope, jwks(later), None), "signature", Status.PASSED).endswith(jwks(settings).keys[0].kid)


def test_a_final_newline_may_be_lost(envelope: bytes) -> None:
    assert details(verify(envelope.rstrip(b"\n"), PublicKeySet(keys=()), None), "envelope", Status.PASSED)


def test_a_seeded_run_is_valid_and_said_to_have_no_guarantee(settings: Settings, keys: PublicKeySet, tmp_path: Path) -> None:
    given_run = dataclasses.replace(finished_run(tmp_path, reproducible=True, seed=5), job_id="seeded")
    report = verify(issue_certificate(given_run, settings), keys, None)
    assert report.verdict == "valid"
    assert "NO privacy guarantee" in report.meaning


# Files


def test_a_changed_model_is_caught(envelope: bytes, keys: PublicKeySet, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"another model")
    report = verify(envelope, keys, tmp_path)
    assert report.verdict == "invalid"
    assert "isn't the file that was signed: SHA-256" in details(report, "file model.safetensors")


@pytest.mark.parametrize("content", thinned([b"{}", b"no json", b"[" * 100_000, b'{"a": NaN}'], every=2))
def test_a_changed_spec_is_caught(subjects: dict[str, Subject], tmp_path: Path, content: bytes) -> None:
    (tmp_path / "spec.json").write_bytes(content)
    found = check_file(subjects["spec.json"], tmp_path)
    assert (found.status, "isn't the file that was signed" in found.detail) == (Status.FAILED, True)


def test_a_changed_code_manifest_is_caught(subjects: dict[str, Subject], tmp_path: Path) -> None:
    (tmp_path / "code-manifest.sha256").write_bytes(b"no code")
    assert check_file(subjects["code-manifest.sha256"], tmp_path).status is Status.FAILED


def test_code_that_is_not_this_copys_is_said_to_be_unchecked() -> None:
    other = Subject(name="code-manifest.sha256", digest=Digest(sha256="0" * 64))
    assert check_file(other, None).detail.endswith("the run's code differs from this copy of zetadp")


def test_code_that_is_this_copys_passes_without_a_file() -> None:
    own = Subject(name="code-manifest.sha256", digest=Digest(sha256=sha256_of(code_manifest())))
    assert check_file(own, None).status is Status.PASSED


# Forged figures, validly signed


def _smaller_epsilon(predicate: dict[str, Any]) -> None:
    claim = predicate["guarantee"]
    true, false = claim["epsilon"], f"{float(claim['epsilon']) * 0.7:.6f}"
    claim["epsilon"], claim["epsilon_lower"] = false, false
    claim["delta_curve"] = sorted(
        ([false if epsilon == true else epsilon, delta] for epsilon, delta in claim["delta_curve"]),
        key=lambda p: float(p[0]),
    )
    # Deltas that fall again, so that only the recomputation can tell.
    for before, after in zip(claim["delta_curve"], claim["delta_curve"][1:], strict=False):
        if float(after[1]) > float(before[1]):
            after[1] = before[1]


@pytest.fixture(scope="module")
def smaller_epsilon(envelope: bytes, settings: Settings, keys: PublicKeySet) -> VerificationReport:
    return verify(forged(envelope, settings, lambda statement: _smaller_epsilon(statement["predicate"])), keys, None)


def test_a_smaller_epsilon_is_caught_by_the_independent_recomputation(smaller_epsilon: VerificationReport) -> None:
    assert "but recomputed from the event it is" in details(smaller_epsilon, "recomputation")


def test_a_smaller_epsilon_makes_the_certificate_invalid(smaller_epsilon: VerificationReport) -> None:
    assert smaller_epsilon.verdict == "invalid"


def test_a_smaller_epsilon_is_caught_by_the_named_accountants_bracket(smaller_epsilon: VerificationReport) -> None:
    assert "but by contour it is at least" in details(smaller_epsilon, "accountants")


def test_a_smaller_epsilon_is_caught_by_the_bracket_of_another_accountant(smaller_epsilon: VerificationReport) -> None:
    found = re.findall(r"but by (\w+) it is at least", details(smaller_epsilon, "accountants"))
    assert set(found) - {"contour"}


def test_a_figure_of_an_accountant_that_is_not_known_here_is_recomputed_by_others(forge: Callable[[Change], VerificationReport]) -> None:
    report = forge(lambda predicate: predicate["guarantee"].update(route="abacus(beads=10)"))
    told = details(report, "accountants", Status.PASSED)
    assert "abacus: this version has no accountant with that name; contour [" in told


def test_a_point_of_the_curve_made_smaller_is_caught(forge: Callable[[Change], VerificationReport]) -> None:
    def change(predicate: dict[str, Any]) -> None:
        curve = predicate["guarantee"]["delta_curve"]
        curve[2][1] = curve[3][1]

    report = forge(change)
    assert "it is at least" in details(report, "accountants")
    assert "its logarithm is" in details(report, "recomputation")


def test_a_renyi_bound_made_smaller_is_caught(forge: Callable[[Change], VerificationReport]) -> None:
    report = forge(lambda predicate: predicate["guarantee"]["renyi"][1].__setitem__(1, "1e-05"))
    assert "renyi(2.0) is 1e-05, but recomputed it is" in details(report, "other_figures")


def test_an_epsilon_without_sampling_made_smaller_is_caught(forge: Callable[[Change], VerificationReport]) -> None:
    report = forge(lambda predicate: predicate["guarantee"].update(epsilon_without_sampling="0.5"))
    assert "epsilon_without_sampling is 0.5, but recomputed it is" in details(report, "other_figures")


def test_an_epsilon_without_sampling_where_nothing_was_sampled_is_caught(
    run: CertificateInput, settings: Settings, keys: PublicKeySet
) -> None:
    spec = type(run.spec).model_validate({**run.spec.model_dump(mode="json"), "expected_batch_size": 710})
    plan = spec.plan()
    whole = dataclasses.replace(
        run, job_id="whole", spec=spec, plan=plan, report=RunReport.model_validate({**dict(run.report), "event": plan.event})
    )

    def change(statement: dict[str, Any]) -> None:
        statement["predicate"]["guarantee"].update(epsilon_without_sampling="99")

    report = verify(forged(issue_certificate(whole, settings), settings, change), keys, None)
    assert "epsilon_without_sampling is stated as 99, but this event has none" in details(report, "other_figures")


def test_an_invented_mu_is_caught(forge: Callable[[Change], VerificationReport]) -> None:
    report = forge(lambda predicate: predicate["guarantee"].update(gdp_mu="0.1"))
    assert "gdp_mu is stated as 0.1, but this event has none" in details(report, "other_figures")


def test_noise_halved_in_the_plan_is_caught_by_the_figures(forge: Callable[[Change], VerificationReport]) -> None:
    report = forge(lambda predicate: _noise(predicate).update(std=0.5))
    assert details(report, "plan") == ""
    assert "but recomputed from the event it is" in details(report, "recomputation")


@pytest.mark.parametrize(
    ("change", "expected"),
    thinned(
        [
            (lambda p: p["plan"].update(steps=39), "run.steps_released: the certificate says 40, its plan has 39"),
            (lambda p: p["run"].update(steps_released=39), "run.steps_released: the certificate says 39, its plan has 40"),
            (
                lambda p: p["plan"]["sampling"].update(records=10_000),
                "data.training_records: the certificate says 710, its plan is for 10000",
            ),
            (lambda p: p["data"].update(training_records=10_000), "data.training_records: the certificate says 10000, its plan is for 710"),
            (lambda p: p["data"].pop("training_records"), "data.training_records: must be stated if and only if"),
            (lambda p: p["run"].update(held_out="private"), "it is 'private' if and only if the plan has counts"),
            (lambda p: p["run"].update(held_out="encoded"), "it is 'encoded' if and only if the plan has features"),
            (lambda p: p["run"].update(held_out="none"), "run.metrics: must be stated if and only if something was measured"),
            (lambda p: p["run"].pop("metrics"), "run.metrics: must be stated if and only if something was measured"),
            (lambda p: p["run"]["metrics"].update(accuracy="1.5"), "run.metrics.accuracy must be in [0, 1], got 1.5"),
            (lambda p: p["run"].update(arithmetic=["exact_normal"]), "run.arithmetic: the certificate says ['exact_normal'], such a plan"),
        ],
        every=3,
    ),
)
def test_facts_that_are_not_the_plans_are_named(forge: Callable[[Change], VerificationReport], change: Change, expected: str) -> None:
    assert expected in details(forge(change), "plan")


@pytest.mark.parametrize(
    ("change", "expected"),
    thinned(
        [
            (
                lambda p: p["run"].update(random_origin="user_seed"),
                "the guarantee doesn't say 'not private against someone who knows the seed'",
            ),
            (lambda p: p["guarantee"].update(delta="1"), "delta must be in (0, 1), got 1"),
            (lambda p: p["guarantee"].update(epsilon_lower="99"), "epsilon_lower 99 is above epsilon"),
            (lambda p: p["guarantee"].update(epsilon="0.5", epsilon_lower="0"), "the delta curve doesn't contain the certified pair"),
            (lambda p: p["guarantee"]["delta_curve"].reverse(), "the delta curve must have rising epsilons and falling deltas"),
            (lambda p: p["guarantee"]["renyi"][0].__setitem__(0, "1"), "a Renyi order must be > 1"),
            (lambda p: p["plan"].update(delta=1e-6), "delta: the certificate says 1e-05, its plan 1e-06"),
            (lambda p: p["job"].update(resumptions=2), "2 attempts can't have continued from a checkpoint 2 times"),
            (lambda p: p["job"].update(finished="2020-01-01T00:00:00Z"), "job: it finished before it started"),
            (lambda p: p["guarantee"]["renyi"][0].__setitem__(1, "1e+999"), "a figure is beyond the range of float64"),
        ],
        every=3,
    ),
)
def test_parts_that_contradict_each_other_are_named(forge: Callable[[Change], VerificationReport], change: Change, expected: str) -> None:
    assert expected in details(forge(change), "parts")


@pytest.mark.parametrize("name", thinned(["model.safetensors", "spec.json", "data-manifest.json", "code-manifest.sha256"], every=4))
def test_a_file_of_the_run_that_is_not_named_is_missed(name: str, envelope: bytes, settings: Settings, keys: PublicKeySet) -> None:
    def leave_out(statement: dict[str, Any]) -> None:
        statement["subject"] = [subject for subject in statement["subject"] if subject["name"] != name]

    report = verify(forged(envelope, settings, leave_out), keys, None)
    assert details(report, "subjects") == f"{name} isn't among the files"


def test_a_guarantee_for_a_plan_without_noise_is_caught(forge: Callable[[Change], VerificationReport]) -> None:
    def change(predicate: dict[str, Any]) -> None:
        predicate["plan"] = {
            "kind": "unprotected",
            "reason": "the mean was published",
            "steps": 40,
            "delta": 1e-5,
            "unit": "record",
            "units": 710,
        }

    assert "a guarantee is stated, but part of the event has none: the mean was published" in details(forge(change), "parts")


@pytest.mark.parametrize(
    ("change", "expected"),
    thinned(
        [
            (lambda p: p.pop("run"), "predicate.run: Field required"),
            (lambda p: p.update(surprise=1), "predicate.surprise: Extra inputs are not permitted"),
            (lambda p: p["guarantee"].update(epsilon=0.1), "epsilon: Input should be a valid string"),
            (lambda p: p["guarantee"].update(epsilon="NaN"), "epsilon: String should match pattern"),
            (lambda p: p["guarantee"].update(kind="pure_dp"), "predicate.guarantee: Input tag 'pure_dp'"),
            (lambda p: p["run"].update(steps_released=-1), "predicate.run.steps_released: Input should be greater than or equal to 1"),
            (lambda p: p["job"].update(algorithm="magic"), "expected an algorithm that this version knows"),
            (lambda p: p["run"].update(arithmetic=["by hand"]), "predicate.run.arithmetic.0: Input should be"),
            (lambda p: p["errata"].append("Q99"), "expected a row of the errata that this version knows, got 'Q99'"),
            (lambda p: p["plan"]["clipping"].update(bound=0.25), "mechanism.sensitivity.l2 must be the clipping bound 0.25"),
            (lambda p: p["plan"].update(kind="magic"), "predicate.plan: Input tag 'magic'"),
            (lambda p: _noise(p).update(std=-1.0), "mechanism.complex_gaussian.std: Input should be greater"),
            (lambda p: p.update(event=None), "predicate.event: Extra inputs are not permitted"),
        ],
        every=3,
    ),
)
def test_a_predicate_of_another_form_is_refused_with_its_field(
    forge: Callable[[Change], VerificationReport], change: Change, expected: str
) -> None:
    assert expected in details(forge(change), "statement")
