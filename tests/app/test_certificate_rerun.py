"""What an auditor is told of a run before it is repeated: what its randomness follows from, when it began, and why it can't be repeated."""

from __future__ import annotations

import base64
from collections.abc import Callable, Generator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from typer.testing import CliRunner

from tests.app.announced_harness import Announcing, Authority
from tests.app.certificates_harness import MODEL, finished_run
from tests.app.witness_harness import Log
from tests.selection import thinned
from zetadp.app.certificates.issuing.issue import data_manifest_of
from zetadp.app.certificates.log.beacons import beacon_of, given
from zetadp.app.certificates.log.cosignatures import cosign, witness_key
from zetadp.app.certificates.log.entries import plan_digest, plan_statement_of
from zetadp.app.certificates.log.merkle_proofs import InclusionProof, Proofs, encode
from zetadp.app.certificates.log.notes import NoteKey
from zetadp.app.certificates.log.revocations import signed_revocations
from zetadp.app.certificates.log.time_stamps import StampRefused, check_stamp, signature_in
from zetadp.app.certificates.log.trust import NOBODY, Trust
from zetadp.app.certificates.policy.schema import Policy
from zetadp.app.certificates.signing.digests import code_manifest, sha256_of
from zetadp.app.certificates.signing.keys import jwks
from zetadp.app.certificates.signing.noise_keys import kept_noise_key, run_secret
from zetadp.app.certificates.verification.audited import RefusedByPolicy, Unrepeatable, prepared_rerun
from zetadp.app.certificates.verification.verify import read_statement
from zetadp.app.cli import app
from zetadp.app.kit.settings import Settings
from zetadp.app.storage.opening import storage_of
from zetadp.trainer import RuntimeSpec
from zetadp.trainer.errors import TrainingAborted, TrainingDiverged
from zetadp.trainer.specs.releases import Repeated

BASE = {"name": "test", "unit": ("record",), "adjacency": ("add_remove",), "largest_epsilon": "100", "largest_delta": "0.1"}
P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
HEAD = "log.example.org\n5\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority") / "clock")


@pytest.fixture(scope="module")
def other_clock(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority") / "other", "other clock")


# Beacons


def proofs(checkpoint: str, *stamps: str) -> Proofs:
    return Proofs(certificate="", plan=InclusionProof(checkpoint, 0, ()).text, time_stamps=stamps)


def sequence(*parts: bytes, tag: int = 0x30) -> bytes:
    content = b"".join(parts)
    size = len(content).to_bytes(2, "big")
    return bytes([tag]) + (bytes([len(content)]) if len(content) < 0x80 else b"\x82" + size) + content


def reworded(stamp: str, text: str) -> str:
    """The same stamp in an answer with another free text, which nobody signs."""
    answer = base64.b64decode(stamp)
    assert answer[1] == 0x82
    assert answer[4:9] == b"\x30\x03\x02\x01\x00"  # granted, without words
    words = sequence(sequence(text.encode(), tag=0x0C))
    return base64.b64encode(sequence(sequence(b"\x02\x01\x00", words), answer[9:])).decode()


def test_a_stamp_in_another_answer_is_the_same_beacon(clock: Authority) -> None:
    stamp = clock.stamp(HEAD)
    found = {beacon_of([reworded(stamp, f"try {number}")], HEAD) for number in range(20)}
    assert check_stamp(reworded(stamp, "try 1"), HEAD, [clock.pem])
    assert found == {beacon_of([stamp], HEAD)}
    assert beacon_of([clock.stamp(HEAD)], HEAD) not in found  # another signature is another one


def elements(content: bytes) -> list[tuple[int, bytes]]:
    """Of DER, one after the other: tag and contents."""
    found: list[tuple[int, bytes]] = []
    while content:
        count = content[1] - 0x80 if content[1] >= 0x80 else 0
        size = int.from_bytes(content[2 : 2 + count], "big") if count else content[1]
        found.append((content[0], content[2 + count : 2 + count + size]))
        content = content[2 + count + size :]
    return found


def encoded(tag: int, content: bytes) -> bytes:
    size = len(content)
    count = (size.bit_length() + 7) // 8
    return bytes([tag, size] if size < 0x80 else [tag, 0x80 + count, *size.to_bytes(count, "big")]) + content


def written_the_other_way(tag: int, content: bytes) -> bytes:
    """The same DER, in which every ECDSA signature on P-256 (an octet string with two numbers) has -s for s."""
    if tag & 0x20:
        return encoded(tag, b"".join(written_the_other_way(*part) for part in elements(content)))
    if tag == 0x04:
        with suppress(ValueError):
            r, s = decode_dss_signature(content)
            return encoded(tag, encode_dss_signature(r, P256_ORDER - s))
    return encoded(tag, content)


def test_a_signature_written_the_other_way_is_the_same_beacon(clock: Authority) -> None:
    stamp = clock.stamp(HEAD)
    other = base64.b64encode(written_the_other_way(*elements(base64.b64decode(stamp))[0])).decode()
    assert other != stamp
    assert check_stamp(other, HEAD, [clock.pem])  # whoever has the one can write the other, and it holds
    assert beacon_of([other], HEAD) == beacon_of([stamp], HEAD)


@pytest.mark.parametrize("text", ["", "AAAA", "!", base64.b64encode(bytes.fromhex("30053003020100")).decode()])
def test_an_answer_without_a_signature_is_refused(text: str) -> None:
    with pytest.raises(StampRefused):
        signature_in(text)


def test_a_cut_answer_has_no_signature(clock: Authority) -> None:
    answer = base64.b64decode(clock.stamp(HEAD))
    for place in range(0, len(answer), 7):
        with pytest.raises(StampRefused):
            signature_in(base64.b64encode(answer[:place]).decode())


@dataclass(frozen=True)
class Head:
    """A head that its log and a witness signed, and an authority stamped."""

    checkpoint: str
    own: NoteKey
    witness: NoteKey
    line: str
    stamp: str

    @property
    def text(self) -> str:
        return self.checkpoint.split("\n\n")[0] + "\n"


@pytest.fixture(scope="module")
def head(clock: Authority) -> Head:
    log, private = Log([b"plan"], Ed25519PrivateKey.generate()), Ed25519PrivateKey.generate()
    alone = log.checkpoint(1)
    line = cosign("witness.example.org", private, alone.split("\n\n")[0] + "\n", 1_800_000_000).line
    key = witness_key("witness.example.org", private)
    return Head(alone + line, log.key, key, line, clock.stamp(alone.split("\n\n")[0] + "\n"))


def test_a_trusted_stamp_shows_when_a_run_began(head: Head, clock: Authority, other_clock: Authority) -> None:
    beacon = beacon_of([head.stamp], head.checkpoint)
    assert beacon is not None
    found = given(beacon, proofs(head.checkpoint, head.stamp), Trust(authorities=(other_clock.pem, clock.pem)))
    assert found is not None
    assert found.by == "CN=clock"
    assert abs((found.time - datetime.now(UTC)).total_seconds()) < 600
    without = proofs(head.checkpoint)
    elsewhere = proofs(Log([b"other"], Ed25519PrivateKey.generate()).checkpoint(1), head.stamp)
    assert given(beacon, proofs(head.checkpoint, head.stamp), Trust(authorities=(other_clock.pem,))) is None
    assert given(beacon, without, Trust(authorities=(clock.pem,))) is None
    assert given(beacon, elsewhere, Trust(authorities=(clock.pem,))) is None
    assert given(beacon, proofs(head.checkpoint, head.stamp), NOBODY) is None
    assert given(beacon, Proofs(certificate="", time_stamps=(head.stamp,)), Trust(authorities=(clock.pem,))) is None


def test_a_trusted_witness_shows_it_and_the_logs_own_signature_does_not(head: Head) -> None:
    beacon = beacon_of([], head.checkpoint)
    assert beacon is not None
    assert beacon_of([], head.checkpoint.removesuffix(head.line)) is None
    found = given(beacon, proofs(head.checkpoint), Trust(witnesses=(head.witness,)))
    assert found is not None
    assert (found.by, found.time) == ("the witness witness.example.org", datetime(2027, 1, 15, 8, tzinfo=UTC))
    assert given(beacon, proofs(head.checkpoint), NOBODY) is None
    stranger = witness_key("witness.example.org", Ed25519PrivateKey.generate())
    assert given(beacon, proofs(head.checkpoint), Trust(witnesses=(stranger,))) is None
    # The service signs as often as it likes. Its line as if it were the first witness's is nobody's whom a reader trusts.
    own = head.checkpoint.removesuffix(head.line)
    doubled = own + own.split("\n\n")[1]
    claimed = beacon_of([], doubled)
    assert claimed is not None
    assert given(claimed, proofs(doubled), Trust(witnesses=(head.witness, head.own))) is None


# What is checked before anything is trained


@dataclass(frozen=True)
class Audited:
    """A service with one certified run, what it gave out, and the policy of an auditor who trusts its clock."""

    house: Announcing
    folder: Path
    key: Path
    policy: Policy


def releases(*attempts: int) -> str:
    return "\n".join([f"runtime {RuntimeSpec().model_dump_json()}", *(f"attempt {number}" for number in attempts), ""])


def planned_in(folder: Path) -> str:
    """The digest of what was logged of the certificate's plan."""
    found = plan_statement_of(read_statement((folder / "certificate.json").read_bytes()))
    assert found is not None
    return plan_digest(found)


def certified(house: Announcing, folder: Path, record: str, *, drops: tuple[str, ...] = ()) -> Path:
    """The folder of a new run that wrote this record and ended with its third start."""
    folder.mkdir()
    run = finished_run(folder / "files")
    job_id, announced = house.began(run=run)
    (folder / "releases.txt").write_text(record)
    (folder / "model.safetensors").write_bytes((folder / "files" / "model.safetensors").read_bytes())
    (folder / "spec.json").write_bytes((folder / "files" / "spec.json").read_bytes())
    (folder / "data-manifest.json").write_bytes(data_manifest_of(job_id, run.spec, run.plan, house.settings))  # pyright: ignore
    (folder / "code-manifest.json").write_bytes(code_manifest())
    named = {name: folder / name for name in ("model.safetensors", "releases.txt") if name not in drops}
    envelope, certificate_id = house.ended(job_id, announced, run=replace(run, artifacts=named, attempts=3))
    (folder / "certificate.json").write_bytes(envelope)
    (folder / "proofs.json").write_bytes(encode(house.proofs(certificate_id)))
    (folder / "revocations.jws").write_bytes(signed_revocations(house.settings))
    kept = kept_noise_key(storage_of(house.settings).store, job_id)
    assert kept is not None
    (folder / "opened").write_text(kept.hex())
    return folder


@pytest.fixture(scope="module")
def audited(clock: Authority, tmp_path_factory: pytest.TempPathFactory) -> Generator[Audited]:
    folder = tmp_path_factory.mktemp("audited")
    with ExitStack() as stack:
        asked = {"time_stamps": stack.enter_context(clock.serving()), "least_time_stamps": 1, "keep_noise_keys": True}
        house = Announcing(Settings.model_validate({"data_dir": folder / "data", **asked}), finished_run(folder / "run"))
        stack.callback(house.database.close)
        result = certified(house, folder / "result", releases(1, 3))
        policy = Policy.model_validate(BASE | {"time_stamps": {"least": 1, "authorities": (clock.pem,)}})
        yield Audited(house, result, result / "opened", policy)


def test_what_shows_when_it_began_is_said_and_by_whom(audited: Audited) -> None:
    found = prepared_rerun(audited.folder, jwks(audited.house.settings), audited.key, audited.policy)
    assert "by CN=clock of 20" in found.began
    assert "it began after that, unless its operator can sign in that name" in found.began
    assert found.is_own_code
    assert found.starts == "2 of the job's 3 starts left something in the record"


def test_without_somebody_who_is_trusted_nothing_shows_when_it_began(audited: Audited) -> None:
    keys = jwks(audited.house.settings)
    for policy in (None, Policy.model_validate(BASE)):
        found = prepared_rerun(audited.folder, keys, audited.key, policy).began
        assert found.startswith("nothing shows when the run began, or that its operator didn't choose among draws")
        assert found.endswith("no policy names authorities or witnesses that are trusted")
    with pytest.raises(RefusedByPolicy, match="refused by the policy 'test': unit"):
        prepared_rerun(audited.folder, keys, audited.key, Policy.model_validate(BASE | {"unit": ("patient",)}))


def test_a_run_whose_plan_nobody_signed_began_at_no_known_time(tmp_path: Path, clock: Authority, audited: Audited) -> None:
    alone = Announcing(Settings(data_dir=tmp_path / "data", keep_noise_keys=True), finished_run(tmp_path / "run"))
    folder = certified(alone, tmp_path / "result", releases(3))
    trusting = Policy.model_validate(BASE | {"time_stamps": {"least": 1, "authorities": (clock.pem,)}})
    with pytest.raises(RefusedByPolicy, match="time_stamps"):
        prepared_rerun(folder, jwks(alone.settings), folder / "opened", trusting)
    found = prepared_rerun(folder, jwks(alone.settings), folder / "opened", Policy.model_validate(BASE))
    assert found.began.startswith("nothing shows when the run began, or that its operator didn't choose among draws")
    assert found.began.endswith(": its randomness follows from the key alone")
    key = bytes.fromhex((folder / "opened").read_text())
    assert found.secret == run_secret(key, planned_in(folder), None)
    # Another plan, other code: nothing that the same key draws is shared.
    assert found.secret != run_secret(key, sha256_of(b"another plan"), None)
    alone.database.close()


@pytest.mark.parametrize(
    ("record", "reason"),
    thinned(
        [
            (releases(1, 2), "the record is of the starts 1 to 2; by the certificate .* the run ended at start 3"),
            (releases(4), "the record is of the starts 4 to 4; .* ended at start 3"),
            (releases(2, 1, 3), "the record of its releases can't be read: releases.txt must be at least one attempt, in their order"),
            ("nothing", "the record of its releases can't be read"),
            ("\xff", "the record of its releases can't be read"),
        ],
        every=2,
    ),
)
def test_a_record_of_other_starts_than_the_certificates_is_refused(audited: Audited, tmp_path: Path, record: str, reason: str) -> None:
    folder = certified(audited.house, tmp_path / "result", record)
    with pytest.raises(Unrepeatable, match=reason):
        prepared_rerun(folder, jwks(audited.house.settings), folder / "opened")


def test_a_record_that_is_not_named_is_no_record(audited: Audited, tmp_path: Path) -> None:
    folder = certified(audited.house, tmp_path / "result", releases(3), drops=("releases.txt",))
    with pytest.raises(Unrepeatable, match=r"the check file releases.txt didn't pass"):
        prepared_rerun(folder, jwks(audited.house.settings), folder / "opened")


@pytest.mark.parametrize(
    "content",
    thinned([b"", b"not hexadecimal", b"\xff\xfe", b"00" * 31, b"00" * 32, b"00" * 33], every=3),
    ids=["empty", "words", "binary", "short", "another", "long"],
)
def test_what_is_not_its_key_is_refused_in_one_line(audited: Audited, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    (tmp_path / "keys").write_text(jwks(audited.house.settings).model_dump_json())
    command = ["rerun", str(audited.folder), "--noise-key", str(tmp_path / "key"), "--keys", str(tmp_path / "keys")]
    told = CliRunner().invoke(app, command)
    assert (told.exit_code, told.output.strip()) == (1, "this isn't the noise key that the plan is committed to")


CHANGES: dict[str, Callable[[Path], object]] = {
    "certificate": lambda folder: (folder / "certificate.json").write_bytes(b"{}"),
    "proofs": lambda folder: (folder / "proofs.json").write_bytes(b"{}"),
    "revocations": lambda folder: (folder / "revocations.jws").write_bytes(b"x"),
    "spec": lambda folder: (folder / "spec.json").write_bytes(b"{}"),
    "releases": lambda folder: (folder / "releases.txt").write_text("nothing"),
    "no plan": lambda folder: (folder / "proofs.json").write_bytes(
        encode(Proofs(certificate=Proofs.model_validate_json((folder / "proofs.json").read_bytes()).certificate))
    ),
}


@pytest.mark.parametrize("name", thinned(CHANGES, every=3))
def test_what_is_beside_the_certificate_is_checked_first(audited: Audited, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "result"
    folder.mkdir()
    for path in audited.folder.iterdir():
        if path.is_file():
            (folder / path.name).write_bytes(path.read_bytes())
    CHANGES[name](folder)
    with pytest.raises(Unrepeatable):
        prepared_rerun(folder, jwks(audited.house.settings), audited.key)


# What the command says of it


def told(audited: Audited, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: Repeated | Exception) -> tuple[int, str]:
    """Exit code and output where repeating comes to this."""

    def repeat(*_arguments: object) -> Repeated:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr("zetadp.trainer.rerun.repeat", repeat)
    (tmp_path / "keys").write_text(jwks(audited.house.settings).model_dump_json())
    command = ["rerun", str(audited.folder), "--noise-key", str(audited.key), "--keys", str(tmp_path / "keys")]
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, SystemExit | None)
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("outcome", "code", "expected"),
    thinned(
        [
            (
                Repeated(8, 8, None, sha256_of(MODEL)),
                0,
                "the model is the one that follows from them\n2 of the job's 3 starts left something",
            ),
            (Repeated(0, 0, None, sha256_of(MODEL)), 1, "the run recorded no release: nothing was compared"),
            (Repeated(3, 8, (0, 4), sha256_of(MODEL)), 1, "the run departed from its plan at step 4\n"),
            (Repeated(3, 8, (2, 4), sha256_of(MODEL)), 1, "at step 4 of site 2\n"),
            (Repeated(8, 8, None, "0" * 64), 1, "the model isn't the one that follows from them"),
            (TrainingAborted(5), 1, "the repeated run didn't come to its end, as the certified one did: ended by an error in step 5"),
            (TrainingDiverged(5), 1, "stopped being finite at step 5"),
        ],
        every=2,
    ),
)
def test_only_what_was_compared_and_is_the_same_passes(
    audited: Audited, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: Repeated | Exception, code: int, expected: str
) -> None:
    found = told(audited, tmp_path, monkeypatch, outcome)
    assert found[0] == code
    assert expected in found[1]
    assert ("nothing shows when the run began" in found[1]) == (code == 0)  # of a run that departed nothing is said


@pytest.mark.slow
def test_another_version_may_be_why_it_departed(audited: Audited, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zetadp.app.certificates.verification.audited.code_manifest", lambda: b"a newer version")
    _, output = told(audited, tmp_path, monkeypatch, Repeated(3, 8, (0, 4), "0" * 64))
    assert "at step 4; it ran with other code than this, which may round otherwise" in output
