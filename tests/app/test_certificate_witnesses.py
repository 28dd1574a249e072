"""Witnesses of the log: what they sign and refuse, what a certificate shows by them, and that no second history gets enough of them."""

from __future__ import annotations

import base64
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import ValidationError

from tests.app.announced_harness import Announcing
from tests.app.certificate_kinds import BASELINE
from tests.app.certificates_harness import details, run_of
from tests.app.jobs_harness import wait_until
from zetadp.app.certificates.facts.report import Status
from zetadp.app.certificates.issuing.issue import CertificateInput
from zetadp.app.certificates.log import journal
from zetadp.app.certificates.log.checkpoint import head_text, log_key, origin_of
from zetadp.app.certificates.log.cosignatures import cosign, cosignatures_on, witness_key
from zetadp.app.certificates.log.merkle_proofs import InclusionProof, Proofs
from zetadp.app.certificates.log.notes import COSIGNATURE, ED25519, Note, NoteKey, NoteRefused, NoteSignature
from zetadp.app.certificates.log.tiles import read_entries
from zetadp.app.certificates.log.tree import consistency_spans, leaf_hash, root_over
from zetadp.app.certificates.log.witness import Answer, Witness, add_request
from zetadp.app.certificates.policy.schema import Policy
from zetadp.app.certificates.signing.keys import jwks
from zetadp.app.certificates.verification.verify import verify
from zetadp.app.kit.settings import Settings
from zetadp.app.worker.announcing import NotAnnounced
from zetadp.app.worker.witnessing import kept_and_witnessed

ORIGIN = "log.example.org/one"
FORKS = 6


class Log:
    """A log in memory, whose owner shows whatever suits."""

    def __init__(self, entries: list[bytes], private: Ed25519PrivateKey, origin: str = ORIGIN) -> None:
        self.leaves, self._private = [leaf_hash(entry) for entry in entries], private
        self.key = NoteKey(origin, ED25519, private.public_key().public_bytes_raw())

    def checkpoint(self, size: int) -> str:
        text = head_text(self.key.name, size, root_over(self.leaves[:size]))
        return f"{text}\n{NoteSignature(self.key.name, self.key.id, self._private.sign(text.encode())).line}"

    def request(self, old: int, size: int) -> bytes:
        path = [root_over(self.leaves[first:end]) for first, end in consistency_spans(old, size)]
        return add_request(old, path, self.checkpoint(size))


@pytest.fixture(scope="module")
def owner() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


@pytest.fixture
def log(owner: Ed25519PrivateKey) -> Log:
    return Log([f"entry {number}".encode() for number in range(40)], owner)


@pytest.fixture
def witness(log: Log, tmp_path: Path) -> Witness:
    return made(tmp_path / "witness", log)


def made(folder: Path, log: Log, name: str = "witness.example.org") -> Witness:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "logs").write_text(f"# logs\n{log.key.text}\n")
    return Witness(folder, name, folder / "logs")


# What a witness signs


def test_a_witness_signs_a_log_that_only_grows(witness: Witness, log: Log) -> None:
    for old, size in ((0, 1), (1, 7), (7, 7), (7, 40)):
        answer = witness.add_checkpoint(log.request(old, size))
        assert answer.status == 200, answer.text
        (found,) = cosignatures_on(Note.read(log.checkpoint(size) + answer.text), [witness.key])
        assert found.witness == witness.key


def test_a_cosignature_is_that_of_c2sp(witness: Witness, log: Log) -> None:
    # Written out from the specification: a header, a time, the head's text; before the signature 8 bytes of time.
    line = witness.add_checkpoint(log.request(0, 5)).text
    _, name, encoded = line.rstrip("\n").split(" ")
    raw = base64.b64decode(encoded)
    assert (name, raw[:4], len(raw)) == ("witness.example.org", witness.key.id, 4 + 8 + 64)
    text = log.checkpoint(5).split("\n\n")[0] + "\n"
    signed = f"cosignature/v1\ntime {int.from_bytes(raw[4:12], 'big')}\n{text}".encode()
    assert witness.key.has_signed(raw[12:], signed)
    assert witness.key.kind == COSIGNATURE == 4


@pytest.mark.parametrize(
    ("change", "status", "text"),
    [
        (lambda log: log.request(0, 9), 409, "5\n"),
        (lambda log: log.request(5, 3), 400, "above the head's"),
        (lambda log: log.request(5, 9).replace(b"old 5\n", b"old 5\n" + b"A" * 43 + b"=\n"), 422, "only grew"),
        (lambda log: add_request(5, [], log.checkpoint(9)), 422, "only grew"),
        (lambda _: Log([b"x"] * 9, Ed25519PrivateKey.generate()).request(5, 9), 403, "isn't signed by a key of this log"),
        (lambda _: Log([b"x"] * 9, Ed25519PrivateKey.generate(), "other.example.org").request(5, 9), 404, "doesn't know"),
        (lambda _: b"", 400, "isn't an old size"),
        (lambda _: b"\xff" * 100, 400, ""),
        (lambda log: b"old 05\n\n" + log.checkpoint(9).encode(), 400, ""),
        (lambda log: log.request(5, 9) * 1000, 400, ""),
    ],
)
def test_what_a_witness_refuses_it_says_why(witness: Witness, log: Log, change: Any, status: int, text: str) -> None:
    witness.add_checkpoint(log.request(0, 5))
    answer = witness.add_checkpoint(change(log))
    assert (answer.status, text in answer.text) == (status, True), answer
    assert witness.add_checkpoint(log.request(5, 40)).status == 200  # nothing of it was kept


def test_a_witness_that_starts_again_knows_what_it_signed(log: Log, owner: Ed25519PrivateKey, tmp_path: Path) -> None:
    first = made(tmp_path, log)
    assert first.add_checkpoint(log.request(0, 20)).status == 200
    again = made(tmp_path, log)
    assert again.key == first.key
    fork = Log([b"other"] * 40, owner)
    assert again.add_checkpoint(fork.request(0, 20)).status == 409
    assert again.add_checkpoint(fork.request(20, 30)).status == 422


def test_of_two_histories_at_once_a_witness_signs_one(owner: Ed25519PrivateKey, log: Log, tmp_path: Path) -> None:
    witness = made(tmp_path, log)
    views = [Log([f"view {number}".encode()] * 8, owner) for number in range(8)]
    barrier = threading.Barrier(8)

    def show(view: Log) -> int:
        barrier.wait()
        return witness.add_checkpoint(view.request(0, 8)).status

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(show, views)) == [200, *[409] * 7]


def split_views(chosen: random.Random, owner: Ed25519PrivateKey, folder: Path) -> list[int]:
    """An operator shows two histories to readers, and to three witnesses whatever suits; how many signatures each history gets."""
    shared = [f"shared {number}".encode() for number in range(chosen.randrange(0, 20))]
    views = [Log([*shared, *(f"{side} {number}".encode() for number in range(chosen.randrange(1, 20)))], owner) for side in "ab"]
    witnesses = [made(folder / str(number), views[0], f"witness-{number}.example.org") for number in range(3)]
    shown = [(view, witness) for view in views for witness in witnesses]
    chosen.shuffle(shown)
    counts = [0, 0]
    for witness in witnesses:
        if shared and chosen.random() < 0.5:
            witness.add_checkpoint(views[0].request(0, len(shared)))
    for view, witness in shown * 2:
        size = len(view.leaves)
        answer = witness.add_checkpoint(view.request(0, size))
        if answer.status == 409 and answer.text.strip().isdecimal() and int(answer.text) <= size:
            answer = witness.add_checkpoint(view.request(int(answer.text), size))
        if answer.status == 200:
            counts[views.index(view)] |= 1 << witnesses.index(witness)
    return [count.bit_count() for count in counts]


def test_a_split_view_never_gets_two_of_three_witnesses_for_both_histories(owner: Ed25519PrivateKey, tmp_path: Path) -> None:
    chosen = random.Random(11)
    found = [split_views(chosen, owner, tmp_path / str(number)) for number in range(FORKS)]
    assert [counts for counts in found if min(counts) >= 2] == []
    assert [counts for counts in found if max(counts) >= 2] != []


def listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.slow
def test_the_command_runs_a_witness_and_prints_its_key(log: Log, tmp_path: Path) -> None:
    (tmp_path / "logs").write_text(log.key.text)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--name", "w.example.org", "--logs", "logs", "--folder", "own", "--port", str(port)]
    command = [sys.executable, "-m", "zetadp", "witness", *options]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            key = NoteKey.read(process.stdout.readline().strip())
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}") as client:
                wait_until(lambda: listens(port))
                answer = client.post("/add-checkpoint", content=log.request(0, 5))
                too_long = client.post("/add-checkpoint", content=b"x" * 20_000)
                conflict = client.post("/add-checkpoint", content=log.request(0, 5))
        finally:
            process.terminate()
    assert len(cosignatures_on(Note.read(log.checkpoint(5) + answer.text), [key])) == 1
    assert (too_long.status_code, conflict.status_code, conflict.headers["content-type"]) == (413, 409, "text/x.tlog.size; charset=utf-8")


# Keys and notes


@pytest.mark.parametrize("text", ["", "a+b+c", "name+00000000+" + "A" * 44, "na me+00000000+" + "A" * 44])
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(NoteRefused):
        NoteKey.read(text)


def test_a_signature_under_a_witness_name_that_is_not_its_own_is_refused(log: Log) -> None:
    own, thief = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    key, text = witness_key("w", own), log.checkpoint(5).split("\n\n")[0] + "\n"
    forged = cosign("w", thief, text, 5)
    note = Note.read(log.checkpoint(5) + NoteSignature("w", key.id, forged.signature).line)
    with pytest.raises(NoteRefused, match="isn't its own"):
        cosignatures_on(note, [key])
    assert cosignatures_on(Note.read(log.checkpoint(5) + forged.line), [key]) == []  # an unknown key's, which says nothing


@pytest.mark.parametrize(
    ("least", "count", "is_refused"), [(1, 1, False), (1, 2, True), (2, 2, False), (2, 3, False), (2, 4, True), (4, 3, True)]
)
def test_a_policy_asks_more_than_half_of_its_witnesses(least: int, count: int, is_refused: bool) -> None:
    keys = [witness_key(f"w{number}", Ed25519PrivateKey.generate()).text for number in range(count)]
    fields = {"name": "a", "unit": ("record",), "adjacency": ("add_remove",), "largest_epsilon": "1", "largest_delta": "0.1"}
    document = fields | {"witnesses": {"least": least, "keys": tuple(keys)}}
    if is_refused:
        with pytest.raises(ValidationError, match="more than half"):
            Policy.model_validate(document)
    else:
        assert len(Policy.model_validate(document).trust.witnesses) == count


# The service's log, with witnesses that answer over HTTP


@contextmanager
def serving(witness: Witness | Sly) -> Generator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            answer = witness.add_checkpoint(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.text.encode())))
            self.end_headers()
            self.wfile.write(answer.text.encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> CertificateInput:
    return run_of(BASELINE, tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def witnesses(tmp_path_factory: pytest.TempPathFactory) -> list[Witness]:
    folder = tmp_path_factory.mktemp("witnesses")
    for number in range(3):
        (folder / str(number)).mkdir()
        (folder / str(number) / "logs").write_text("")
    return [Witness(folder / str(number), f"w{number}.example.org", folder / str(number) / "logs") for number in range(3)]


@pytest.fixture(scope="module")
def house(run: CertificateInput, witnesses: list[Witness], tmp_path_factory: pytest.TempPathFactory) -> Generator[Announcing]:
    folder = tmp_path_factory.mktemp("house")
    with ExitStack() as stack:
        lines = [f"{stack.enter_context(serving(witness))} {witness.key.text}" for witness in witnesses]
        (folder / "witnesses").write_text("\n".join(lines))
        house = Announcing(Settings(data_dir=folder, witnesses=folder / "witnesses", least_witnesses=2), run)
        known = jwks(house.settings)
        for witness in witnesses:
            witness._logs.write_text(log_key(origin_of(known.keys[-1]), known.keys[0]).text)
        yield house
        house.database.close()


@pytest.fixture(scope="module")
def certified(house: Announcing) -> tuple[bytes, Proofs]:
    house.began()
    envelope, certificate_id = house.ended(*house.began())
    kept_and_witnessed(house.settings, house.database)
    house.began()
    return envelope, house.proofs(certificate_id)


def demand(witnesses: list[Witness], least: int = 2, **more: object) -> Policy:
    fields = {"name": "a", "unit": ("record",), "adjacency": ("add_remove",), "largest_epsilon": "1", "largest_delta": "0.1"}
    return Policy.model_validate(fields | {"witnesses": {"least": least, "keys": tuple(one.key.text for one in witnesses)}} | more)


def test_heads_of_plan_and_certificate_are_signed_by_the_witnesses(
    house: Announcing, certified: tuple[bytes, Proofs], witnesses: list[Witness]
) -> None:
    envelope, proofs = certified
    report = verify(envelope, jwks(house.settings), None, house.evidence(proofs), demand(witnesses, 3))
    assert report.verdict == "valid"
    told = details(report, "witnesses", Status.PASSED)
    for name, proof in (("the certificate", proofs.certificate), ("its plan", proofs.plan or "")):
        lines = Note.read(InclusionProof.read(proof).checkpoint).signatures[1:]
        time = datetime.fromtimestamp(max(int.from_bytes(one.signature[:8], "big") for one in lines), UTC)
        assert f"3 of 3 signed the head that {name} is under, 3 of them by {time:%Y-%m-%d %H:%M:%S} UTC" in told
    assert told.endswith(" UTC, by their own clocks (at least 3 asked for)")


def test_what_too_few_signed_is_refused(house: Announcing, certified: tuple[bytes, Proofs], witnesses: list[Witness]) -> None:
    envelope, proofs = certified
    one_left = "\n".join([*proofs.certificate.split("\n")[:-3], ""])  # without the last two lines of signatures
    given = Proofs(certificate=one_left, plan=proofs.plan)
    report = verify(envelope, jwks(house.settings), None, house.evidence(given), demand(witnesses))
    assert "1 of 3 witnesses signed the head that the certificate is under, 2 are asked for" in details(report, "witnesses")
    without_plan = Proofs(certificate=proofs.certificate)
    report = verify(envelope, jwks(house.settings), None, house.evidence(without_plan), demand(witnesses))
    assert details(report, "witnesses") == "the proof of its plan is missing"


def test_a_second_history_by_the_services_own_keys_is_refused(
    house: Announcing, run: CertificateInput, certified: tuple[bytes, Proofs], witnesses: list[Witness], tmp_path: Path
) -> None:
    # The operator keeps a second database with the same keys, and shows its log to one reader. The witnesses won't sign it.
    (tmp_path / "keys").mkdir(mode=0o700)
    (tmp_path / "keys" / "0001.pem").write_bytes((house.settings.data_dir / "keys" / "0001.pem").read_bytes())
    (tmp_path / "keys" / "0001.pem").chmod(0o600)
    second = Announcing(Settings(data_dir=tmp_path, witnesses=house.settings.witnesses), run)
    envelope, certificate_id = second.ended(*second.began())
    assert kept_and_witnessed(second.settings, second.database).count == 0
    report = verify(envelope, jwks(second.settings), None, second.evidence(second.proofs(certificate_id)), demand(witnesses))
    second.database.close()
    assert report.verdict == "invalid"
    assert details(report, "log") == details(report, "plan_logged") == ""  # for its reader all else is in order
    assert "0 of 3 witnesses signed the head that the certificate is under" in details(report, "witnesses")


def test_without_enough_witnesses_nothing_begins(house: Announcing, run: CertificateInput, tmp_path: Path) -> None:
    lonely = Announcing(Settings(data_dir=tmp_path / "lonely", witnesses=house.settings.witnesses, least_witnesses=2), run)
    with pytest.raises(NotAnnounced, match="0 witnesses signed the log with its plan, and 2 are asked for"):
        lonely.began()
    (tmp_path / "witnesses").write_text("no witness")
    broken = Announcing(Settings(data_dir=tmp_path, witnesses=tmp_path / "witnesses"), run)
    with pytest.raises(NotAnnounced, match="expected lines with a witness's address and its key"):
        broken.began()
    lonely.database.close()
    broken.database.close()


class Sly:
    """A witness that signs, instead of the head, a text that begins with it."""

    def __init__(self) -> None:
        self._private = Ed25519PrivateKey.generate()
        self.key = witness_key("sly.example.org", self._private)

    def add_checkpoint(self, request: bytes) -> Answer:
        checkpoint = request.decode().split("\n\n", 1)[1]
        return Answer(200, "\n" + cosign(self.key.name, self._private, checkpoint, 1_800_000_000).line)


def test_a_signature_on_another_text_than_the_head_is_not_kept(run: CertificateInput, tmp_path: Path) -> None:
    sly = Sly()
    with serving(sly) as address:
        (tmp_path / "witnesses").write_text(f"{address} {sly.key.text}")
        house = Announcing(Settings(data_dir=tmp_path, witnesses=tmp_path / "witnesses"), run)
        house.began()
        signed = kept_and_witnessed(house.settings, house.database)
        house.database.close()
    assert (signed.count, "sly" in signed.checkpoint) == (0, False)


def test_without_a_policy_nobodys_signatures_are_taken_for_witnesses(house: Announcing, certified: tuple[bytes, Proofs]) -> None:
    report = verify(certified[0], jwks(house.settings), None, house.evidence(certified[1]))
    assert "no witness of logs is trusted" in details(report, "witnesses", Status.NOT_CHECKED)


def test_the_services_own_log_adds_up(house: Announcing, certified: tuple[bytes, Proofs]) -> None:
    assert InclusionProof.read(certified[1].certificate).leaf_index >= 2
    with house.database.reading() as session:
        found = read_entries([journal.content_of(session, number) for number in range(journal.size_of(session))])
    assert found.problems == ()
    assert sum(found.uncertified.values()) == found.plans - 1
