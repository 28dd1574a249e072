r"""Ledgers, their users' sums, their entries, which only grow, and when reservations lapse."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

REFUSAL = "the entries of a ledger are append-only"


def upgrade() -> None:
    """Create the tables; the database itself refuses to change or delete an entry."""
    op.create_table(
        "ledgers",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("tenant", sa.String(63), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("entries", sa.Integer(), nullable=False),
        sa.Column("head", sa.String(64), nullable=False),
        sa.Column("next_lapse", sa.DateTime(timezone=True), nullable=True),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.Column("sums", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.String(255), nullable=True),
        sa.Column("request_sha256", sa.String(64), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_ledgers"),
        sa.UniqueConstraint("tenant", "name", name="uq_ledgers_tenant_name"),
        sa.UniqueConstraint("tenant", "idempotency_key", name="uq_ledgers_tenant_idempotency_key"),
    )
    op.create_index("ix_ledgers_tenant_id", "ledgers", ["tenant", "id"])
    op.create_table(
        "ledger_users",
        sa.Column("ledger_id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("sums", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["ledger_id"], ["ledgers.id"], name="fk_ledger_users_ledger_id_ledgers"),
        sa.PrimaryKeyConstraint("ledger_id", "name", name="pk_ledger_users"),
    )
    op.create_table(
        "ledger_entries",
        sa.Column("ledger_id", sa.String(64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.String(255), nullable=True),
        sa.Column("request_sha256", sa.String(64), nullable=True),
        sa.Column("reservation_id", sa.String(64), nullable=True),
        sa.Column("settles", sa.Integer(), nullable=True),
        sa.Column("job_id", sa.String(64), nullable=True),
        sa.ForeignKeyConstraint(["ledger_id"], ["ledgers.id"], name="fk_ledger_entries_ledger_id_ledgers"),
        sa.PrimaryKeyConstraint("ledger_id", "number", name="pk_ledger_entries"),
        sa.UniqueConstraint("ledger_id", "reservation_id", "settles", name="uq_ledger_entries_ledger_id_reservation_id_settles"),
    )
    for name, columns, unique in (
        ("ix_ledger_entries_ledger_id_idempotency_key", ["ledger_id", "idempotency_key"], True),
        ("ix_ledger_entries_job_id", ["job_id"], False),
    ):
        given = sa.text(f"{columns[-1]} IS NOT NULL")
        op.create_index(name, "ledger_entries", columns, unique=unique, sqlite_where=given, postgresql_where=given)
    op.create_table(
        "ledger_lapses",
        sa.Column("ledger_id", sa.String(64), nullable=False),
        sa.Column("reservation_id", sa.String(64), nullable=False),
        sa.Column("look_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["ledger_id"], ["ledgers.id"], name="fk_ledger_lapses_ledger_id_ledgers"),
        sa.PrimaryKeyConstraint("ledger_id", "reservation_id", name="pk_ledger_lapses"),
    )
    op.create_index("ix_ledger_lapses_ledger_id_look_at", "ledger_lapses", ["ledger_id", "look_at"])
    op.create_table(
        "ledger_jobs",
        sa.Column("job_id", sa.String(64), nullable=False),
        sa.Column("ledger_id", sa.String(64), nullable=False),
        sa.Column("reservation_id", sa.String(64), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["ledger_id"], ["ledgers.id"], name="fk_ledger_jobs_ledger_id_ledgers"),
        sa.PrimaryKeyConstraint("job_id", name="pk_ledger_jobs"),
    )
    op.create_index("ix_ledger_jobs_reservation_id", "ledger_jobs", ["reservation_id"])
    if op.get_bind().dialect.name == "sqlite":
        for change in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER ledger_entries_no_{change.lower()} BEFORE {change} ON ledger_entries "
                f"BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
            )
    else:
        op.execute(
            f"CREATE FUNCTION ledger_entries_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION '{REFUSAL}'; END $$"
        )
        op.execute(
            "CREATE TRIGGER ledger_entries_grow_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_entries "
            "FOR EACH STATEMENT EXECUTE FUNCTION ledger_entries_refuse()"
        )


def downgrade() -> None:
    """Drop the tables, with everything in them."""
    for table in ("ledger_jobs", "ledger_lapses", "ledger_entries", "ledger_users", "ledgers"):
        op.drop_table(table)
    if op.get_bind().dialect.name != "sqlite":
        op.execute("DROP FUNCTION ledger_entries_refuse()")
