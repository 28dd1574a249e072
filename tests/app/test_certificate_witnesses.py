"""Witnesses of logs: what they sign and refuse, and that no second history gets enough of them."""

from __future__ import annotations

import base64
import random
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import ValidationError

from tests.app.jobs_harness import wait_until
from tests.app.witness_harness import Log, made
from zetadp.app.certificates.log.cosignatures import cosign, cosignatures_on, witness_key
from zetadp.app.certificates.log.notes import COSIGNATURE, Note, NoteKey, NoteRefused, NoteSignature
from zetadp.app.certificates.log.witness import Witness, add_request
from zetadp.app.certificates.policy.schema import Policy

FORKS = 6


@pytest.fixture(scope="module")
def owner() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


@pytest.fixture
def log(owner: Ed25519PrivateKey) -> Log:
    return Log([f"entry {number}".encode() for number in range(40)], owner)


@pytest.fixture
def witness(log: Log, tmp_path: Path) -> Witness:
    return made(tmp_path / "witness", log)


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
