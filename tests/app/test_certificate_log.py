"""The log of certificates: the tree of RFC 9162, the database that only lets it grow, signed heads and proofs."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import DatabaseError
from sqlalchemy.orm import Session

from tests.app.jobs_harness import postgresql_server
from tests.selection import thinned
from zetadp.app.certificates.log import journal
from zetadp.app.certificates.log.checkpoint import CheckpointRefused, LogHead, open_checkpoint, origin_of, sign_checkpoint
from zetadp.app.certificates.log.entries import CERTIFICATE
from zetadp.app.certificates.log.merkle_proofs import (
    ConsistencyProof,
    InclusionProof,
    ProofRefused,
    Proofs,
    SignedHead,
    check_consistency,
    check_inclusion,
    encode,
    read_proof,
)
from zetadp.app.certificates.log.service import consistency_proof, signed_head
from zetadp.app.certificates.log.tree import (
    EMPTY_ROOT,
    Node,
    completed,
    consistency_spans,
    fold,
    inclusion_spans,
    is_consistent,
    leaf_hash,
    node_hash,
    root_from_inclusion,
)
from zetadp.app.certificates.signing.keys import PublicKeySet, jwks, rotate, signing_key
from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings

TIME = datetime(2026, 1, 2, tzinfo=UTC)
# Inputs and roots of the tests of certificate-transparency (merkletree), which RFC 6962's own implementation was tested with.
INPUTS = ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")
ROOTS = (
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
)
SIZE = 33
STATEMENTS = [f"statement {number}".encode() for number in range(SIZE)]


def grown(leaves: list[bytes]) -> dict[Node, bytes]:
    """Every complete subtree of a tree that these leaves were added to, one after the other."""
    known: dict[Node, bytes] = {}
    for number, leaf in enumerate(leaves):
        known[0, number] = leaf
        for parent, left, right in completed(number):
            known[parent] = node_hash(known[left], known[right])
    return known


def defined(leaves: list[bytes]) -> bytes:
    """The root by RFC 9162's own definition (2.1.1)."""
    if len(leaves) < 2:
        return leaves[0] if leaves else EMPTY_ROOT
    half = 1
    while 2 * half < len(leaves):
        half *= 2
    return node_hash(defined(leaves[:half]), defined(leaves[half:]))


@pytest.fixture(scope="module", params=thinned(["sqlite", "postgresql"], every=2))
def of(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[Settings]:
    folder = tmp_path_factory.mktemp("log")
    if request.param == "sqlite":
        yield Settings(data_dir=folder)
        return
    with postgresql_server() as url:
        yield Settings(data_dir=folder, database_url=url)


@pytest.fixture(scope="module")
def log(of: Settings) -> Generator[Database]:
    """A log of ``STATEMENTS``, added by eight threads at once, in whatever order that gave."""
    database = Database(of)
    database.migrate()

    def add(number: int) -> None:
        with database.writing() as session:
            journal.append(session, CERTIFICATE, f"certificate-{number}", STATEMENTS[number], TIME)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(SIZE)))
    yield database
    database.close()


@pytest.fixture(scope="module")
def leaves(log: Database) -> list[bytes]:
    with log.reading() as session:
        entries = session.execute(text("SELECT number, leaf FROM certificate_log_entries ORDER BY number")).all()
    assert [number for number, _ in entries] == list(range(SIZE))
    return [bytes.fromhex(leaf) for _, leaf in entries]


# The tree


@pytest.mark.parametrize("size", range(len(ROOTS)))
def test_roots_are_those_of_certificate_transparency(size: int) -> None:
    leaves = [leaf_hash(bytes.fromhex(given)) for given in INPUTS[:size]]
    assert fold((0, size), grown(leaves).__getitem__).hex() == ROOTS[size]


def test_every_inclusion_proof_leads_to_the_root() -> None:
    leaves = [leaf_hash(statement) for statement in STATEMENTS]
    known = grown(leaves)
    for size in range(1, SIZE + 1):
        root = defined(leaves[:size])
        for number in range(size):
            path = [fold(span, known.__getitem__) for span in inclusion_spans(number, size)]
            assert root_from_inclusion(leaves[number], number, size, path) == root
            assert root_from_inclusion(leaves[number - 1], number, size, path) != root or size == 1
            assert root_from_inclusion(leaves[number], number, size, [*path, root]) is None


def test_every_consistency_proof_holds_and_no_other_root_does() -> None:
    leaves = [leaf_hash(statement) for statement in STATEMENTS]
    known = grown(leaves)
    for second in range(SIZE + 1):
        new = defined(leaves[:second])
        for first in range(second + 1):
            old = defined(leaves[:first])
            path = [fold(span, known.__getitem__) for span in consistency_spans(first, second)]
            assert is_consistent(first, old, second, new, path)
            assert not is_consistent(first, b"\x00" * 32, second, new, path)
            assert not is_consistent(first, old, second, b"\x00" * 32, path) or first == 0
            assert not is_consistent(first, old, second, new, [*path, old])


# The database


def test_appends_at_the_same_time_make_one_tree(log: Database, leaves: list[bytes]) -> None:
    assert sorted(leaves) == sorted(leaf_hash(statement) for statement in STATEMENTS)
    with log.reading() as session:
        assert journal.size_of(session) == SIZE
        assert [journal.root_of(session, size) for size in range(SIZE + 1)] == [defined(leaves[:size]) for size in range(SIZE + 1)]


def test_stored_proofs_lead_to_the_stored_roots(log: Database, leaves: list[bytes]) -> None:
    with log.reading() as session:
        for size in (1, 2, 7, 8, 21, SIZE):
            root = journal.root_of(session, size)
            for number in range(0, size, 3):
                assert root_from_inclusion(leaves[number], number, size, journal.inclusion_path(session, number, size)) == root
            first = size // 2
            path = journal.consistency_path(session, first, size)
            assert is_consistent(first, journal.root_of(session, first), size, root, path)


@pytest.mark.parametrize("change", ["UPDATE {} SET {} = '0'", "DELETE FROM {}"])
@pytest.mark.parametrize(("table", "column"), [("certificate_log_entries", "leaf"), ("certificate_log_nodes", "hash")])
def test_the_database_refuses_to_change_or_remove_what_is_in_the_log(log: Database, change: str, table: str, column: str) -> None:
    with pytest.raises(DatabaseError, match="append-only"), log.writing() as session:
        session.execute(text(change.format(table, column)))


def test_an_append_that_fails_leaves_no_trace(log: Database) -> None:
    def fail() -> None:
        with log.writing() as session:
            journal.append(session, CERTIFICATE, "another", b"another", TIME)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with log.reading() as session:
        assert (journal.size_of(session), journal.number_of(session, CERTIFICATE, "another")) == (SIZE, None)


def test_an_append_takes_few_queries_however_large_the_log_is(log: Database) -> None:
    class Undone(Exception):
        pass

    def append(session: Session) -> None:
        journal.append(session, CERTIFICATE, "another", b"another", TIME)
        session.flush()
        raise Undone

    with log.writing() as session:
        connection, asked = session.connection(), []
        event.listen(connection, "before_cursor_execute", lambda *told: asked.append(told[2]))
        with pytest.raises(Undone), session.begin_nested():
            append(session)
    assert len([one for one in asked if "certificate_log" in one]) <= 6


# Heads and proofs


@pytest.fixture(scope="module")
def keys(of: Settings) -> PublicKeySet:
    return jwks(of)


def proof_of(session: Session, settings: Settings, number: int, size: int) -> InclusionProof:
    checkpoint = signed_head(session, settings, size).checkpoint
    path = journal.inclusion_path(session, number, size)
    return InclusionProof(checkpoint=checkpoint, leaf_index=number, path=tuple(path))


def statement_at(session: Session, number: int) -> bytes:
    found = session.scalar(text("SELECT subject FROM certificate_log_entries WHERE number = :number"), {"number": number})
    return STATEMENTS[int(str(found).removeprefix("certificate-"))]


def test_a_head_says_size_and_root_and_comes_back(log: Database, of: Settings, keys: PublicKeySet) -> None:
    with log.reading() as session:
        head, key = open_checkpoint(signed_head(session, of).checkpoint, keys)
        assert (head.size, bytes.fromhex(head.root), key) == (SIZE, journal.root_of(session, SIZE), keys.keys[0])
        assert head.origin == f"zetadp-log/{keys.keys[-1].kid}"


def test_a_checkpoint_is_a_signed_note_of_c2sp(of: Settings, keys: PublicKeySet) -> None:
    # Written out from the specifications: the key's hint is SHA-256(name, newline, 1, key)[:4], the text ends with a newline and is signed.
    head = LogHead(origin=origin_of(keys.keys[-1]), size=5, root="ab" * 32)
    body, signature = sign_checkpoint(head, signing_key(of)).split("\n\n")
    assert body == f"{head.origin}\n5\n{base64.b64encode(bytes.fromhex(head.root)).decode()}"
    dash, name, encoded = signature.split(" ")
    raw = base64.b64decode(encoded)
    assert (dash, name, encoded[-1]) == ("\u2014", head.origin, "\n")
    assert raw[:4] == hashlib.sha256(f"{name}\n".encode() + b"\x01" + keys.keys[0].raw).digest()[:4]
    signing_key(of).private.public_key().verify(raw[4:], f"{body}\n".encode())


def test_a_checkpoint_of_another_key_is_refused(log: Database, of: Settings, tmp_path: Path) -> None:
    with log.reading() as session, pytest.raises(CheckpointRefused, match=r"isn't signed by a trusted key \(1 key given\)"):
        open_checkpoint(signed_head(session, of).checkpoint, jwks(Settings(data_dir=tmp_path)))


def test_an_inclusion_proof_shows_the_statement_and_no_other(log: Database, of: Settings, keys: PublicKeySet) -> None:
    with log.reading() as session:
        proof, statement = proof_of(session, of, 6, 20), statement_at(session, 6)
    assert check_inclusion(statement, proof, keys)[0].size == 20
    with pytest.raises(ProofRefused, match="this isn't entry 7: the proof leads to root"):
        check_inclusion(statement + b" ", proof, keys)


@pytest.mark.parametrize("index", [0, 5, 7, 19, 20, 33])
def test_an_inclusion_proof_is_of_one_entry_alone(log: Database, of: Settings, keys: PublicKeySet, index: int) -> None:
    with log.reading() as session:
        proof, statement = proof_of(session, of, 6, 20), statement_at(session, 6)
    moved = InclusionProof(checkpoint=proof.checkpoint, leaf_index=index, path=proof.path)
    with pytest.raises(ProofRefused):
        check_inclusion(statement, moved, keys)


def test_a_kept_head_is_found_to_be_the_beginning(log: Database, of: Settings, keys: PublicKeySet) -> None:
    with log.reading() as session:
        old, _ = open_checkpoint(signed_head(session, of, 9).checkpoint, keys)
        new, _ = check_consistency(old, consistency_proof(session, of, 9), keys)
    assert new.size == SIZE


def test_a_log_whose_history_was_changed_is_found_out(log: Database, of: Settings, keys: PublicKeySet) -> None:
    with log.reading() as session:
        proof = consistency_proof(session, of, 9)
    kept = LogHead(origin=origin_of(keys.keys[-1]), size=9, root="00" * 32)
    with pytest.raises(ProofRefused, match="the log of 33 entries doesn't extend the one of 9: its history was changed"):
        check_consistency(kept, proof, keys)


def test_a_log_that_shrank_is_found_out(log: Database, of: Settings, keys: PublicKeySet) -> None:
    with log.reading() as session:
        head = signed_head(session, of, 8)
    kept = LogHead(origin=origin_of(keys.keys[-1]), size=9, root="00" * 32)
    proof = ConsistencyProof(first=9, second=8, path=(), checkpoint=head.checkpoint)
    with pytest.raises(ProofRefused, match="the log has 8 entries, but had 9: entries were removed"):
        check_consistency(kept, proof, keys)


def test_every_changed_byte_of_a_proof_is_noticed(log: Database, of: Settings, keys: PublicKeySet) -> None:
    with log.reading() as session:
        content, statement = encode(Proofs(certificate=proof_of(session, of, 6, 20).text)), statement_at(session, 6)
    for place in range(len(content) - 1):  # but for the final newline, which is forgiven
        changed = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
        with pytest.raises(ProofRefused):
            check_inclusion(statement, InclusionProof.read(read_proof(changed, Proofs).certificate), keys)


def test_a_proof_is_a_tlog_proof_of_c2sp(log: Database, of: Settings) -> None:
    # Written out from the specification: a first line, the index, a hash a line in base64, an empty line, the checkpoint.
    with log.reading() as session:
        proof = proof_of(session, of, 6, 20)
    first, index, *hashes = proof.text.split("\n\n", 1)[0].split("\n")
    assert (first, index) == ("c2sp.org/tlog-proof@v1", "index 6")
    assert [base64.b64decode(line) for line in hashes] == list(proof.path)
    assert proof.text.split("\n\n", 1)[1] == proof.checkpoint
    assert InclusionProof.read(proof.text) == proof


@pytest.mark.parametrize("indent", [1, None])
def test_a_proof_laid_out_otherwise_is_refused(log: Database, of: Settings, indent: int | None) -> None:
    with log.reading() as session:
        document = json.loads(encode(Proofs(certificate=proof_of(session, of, 6, 20).text)))
    with pytest.raises(ProofRefused, match="isn't laid out as issued"):
        read_proof(json.dumps(document, indent=indent).encode(), Proofs)


@pytest.mark.parametrize("content", [b"", b"{}", b"null", b"[" * 10_000, b"\xff", b" " * 70_000, b'{"checkpoint":"a"}\n'])
def test_what_is_no_head_is_refused_in_words(content: bytes, keys: PublicKeySet) -> None:
    with pytest.raises((ProofRefused, CheckpointRefused)):
        open_checkpoint(read_proof(content, SignedHead).checkpoint, keys)


def test_the_log_keeps_its_name_when_keys_change(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    database = Database(settings)
    database.migrate()
    with database.reading() as session:
        before = open_checkpoint(signed_head(session, settings).checkpoint, jwks(settings))
        rotate(settings)
        after = open_checkpoint(signed_head(session, settings).checkpoint, jwks(settings))
    database.close()
    assert before[0] == after[0]
    assert before[1] != after[1]
