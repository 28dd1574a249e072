"""What a certificate says, and when none is issued."""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
import rfc8785

from tests.app.certificates_harness import MODEL, STEPS, finished_run, statement_of
from zetadp import accountants
from zetadp.accountants.events import Composed, NonPrivate, Release
from zetadp.app.certificates.errors import CertificateRefused
from zetadp.app.certificates.facts import wording
from zetadp.app.certificates.facts.claims import guarantee_of, why_no_epsilon_without_sampling, without_sampling
from zetadp.app.certificates.facts.decimals import fraction
from zetadp.app.certificates.facts.errata import rows_in_order
from zetadp.app.certificates.facts.guarantee import SEED_SENTENCE, ApproximateDp, NoGuarantee
from zetadp.app.certificates.facts.statement import PrivacyCertificate, Statement
from zetadp.app.certificates.issuing.issue import CertificateInput, issue_certificate
from zetadp.app.certificates.page.plain import describe
from zetadp.app.certificates.signing.canonical import canonical_json
from zetadp.app.certificates.signing.digests import DataManifest, code_manifest
from zetadp.app.certificates.signing.envelope import Envelope
from zetadp.app.certificates.signing.keys import jwks
from zetadp.app.certificates.verification.verify import read
from zetadp.app.certificates.words.reading import Reading
from zetadp.app.kit.settings import Settings
from zetadp.mechanisms import MECHANISMS, ComplexGaussian, Laplace, RandomOrigin, Sensitivity
from zetadp.mechanisms.errata import UnknownRow, erratum
from zetadp.trainer import ALGORITHMS
from zetadp.trainer.data import data_set_facts
from zetadp.trainer.specs.report import RunReport

PACKAGE = Path(__file__).parents[2] / "app" / "certificates"


@pytest.fixture(scope="module")
def predicate(envelope: bytes) -> PrivacyCertificate:
    return read(envelope)


@pytest.fixture(scope="module")
def claim(predicate: PrivacyCertificate) -> ApproximateDp:
    assert isinstance(predicate.guarantee, ApproximateDp)
    return predicate.guarantee


@pytest.fixture(scope="module")
def profile(run: CertificateInput) -> accountants.PrivacyProfile:
    return accountants.profile(run.plan.event)


def _changed(run: CertificateInput, **changes: object) -> CertificateInput:
    """The same run with other fields in its report."""
    return dataclasses.replace(run, report=RunReport.model_validate({**dict(run.report), **changes}))


# Form


def test_envelope_is_compact_json_and_a_newline(envelope: bytes) -> None:
    assert envelope == json.dumps(json.loads(envelope), separators=(",", ":")).encode() + b"\n"


def test_envelope_is_of_in_toto_type(envelope: bytes) -> None:
    assert json.loads(envelope)["payloadType"] == "application/vnd.in-toto+json"


def test_envelope_names_the_key_by_its_thumbprint(envelope: bytes, settings: Settings) -> None:
    assert [signature["keyid"] for signature in json.loads(envelope)["signatures"]] == [jwks(settings).keys[0].kid]


def test_statement_has_the_fields_of_in_toto_v1(envelope: bytes) -> None:
    statement = statement_of(envelope)
    assert set(statement) == {"_type", "subject", "predicateType", "predicate"}
    assert statement["_type"] == "https://in-toto.io/Statement/v1"


def test_statement_survives_its_json_exactly(envelope: bytes) -> None:
    content = Envelope.model_validate_json(envelope).content
    assert canonical_json(Statement.model_validate_json(content)) == content == rfc8785.dumps(json.loads(content))


def test_no_number_outside_the_plan_is_a_json_float(envelope: bytes) -> None:
    predicate = statement_of(envelope)["predicate"]
    del predicate["plan"]
    floats: list[str] = []
    json.loads(json.dumps(predicate), parse_float=floats.append)
    assert floats == []


# Rounding


def test_epsilon_is_at_least_the_proved_upper_end(claim: ApproximateDp, profile: accountants.PrivacyProfile) -> None:
    assert fraction(claim.epsilon) >= Fraction(profile.epsilon(1e-5).upper)


def test_epsilon_is_rounded_by_less_than_a_millionth(claim: ApproximateDp, profile: accountants.PrivacyProfile) -> None:
    assert fraction(claim.epsilon) <= Fraction(profile.epsilon(1e-5).upper) * (1 + Fraction(1, 10**6))


def test_lower_end_is_at_most_the_proved_lower_end(claim: ApproximateDp, profile: accountants.PrivacyProfile) -> None:
    assert fraction(claim.epsilon_lower) <= Fraction(profile.epsilon(1e-5).lower)


def test_delta_is_the_plans_own(claim: ApproximateDp, run: CertificateInput) -> None:
    assert float(claim.delta) == run.plan.delta


def test_every_point_of_the_curve_is_at_least_its_proved_upper_end(claim: ApproximateDp, profile: accountants.PrivacyProfile) -> None:
    others = [point for point in claim.delta_curve if point.epsilon != claim.epsilon]
    assert all(fraction(point.delta) >= Fraction(profile.delta(float(point.epsilon)).upper) for point in others)


def test_curve_has_eight_to_twelve_points_and_the_certified_pair(claim: ApproximateDp) -> None:
    assert 8 <= len(claim.delta_curve) <= 12
    assert (claim.epsilon, claim.delta) in {(point.epsilon, point.delta) for point in claim.delta_curve}


def test_every_renyi_bound_is_at_least_the_proved_one(claim: ApproximateDp, profile: accountants.PrivacyProfile) -> None:
    assert claim.renyi is not None
    for point in claim.renyi:
        proved = profile.rdp(float(point.order))
        assert proved is not None
        assert fraction(point.epsilon) >= Fraction(proved)


def test_epsilon_without_sampling_is_that_of_probability_one(claim: ApproximateDp, run: CertificateInput) -> None:
    proved = accountants.profile(without_sampling(run.plan.event)).epsilon(1e-5).upper
    assert claim.epsilon_without_sampling is not None
    assert fraction(claim.epsilon_without_sampling) >= Fraction(proved)


def test_epsilon_without_sampling_is_larger(claim: ApproximateDp) -> None:
    assert claim.epsilon_without_sampling is not None
    assert fraction(claim.epsilon_without_sampling) > fraction(claim.epsilon)


# Content


def test_the_plan_is_embedded_exactly_and_its_event_follows(predicate: PrivacyCertificate, run: CertificateInput) -> None:
    assert (predicate.plan, predicate.event) == (run.plan, run.report.event)


def test_a_plan_has_no_nulls_and_no_event_beside_it(envelope: bytes) -> None:
    predicate = statement_of(envelope)["predicate"]
    assert "null" not in json.dumps(predicate)
    assert "event" not in predicate


def test_steps_attempts_and_resumptions_are_stated(predicate: PrivacyCertificate) -> None:
    stated = predicate.plan.steps, predicate.run.steps_released, predicate.job.attempts, predicate.job.resumptions
    assert stated == (STEPS, STEPS, 2, 1)


def test_what_there_is_not_is_not_stated(envelope: bytes) -> None:
    predicate = statement_of(envelope)["predicate"]
    assert not {"gdp_mu", "pure_epsilon"} & set(predicate["guarantee"])  # of a sampled run
    assert not {"ledger", "parts"} & set(predicate)
    assert not {"canaries", "noise_numbers", "attacks", "given_weights"} & set(predicate["run"])  # pyright: ignore


def test_errata_of_mechanism_and_algorithm_are_all_named(predicate: PrivacyCertificate, run: CertificateInput) -> None:
    assert set(predicate.errata) == {*ComplexGaussian.FACTS.errata, *run.spec.ERRATA}


def test_every_erratum_that_a_registry_names_says_what_is_done_here() -> None:
    rows = {row for kind in MECHANISMS for row in kind.FACTS.errata} | {row for kind in ALGORITHMS for row in kind.ERRATA}
    assert [row for row in rows if len(erratum(row).here or "") <= 20] == []


def test_a_row_that_the_errata_do_not_have_is_refused() -> None:
    with pytest.raises(UnknownRow, match="no row 'Z99'"):
        rows_in_order(["Z1", "Z99"])


def test_subjects_are_model_spec_data_and_code(envelope: bytes, run: CertificateInput, folder: Path, settings: Settings) -> None:
    manifest = next((settings.data_dir / "manifests").glob("*.json")).read_bytes()
    expected = {
        "model.safetensors": MODEL,
        "spec.json": (folder / "files" / "spec.json").read_bytes(),
        "data-manifest.json": manifest,
        "code-manifest.sha256": code_manifest(),
    }
    found = {subject["name"]: subject["digest"]["sha256"] for subject in statement_of(envelope)["subject"]}  # pyright: ignore
    assert found == {name: hashlib.sha256(content).hexdigest() for name, content in expected.items()}


def test_digest_of_the_training_data_is_not_published(envelope: bytes, run: CertificateInput) -> None:
    # Someone who knows all records but one could try every value of that one against it.
    assert data_set_facts(run.spec.data).sha256 not in json.dumps(statement_of(envelope))


def test_data_manifest_opens_the_commitment(run: CertificateInput, settings: Settings, envelope: bytes) -> None:
    manifest = DataManifest.model_validate_json(next((settings.data_dir / "manifests").glob("*.json")).read_bytes())
    assert manifest.data_sha256 == data_set_facts(run.spec.data).sha256


def test_issuing_again_keeps_the_commitment(envelope: bytes, run: CertificateInput, settings: Settings) -> None:
    assert statement_of(issue_certificate(run, settings))["subject"] == statement_of(envelope)["subject"]


def test_code_manifest_covers_every_layer() -> None:
    names = {"/".join(line.split("  ")[1].split("/")[:2]) for line in code_manifest().decode().splitlines()}
    assert names >= {"zetadp/__init__.py", "zetadp/accountants", "zetadp/app", "zetadp/mechanisms", "zetadp/trainer"}


# Refusals


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps_released": STEPS - 1}, f"the number of released steps was planned as {STEPS}, but the run reports {STEPS - 1}"),
        ({"noise_std": 0.5}, "the noise per real component was planned as 1.0, but the run reports 0.5"),
        ({"training_records": 709}, "the number of training records was planned as 710, but the run reports 709"),
        ({"test_records": 1}, "the number of held-out records was planned as 181, but the run reports 1"),
        ({"random_origin": "user_seed"}, "the origin of the randomness was planned as 'operating_system', but the run reports 'user_seed'"),
    ],
)
def test_a_run_that_is_not_the_planned_one_is_refused(
    run: CertificateInput, settings: Settings, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(CertificateRefused, match=message):
        issue_certificate(_changed(run, **changes), settings)


def test_a_run_with_another_event_is_refused(run: CertificateInput, settings: Settings) -> None:
    with pytest.raises(CertificateRefused, match="the event was planned as"):
        issue_certificate(_changed(run, event=run.plan.event_after(STEPS - 1)), settings)


def test_a_run_without_a_model_is_refused(run: CertificateInput, settings: Settings) -> None:
    with pytest.raises(CertificateRefused, match="a model file"):
        issue_certificate(dataclasses.replace(run, artifacts={}), settings)


def test_a_unit_that_the_data_does_not_have_is_refused(run: CertificateInput, settings: Settings) -> None:
    plan = type(run.plan).model_validate_json(run.plan.model_dump_json().replace('"unit":"record"', '"unit":"patient"'))
    changed = _changed(dataclasses.replace(run, plan=plan), event=plan.event)
    with pytest.raises(CertificateRefused, match="the privacy unit was planned as 'record', but the run reports 'patient'"):
        issue_certificate(changed, settings)


# No guarantee


@pytest.fixture(scope="module")
def seeded(folder: Path, settings: Settings) -> bytes:
    run = finished_run(folder / "seeded", reproducible=True, seed=1234567)
    return issue_certificate(dataclasses.replace(run, job_id="seeded"), settings)


def test_a_run_from_a_users_seed_has_no_guarantee(seeded: bytes) -> None:
    guarantee = read(seeded).guarantee
    assert isinstance(guarantee, NoGuarantee)
    assert guarantee.reason.startswith(SEED_SENTENCE)


def test_a_run_from_a_users_seed_carries_the_sentence(seeded: bytes) -> None:
    assert describe(read(seeded)).count("not private against someone who knows the seed") == 1


def test_a_users_seed_never_appears(seeded: bytes) -> None:
    assert "1234567" not in json.dumps(statement_of(seeded)["predicate"])


def test_an_event_with_a_non_private_part_has_no_guarantee(run: CertificateInput) -> None:
    event = Composed(events=(run.plan.event, NonPrivate(reason="the mean was published")))
    guarantee = guarantee_of(event, 1e-5, RandomOrigin.OPERATING_SYSTEM)
    assert guarantee == NoGuarantee(reason="part of the run has no guarantee: the mean was published")


def test_an_event_without_sampling_says_so_and_has_mu() -> None:
    noise = ComplexGaussian(std=2.0, sensitivity=Sensitivity(l2=1.0, adjacency="add_remove", unit="record"))
    guarantee = guarantee_of(Release(mechanism=noise), 1e-5, RandomOrigin.OPERATING_SYSTEM)
    assert isinstance(guarantee, ApproximateDp)
    assert guarantee.gdp_mu is not None
    assert Fraction(1, 2) <= fraction(guarantee.gdp_mu) <= Fraction(1, 2) * (1 + Fraction(1, 10**5))
    assert why_no_epsilon_without_sampling(Release(mechanism=noise)) == "nothing was sampled: every release used all of the data"


def test_a_run_of_epsilon_zero_has_one_point_on_its_curve() -> None:
    noise = ComplexGaussian(std=1e9, sensitivity=Sensitivity(l2=1.0, adjacency="add_remove", unit="record"))
    guarantee = guarantee_of(Release(mechanism=noise), 1e-5, RandomOrigin.OPERATING_SYSTEM)
    assert isinstance(guarantee, ApproximateDp)
    assert [(point.epsilon, point.delta) for point in guarantee.delta_curve] == [("0", "1e-05")]


def test_a_laplace_run_can_be_certified() -> None:
    noise = Laplace(scale=2.0, sensitivity=Sensitivity(l1=1.0, adjacency="add_remove", unit="record"))
    guarantee = guarantee_of(Release(mechanism=noise), 1e-5, RandomOrigin.OPERATING_SYSTEM)
    assert isinstance(guarantee, ApproximateDp)
    assert fraction(guarantee.epsilon) <= Fraction(1, 2) * (1 + Fraction(1, 10**3))


# Proofs


def test_a_certificate_names_the_proofs_of_its_mechanism_clipping_sampling_and_route(predicate: PrivacyCertificate) -> None:
    assert Reading(predicate).proofs == ("complex_gaussian.md", "clipped_sum.md", "pairs.md", "contour.md")


def test_every_proof_of_rounding_that_is_named_exists() -> None:
    root = PACKAGE.parents[1]
    found = {path.name for layer in ("accountants", "mechanisms") for path in (root / layer / "proofs").glob("*.md")}
    assert {wording.PAIRS_PROOF, *wording.ROUNDING_PROOFS.values()} <= found


def test_every_accountants_rounding_is_said_to_be_proved_or_measured() -> None:
    measured = {"pld", "rdp"}
    named = {accountant.name for accountant in accountants.ACCOUNTANTS} - {"auto"}
    assert named - measured <= set(wording.ROUNDING_PROOFS)
    assert not measured & set(wording.ROUNDING_PROOFS)


# Purity


def test_no_module_of_the_package_names_the_published_formulas() -> None:
    named = [
        path.name
        for path in PACKAGE.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if "published" in "".join(_imported(node)) or (isinstance(node, ast.Constant) and node.value == "zetadp.mechanisms.published")
    ]
    assert named == []


@pytest.mark.slow
def test_loading_the_package_loads_neither_published_formulas_nor_torch() -> None:
    modules = ", ".join(f"zetadp.app.certificates.{path.stem}" for path in PACKAGE.glob("*.py") if path.stem != "__init__")
    code = f"import sys, {modules}; print([m for m in sys.modules if m == 'torch' or m.startswith('zetadp.mechanisms.published')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or "", *(alias.name for alias in node.names)]
    return []
