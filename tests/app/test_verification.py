"""Verification: what is valid, and that everything else is invalid with a reason and never an exception."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from accountants.events import NonPrivate
from app.certificates.digests import code_manifest, sha256_of
from app.certificates.envelope import MAXIMUM_BYTES, sign
from app.certificates.files import check_file
from app.certificates.issue import CertificateInput, issue_certificate
from app.certificates.keys import PublicKey, PublicKeySet, jwks, rotate, signer
from app.certificates.report import Status, VerificationReport
from app.certificates.statement import Digest, Subject
from app.certificates.verification import verify
from app.settings import Settings
from tests.app.certificates_harness import details, finished_run, forged, signed, statement_of

Change = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("verification")


@pytest.fixture(scope="module")
def settings(folder: Path) -> Settings:
    return Settings(data_dir=folder / "data")


@pytest.fixture(scope="module")
def run(folder: Path) -> CertificateInput:
    return finished_run(folder / "files")


@pytest.fixture(scope="module")
def envelope(run: CertificateInput, settings: Settings) -> bytes:
    return issue_certificate(run, settings)


@pytest.fixture(scope="module")
def keys(settings: Settings) -> PublicKeySet:
    return jwks(settings)


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
    return predicate["event"]["event"]["event"]["mechanism"]


def _repacked(envelope: bytes, **changes: object) -> bytes:
    return json.dumps({**json.loads(envelope), **changes}, separators=(",", ":")).encode() + b"\n"


# Valid


def test_an_issued_certificate_is_valid(report: VerificationReport) -> None:
    assert report.verdict == "valid", [check for check in report.checks if check.status is Status.FAILED]


def test_epsilon_is_recomputed_independently(report: VerificationReport) -> None:
    assert "is at least the independently recomputed" in details(report, "recomputation", Status.PASSED)


def test_epsilon_is_bracketed_by_another_accountant_than_the_one_named(report: VerificationReport) -> None:
    told = details(report, "accountants", Status.PASSED)
    assert "named accountant pld" in told
    assert "rdp [0, " in told


def test_files_beside_the_certificate_are_compared(report: VerificationReport) -> None:
    found = {check.name for check in report.checks if check.name.startswith("file ") and check.status is Status.PASSED}
    assert {"file model.safetensors", "file spec.json"} <= found


def test_a_missing_file_is_said_not_to_be_checked(report: VerificationReport) -> None:
    assert (
        details(report, "file data-manifest.json", Status.NOT_CHECKED) == "not found beside the certificate, so its digest wasn't compared"
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


@pytest.mark.parametrize("content", [b"{}", b"no json", b"[" * 100_000, b'{"a": NaN}'])
def test_a_changed_spec_is_caught(subjects: dict[str, Subject], tmp_path: Path, content: bytes) -> None:
    (tmp_path / "spec.json").write_bytes(content)
    found = check_file(subjects["spec.json"], tmp_path)
    assert (found.status, "isn't the file that was signed" in found.detail) == (Status.FAILED, True)


def test_a_changed_code_manifest_is_caught(subjects: dict[str, Subject], tmp_path: Path) -> None:
    (tmp_path / "code-manifest.sha256").write_bytes(b"no code")
    assert check_file(subjects["code-manifest.sha256"], tmp_path).status is Status.FAILED


def test_code_that_is_not_this_copys_is_said_to_be_unchecked() -> None:
    other = Subject(name="code-manifest.sha256", digest=Digest(sha256="0" * 64))
    assert check_file(other, None).detail.endswith("the run's code isn't that of this copy of zetadp")


def test_code_that_is_this_copys_passes_without_a_file() -> None:
    own = Subject(name="code-manifest.sha256", digest=Digest(sha256=sha256_of(code_manifest())))
    assert check_file(own, None).status is Status.PASSED


# Forged figures, validly signed


def _smaller_epsilon(predicate: dict[str, Any]) -> None:
    claim = predicate["guarantee"]
    true, false = claim["epsilon"], f"{float(claim['epsilon']) * 0.7:.6f}"
    claim["epsilon"], claim["epsilon_lower"] = false, false
    claim["delta_curve"] = sorted(
        ({**point, "epsilon": false} if point["epsilon"] == true else point for point in claim["delta_curve"]),
        key=lambda p: float(p["epsilon"]),
    )
    # Deltas that fall again, so that only the recomputation can tell.
    for before, after in zip(claim["delta_curve"], claim["delta_curve"][1:], strict=False):
        if float(after["delta"]) > float(before["delta"]):
            after["delta"] = before["delta"]


@pytest.fixture(scope="module")
def smaller_epsilon(envelope: bytes, settings: Settings, keys: PublicKeySet) -> VerificationReport:
    return verify(forged(envelope, settings, lambda statement: _smaller_epsilon(statement["predicate"])), keys, None)


def test_a_smaller_epsilon_is_caught_by_the_independent_recomputation(smaller_epsilon: VerificationReport) -> None:
    assert "but recomputed from the event it is" in details(smaller_epsilon, "recomputation")


def test_a_smaller_epsilon_makes_the_certificate_invalid(smaller_epsilon: VerificationReport) -> None:
    assert smaller_epsilon.verdict == "invalid"


def test_a_smaller_epsilon_is_caught_by_a_proved_bracket(smaller_epsilon: VerificationReport) -> None:
    assert "but pld proves that it is at least" in details(smaller_epsilon, "accountants")


def test_a_point_of_the_curve_made_smaller_is_caught(forge: Callable[[Change], VerificationReport]) -> None:
    def change(predicate: dict[str, Any]) -> None:
        curve = predicate["guarantee"]["delta_curve"]
        curve[2]["delta"] = curve[3]["delta"]

    report = forge(change)
    assert "proves that it is at least" in details(report, "accountants")
    assert "its logarithm is" in details(report, "recomputation")


def test_a_renyi_bound_made_smaller_is_caught(forge: Callable[[Change], VerificationReport]) -> None:
    report = forge(lambda predicate: predicate["guarantee"]["renyi"][1].update(epsilon="1e-05"))
    assert "renyi(2.0) is 1e-05, but recomputed it is" in details(report, "other_figures")


def test_an_epsilon_without_sampling_made_smaller_is_caught(forge: Callable[[Change], VerificationReport]) -> None:
    report = forge(lambda predicate: predicate["guarantee"].update(epsilon_without_sampling="0.5"))
    assert "epsilon_without_sampling is 0.5, but recomputed it is" in details(report, "other_figures")


def test_an_invented_mu_is_caught(forge: Callable[[Change], VerificationReport]) -> None:
    report = forge(lambda predicate: predicate["guarantee"].update(gdp_mu="0.1", gdp_mu_absent_because=None))
    assert "gdp_mu is stated as 0.1, but this event has none" in details(report, "other_figures")


def test_noise_halved_in_the_event_alone_is_caught(forge: Callable[[Change], VerificationReport]) -> None:
    report = forge(lambda predicate: _noise(predicate).update(std=0.5))
    assert "releases[0].mechanism.std_real: the certificate says 1.0, its event gives 0.5" in details(report, "event")


def test_noise_doubled_in_the_words_alone_is_caught(forge: Callable[[Change], VerificationReport]) -> None:
    report = forge(lambda predicate: predicate["releases"][0]["mechanism"].update(std_imag="2.0"))
    assert details(report, "event") == "releases[0].mechanism.std_imag: the certificate says 2.0, its event gives 1.0"


def _halve_noise_everywhere(predicate: dict[str, Any]) -> None:
    _noise(predicate).update(std=0.5)
    predicate["releases"][0]["mechanism"].update(std_real="0.5", std_imag="0.5", total_std="0.7071068", noise_multiplier="1.0")


def test_noise_halved_in_event_and_words_is_caught_by_the_figures(forge: Callable[[Change], VerificationReport]) -> None:
    report = forge(_halve_noise_everywhere)
    assert details(report, "event") == ""
    assert "but recomputed from the event it is" in details(report, "recomputation")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda p: p["event"].update(count=39), "steps.released: the certificate says 40, its event has 39"),
        (lambda p: p["event"]["event"].update(probability=0.01), "expected_batch_size / training_records is 0.0561"),
        (lambda p: p["data"].update(training_records=10_000), "expected_batch_size / training_records is 0.004"),
        (lambda p: p["clipping"].update(bound="0.25"), "clipping.bound: the certificate says 0.25, the event's sensitivity is 0.5"),
        (lambda p: _noise(p)["sensitivity"].update(adjacency="zero_out"), "neighbourhood.adjacency: the certificate says add_remove"),
        (lambda p: p["neighbourhood"].update(unit="patient"), "neighbourhood.unit: the certificate says patient, its event gives record"),
        (lambda p: p.update(neighbourhood=None), "neighbourhood.adjacency: the certificate says None, its event gives add_remove"),
        (lambda p: p.update(releases=[]), "releases[0].count: the certificate says None, its event gives 40"),
    ],
)
def test_words_that_are_not_the_events_are_named(forge: Callable[[Change], VerificationReport], change: Change, expected: str) -> None:
    assert expected in details(forge(change), "event")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda p: p["randomness"].update(origin="user_seed"),
            "the guarantee doesn't say 'not private against someone who knows the seed'",
        ),
        (lambda p: p["randomness"].update(generator="dice"), "aren't those of origin 'operating_system'"),
        (lambda p: p["guarantee"].update(delta="1"), "delta must be in (0, 1), got 1"),
        (lambda p: p["guarantee"].update(epsilon_lower="99"), "epsilon_lower 99 is above epsilon"),
        (lambda p: p["guarantee"].update(epsilon="0.5", epsilon_lower="0"), "the delta curve doesn't contain the certified pair"),
        (lambda p: p["guarantee"]["delta_curve"].reverse(), "the delta curve must have rising epsilons and falling deltas"),
        (lambda p: p["guarantee"]["renyi"][0].update(order="1"), "a Renyi order must be > 1"),
        (lambda p: p["guarantee"].update(renyi=None), "renyi must be given, or absent with a reason"),
        (lambda p: p["guarantee"]["renyi"][0].update(epsilon="1e+999"), "a figure is beyond the range of float64"),
    ],
)
def test_parts_that_contradict_each_other_are_named(forge: Callable[[Change], VerificationReport], change: Change, expected: str) -> None:
    assert expected in details(forge(change), "parts")


def test_a_guarantee_for_an_event_with_a_non_private_part_is_caught(forge: Callable[[Change], VerificationReport]) -> None:
    def change(predicate: dict[str, Any]) -> None:
        hole = NonPrivate(reason="the mean was published").model_dump(mode="json")
        predicate["event"] = {"kind": "composed", "events": [predicate["event"], hole]}

    assert "a guarantee is stated, but part of the event has none: the mean was published" in details(forge(change), "parts")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda p: p.pop("audit"), "predicate.audit: Field required"),
        (lambda p: p.update(surprise=1), "predicate.surprise: Extra inputs are not permitted"),
        (lambda p: p["guarantee"].update(epsilon=0.1), "epsilon: Input should be a valid string"),
        (lambda p: p["guarantee"].update(epsilon="NaN"), "epsilon: String should match pattern"),
        (lambda p: p["guarantee"].update(kind="pure_dp"), "predicate.guarantee: Input tag 'pure_dp'"),
        (lambda p: p["steps"].update(released=-1), "predicate.steps.released: Input should be greater than or equal to 1"),
        (lambda p: _noise(p).update(std=-1.0), "release.mechanism.complex_gaussian.std: Input should be greater"),
        (lambda p: p.update(event=None), "predicate.event"),
    ],
)
def test_a_predicate_of_another_form_is_refused_with_its_field(
    forge: Callable[[Change], VerificationReport], change: Change, expected: str
) -> None:
    assert expected in details(forge(change), "statement")


# Signatures


def test_one_changed_character_of_the_payload_breaks_the_signature(envelope: bytes, keys: PublicKeySet) -> None:
    outer = json.loads(envelope)
    content = base64.b64decode(outer["payload"]).replace(b'"attempts":2', b'"attempts":1')
    report = verify(_repacked(envelope, payload=base64.b64encode(content).decode()), keys, None)
    assert "doesn't hold" in details(report, "signature")


def test_nothing_is_computed_before_the_signature_holds(envelope: bytes, keys: PublicKeySet) -> None:
    outer = json.loads(envelope)
    report = verify(_repacked(envelope, payload=base64.b64encode(b"{}").decode(), signatures=outer["signatures"]), keys, None)
    assert [check.name for check in report.checks] == ["envelope", "signature", "statement"]


def test_an_unknown_key_is_refused(envelope: bytes, tmp_path: Path) -> None:
    report = verify(envelope, jwks(Settings(data_dir=tmp_path)), None)
    assert "by a key that isn't among the 1 trusted" in details(report, "signature")


def test_no_key_at_all_verifies_nothing(envelope: bytes) -> None:
    assert "isn't among the 0 trusted" in details(verify(envelope, PublicKeySet(keys=()), None), "signature")


def test_no_signature_is_refused(envelope: bytes, keys: PublicKeySet) -> None:
    assert details(verify(_repacked(envelope, signatures=[]), keys, None), "signature") == "there is no signature"


def test_one_bad_signature_beside_a_good_one_is_refused(envelope: bytes, keys: PublicKeySet, tmp_path: Path) -> None:
    other = jwks(Settings(data_dir=tmp_path)).keys[0]
    good = json.loads(envelope)["signatures"][0]
    report = verify(_repacked(envelope, signatures=[good, {**good, "keyid": other.kid}]), PublicKeySet(keys=(*keys.keys, other)), None)
    assert report.verdict == "invalid"
    assert "doesn't hold" in details(report, "signature")


def test_one_signature_by_a_stranger_beside_a_good_one_is_refused(envelope: bytes, keys: PublicKeySet, tmp_path: Path) -> None:
    good = json.loads(envelope)["signatures"][0]
    stranger = jwks(Settings(data_dir=tmp_path)).keys[0].kid
    report = verify(_repacked(envelope, signatures=[good, {**good, "keyid": stranger}]), keys, None)
    assert report.verdict == "invalid"
    assert "isn't among the 1 trusted" in details(report, "signature")


def test_one_key_signing_twice_is_refused(envelope: bytes, keys: PublicKeySet) -> None:
    good = json.loads(envelope)["signatures"][0]
    assert details(verify(_repacked(envelope, signatures=[good, good]), keys, None), "signature") == "one key signed twice"


def test_a_signature_over_another_type_does_not_hold(envelope: bytes, keys: PublicKeySet) -> None:
    report = verify(_repacked(envelope, payloadType="text/plain"), keys, None)
    assert "payloadType: Input should be 'application/vnd.in-toto+json'" in details(report, "envelope")


def test_a_raw_signature_without_the_encoding_of_dsse_does_not_hold(envelope: bytes, tmp_path: Path) -> None:
    private = Ed25519PrivateKey.generate()
    raw = base64.urlsafe_b64encode(private.public_key().public_bytes_raw()).decode().rstrip("=")
    members = json.dumps({"crv": "Ed25519", "kty": "OKP", "x": raw}, separators=(",", ":")).encode()
    kid = base64.urlsafe_b64encode(hashlib.sha256(members).digest()).decode().rstrip("=")
    content = base64.b64decode(json.loads(envelope)["payload"])
    signature = {"keyid": kid, "sig": base64.b64encode(private.sign(content)).decode()}
    report = verify(_repacked(envelope, signatures=[signature]), PublicKeySet(keys=(PublicKey(x=raw, kid=kid),)), None)
    assert "doesn't hold" in details(report, "signature")


# Anything else


DEEP = b"[" * 200_000 + b"]" * 200_000


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n",
        b"hello",
        b"null",
        b"[]",
        b"{}",
        b"NaN",
        b"\xff\xfe",
        b"\x00" * 100,
        DEEP,
        b'{"payload":' + DEEP + b"}",
        b'{"payload":1,"payloadType":"application/vnd.in-toto+json","signatures":[]}',
        b'{"payload":"%%%","payloadType":"application/vnd.in-toto+json","signatures":[]}',
        b'{"payload":"A","payloadType":"application/vnd.in-toto+json","signatures":[]}',
        b'{"payload":"AB==","payloadType":"application/vnd.in-toto+json","signatures":[]}',
        b'{"payload":"","payloadType":"application/vnd.in-toto+json","signatures":{"a":1}}',
        b'{"payload":"","payloadType":"application/vnd.in-toto+json","signatures":[{"keyid":"x","sig":"y"}]}',
        b" " * (MAXIMUM_BYTES + 1),
    ],
    ids=range(18),
)
def test_what_is_no_envelope_is_invalid(text: bytes, keys: PublicKeySet) -> None:
    report = verify(text, keys, None)
    assert report.verdict == "invalid"
    assert report.checks[0].name == "envelope"
    assert report.checks[0].detail


def test_a_payload_with_bits_beyond_its_last_byte_is_invalid(keys: PublicKeySet) -> None:
    text = b'{"payload":"AB==","payloadType":"application/vnd.in-toto+json","signatures":[]}'
    assert details(verify(text, keys, None), "envelope") == "the payload's base64 has bits beyond its last byte"


def test_a_reformatted_envelope_is_invalid_and_told_why(envelope: bytes, keys: PublicKeySet) -> None:
    text = json.dumps(json.loads(envelope), indent=2).encode()
    assert "reformatted or changed since" in details(verify(text, keys, None), "envelope")


@pytest.mark.parametrize("content", ["a string", 1, None, [], {}, {"_type": "https://in-toto.io/Statement/v1"}])
def test_signed_nonsense_is_invalid(content: object, settings: Settings, keys: PublicKeySet) -> None:
    assert details(verify(signed(content, settings), keys, None), "statement")


def test_a_signed_statement_nested_without_end_is_invalid(settings: Settings, keys: PublicKeySet) -> None:
    assert details(verify(sign(DEEP, signer(settings)), keys, None), "statement")


def test_a_signed_event_nested_ten_thousand_deep_is_invalid(envelope: bytes, settings: Settings, keys: PublicKeySet) -> None:
    event = json.dumps(statement_of(envelope)["predicate"]["event"], sort_keys=True, separators=(",", ":")).encode()
    content = base64.b64decode(json.loads(envelope)["payload"])
    deep = b'{"count":1,"kind":"repeated","event":' * 10_000 + event + b"}" * 10_000
    assert event in content
    assert details(verify(sign(content.replace(event, deep), signer(settings)), keys, None), "statement")


def test_a_signed_statement_that_names_a_key_twice_is_invalid(envelope: bytes, settings: Settings, keys: PublicKeySet) -> None:
    content = base64.b64decode(json.loads(envelope)["payload"]).replace(b'{"_type"', b'{"_type":"x","_type"')
    assert "names a key twice" in details(verify(sign(content, signer(settings)), keys, None), "statement")


def test_two_subjects_of_one_name_are_invalid(envelope: bytes, settings: Settings, keys: PublicKeySet) -> None:
    twice = forged(envelope, settings, lambda statement: statement["subject"].append(statement["subject"][0]))  # pyright: ignore
    assert details(verify(twice, keys, None), "statement") == "two subjects have one name"


def test_a_subject_that_climbs_out_of_the_folder_is_refused(envelope: bytes, settings: Settings, keys: PublicKeySet) -> None:
    climbing = forged(envelope, settings, lambda statement: statement["subject"][0].update(name="../secret"))  # pyright: ignore
    assert "subject.0.name: String should match pattern" in details(verify(climbing, keys, None), "statement")


@hypothesis_settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_changed_byte_makes_it_invalid_with_a_reason(data: st.DataObject, envelope: bytes, keys: PublicKeySet) -> None:
    position = data.draw(st.integers(0, len(envelope) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != envelope[position]))
    report = verify(envelope[:position] + bytes([byte]) + envelope[position + 1 :], keys, None)
    assert report.verdict == "invalid"
    assert all(check.detail for check in report.checks)


def test_every_byte_outside_the_payload_matters(envelope: bytes, keys: PublicKeySet) -> None:
    start = envelope.index(b'","payloadType"')
    positions = [*range(12), *range(start, len(envelope))]
    still_valid = [
        p for p in positions if verify(envelope[:p] + bytes([envelope[p] ^ 1]) + envelope[p + 1 :], keys, None).verdict == "valid"
    ]
    assert still_valid == []


@hypothesis_settings(max_examples=200, deadline=None, derandomize=True)
@given(text=st.binary(max_size=200))
def test_arbitrary_bytes_are_invalid(text: bytes) -> None:
    assert verify(text, PublicKeySet(keys=()), None).verdict == "invalid"
