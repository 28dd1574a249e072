r"""The log in the database: append a statement, and read roots and proofs of any size it ever had.

What an entry holds is in ``entries``: a few public lines. A certificate's is about the statement that was signed (the payload's bytes), not
its envelope: a certificate has several forms, DSSE and JWS, and each proves that the same statement is in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from zetadp.app.certificates.log.tree import Node, Span, completed, consistency_spans, fold, inclusion_spans, leaf_hash, node_hash, nodes_of
from zetadp.app.tables.certificate_log import LogEntryRow, LogNodeRow, LogRow

LOG_ID = 1
_AT_ONCE = 200
"""Coordinates in one query: databases bound the length of a statement."""


def append(session: Session, kind: str, subject: str, entry: bytes, time: datetime) -> int:
    """Add an entry to the log, in the transaction that stores what it is about; returns its number. Processes take turns.

    ``subject``: what it is about, among those of its kind.
    """
    row = lock(session)
    number, leaf = row.size, leaf_hash(entry)
    session.add(LogEntryRow(number=number, kind=kind, subject=subject, content=entry.decode(), leaf=leaf.hex(), time=time))
    known = {(0, number): leaf}
    parts = list(completed(number))
    known |= _stored(session, (left for _, left, _ in parts))
    for parent, left, right in parts:
        known[parent] = node_hash(known[left], known[right])
        session.add(LogNodeRow(level=parent[0], position=parent[1], hash=known[parent].hex()))
    row.size = number + 1
    return number


def lock(session: Session) -> LogRow:
    """Lock the log's row until the transaction ends: nobody can append meanwhile."""
    return session.scalars(select(LogRow).where(LogRow.id == LOG_ID).with_for_update()).one()


def size_of(session: Session) -> int:
    """How many entries there are."""
    return session.scalars(select(LogRow.size).where(LogRow.id == LOG_ID)).one()


def root_of(session: Session, size: int) -> bytes:
    """The root over the first ``size`` entries, which must exist."""
    return _folded(session, [(0, size)])[0]


def inclusion_path(session: Session, number: int, size: int) -> list[bytes]:
    """The hashes that prove that entry ``number`` is among the first ``size``."""
    return _folded(session, inclusion_spans(number, size))


def consistency_path(session: Session, first: int, second: int) -> list[bytes]:
    """The hashes that prove that the log of size ``first`` is the beginning of the one of size ``second``."""
    return _folded(session, consistency_spans(first, second))


def number_of(session: Session, kind: str, subject: str) -> int | None:
    """The number of the entry about this; None if it isn't in the log."""
    return session.scalar(select(LogEntryRow.number).where(LogEntryRow.kind == kind, LogEntryRow.subject == subject))


def content_of(session: Session, number: int) -> bytes:
    """What an entry holds, which must exist."""
    return session.scalars(select(LogEntryRow.content).where(LogEntryRow.number == number)).one().encode()


def number_of_entry(session: Session, entry: bytes) -> int | None:
    """The number of the first entry with this content; None if it isn't in the log."""
    query = select(LogEntryRow.number).where(LogEntryRow.leaf == leaf_hash(entry).hex()).order_by(LogEntryRow.number).limit(1)
    return session.scalar(query)


def nodes(session: Session, wanted: Sequence[Node]) -> list[bytes]:
    """The hashes of these complete subtrees, which must exist."""
    known = _stored(session, wanted)
    return [known[node] for node in wanted]


def _folded(session: Session, spans: list[Span]) -> list[bytes]:
    known = _stored(session, (node for span in spans for node in nodes_of(span)))
    return [fold(span, known.__getitem__) for span in spans]


def _stored(session: Session, nodes: Iterable[Node]) -> dict[Node, bytes]:
    wanted = sorted(set(nodes))
    leaves, inner = [position for level, position in wanted if level == 0], [node for node in wanted if node[0] > 0]
    found: dict[Node, bytes] = {}
    for first in range(0, len(leaves), _AT_ONCE):
        query = select(LogEntryRow.number, LogEntryRow.leaf).where(LogEntryRow.number.in_(leaves[first : first + _AT_ONCE]))
        found |= {(0, number): bytes.fromhex(leaf) for number, leaf in session.execute(query)}
    key = tuple_(LogNodeRow.level, LogNodeRow.position)
    for first in range(0, len(inner), _AT_ONCE):
        query = select(LogNodeRow.level, LogNodeRow.position, LogNodeRow.hash).where(key.in_(inner[first : first + _AT_ONCE]))
        found |= {(level, position): bytes.fromhex(value) for level, position, value in session.execute(query)}
    return found
