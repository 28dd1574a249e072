r"""The append-only log of certificates: its size, its leaves and its inner nodes; what was issued before comes in first."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

GROW_ONLY = ("certificate_log_entries", "certificate_log_nodes")
REFUSAL = "the log of certificates is append-only"


def upgrade() -> None:
    """Create the tables, add the certificates there are in order of time, and have the database refuse changes of entries and nodes."""
    log = op.create_table(
        "certificate_log",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_certificate_log"),
    )
    entries = op.create_table(
        "certificate_log_entries",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("certificate_id", sa.String(64), nullable=False),
        sa.Column("leaf", sa.String(64), nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_certificate_log_entries"),
        sa.UniqueConstraint("certificate_id", name="uq_certificate_log_entries_certificate_id"),
    )
    op.create_index("ix_certificate_log_entries_leaf", "certificate_log_entries", ["leaf"])
    nodes = op.create_table(
        "certificate_log_nodes",
        sa.Column("level", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("level", "position", name="pk_certificate_log_nodes"),
    )
    _fill(log, entries, nodes)
    if op.get_bind().dialect.name == "sqlite":
        for table in GROW_ONLY:
            for change in ("UPDATE", "DELETE"):
                op.execute(
                    f"CREATE TRIGGER {table}_no_{change.lower()} BEFORE {change} ON {table} BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
                )
        return
    op.execute(f"CREATE FUNCTION certificate_log_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION '{REFUSAL}'; END $$")
    for table in GROW_ONLY:
        op.execute(
            f"CREATE TRIGGER {table}_grow_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION certificate_log_refuse()"
        )


def downgrade() -> None:
    """Drop the tables, with everything in them: readers who kept a head will find that the log begins anew."""
    for table in ("certificate_log_nodes", "certificate_log_entries", "certificate_log"):
        op.drop_table(table)
    if op.get_bind().dialect.name != "sqlite":
        op.execute("DROP FUNCTION certificate_log_refuse()")


def _fill(log: sa.Table, entries: sa.Table, nodes: sa.Table) -> None:
    """The tree of RFC 9162 as ``app.certificates.log`` keeps it; written out here, since a migration means the same for ever."""
    # Times are copied as they are stored; a JSON column gives a document on either database.
    certificates = sa.table(
        "certificates", sa.column("id", sa.String()), sa.column("created", sa.DateTime(timezone=True)), sa.column("envelope", sa.JSON())
    )
    connection = op.get_bind()
    number = 0
    frontier: list[tuple[int, bytes]] = []  # complete subtrees from the left: level and hash
    rows = connection.execute(sa.select(certificates.c.id, certificates.c.created).order_by(certificates.c.created, certificates.c.id))
    for identifier, created in rows.all():
        envelope: dict[str, Any] = connection.execute(
            sa.select(certificates.c.envelope).where(certificates.c.id == identifier)
        ).scalar_one()
        envelope = json.loads(envelope) if isinstance(envelope, str) else envelope
        leaf = hashlib.sha256(b"\x00" + base64.b64decode(envelope["payload"])).digest()
        connection.execute(entries.insert().values(number=number, certificate_id=identifier, leaf=leaf.hex(), time=created))
        level = 0
        while frontier and frontier[-1][0] == level:
            leaf, level = hashlib.sha256(b"\x01" + frontier.pop()[1] + leaf).digest(), level + 1
            connection.execute(nodes.insert().values(level=level, position=number >> level, hash=leaf.hex()))
        frontier.append((level, leaf))
        number += 1
    connection.execute(log.insert().values(id=1, size=number))
