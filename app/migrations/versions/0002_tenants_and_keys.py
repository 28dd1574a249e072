r"""Tenants of jobs and idempotency keys, access keys, and the audit log, which only grows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

REFUSAL = "the audit log is append-only"


def upgrade() -> None:
    """What there is belongs to the tenant ``default``."""
    op.add_column("jobs", sa.Column("tenant", sa.String(63), nullable=False, server_default="default"))
    op.create_index("ix_jobs_tenant_id", "jobs", ["tenant", "id"])
    with op.batch_alter_table("idempotency_keys") as batch:
        batch.add_column(sa.Column("tenant", sa.String(63), nullable=False, server_default="default"))
        batch.drop_constraint("pk_idempotency_keys", type_="primary")
        batch.create_primary_key("pk_idempotency_keys", ["tenant", "key"])
    op.create_table(
        "access_keys",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("tenant", sa.String(63), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("secret_sha256", sa.String(64), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_used", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_access_keys"),
    )
    op.create_index("ix_access_keys_tenant_id", "access_keys", ["tenant", "id"])
    op.create_table(
        "audit_log",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tenant", sa.String(63), nullable=True),
        sa.Column("key_id", sa.String(32), nullable=True),
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("action", sa.String(200), nullable=False),
        sa.Column("target", sa.String(500), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("request_id", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_audit_log"),
    )
    op.create_index("ix_audit_log_tenant_number", "audit_log", ["tenant", "number"])
    if op.get_bind().dialect.name == "sqlite":
        for change in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER audit_log_no_{change.lower()} BEFORE {change} ON audit_log BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
            )
    else:
        op.execute(f"CREATE FUNCTION audit_log_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION '{REFUSAL}'; END $$")
        op.execute(
            "CREATE TRIGGER audit_log_grows_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log "
            "FOR EACH STATEMENT EXECUTE FUNCTION audit_log_refuse()"
        )


def downgrade() -> None:
    """Back to one tenant: refused by the database where two tenants used the same idempotency key."""
    op.drop_table("audit_log")
    if op.get_bind().dialect.name != "sqlite":
        op.execute("DROP FUNCTION audit_log_refuse()")
    op.drop_table("access_keys")
    with op.batch_alter_table("idempotency_keys") as batch:
        batch.drop_constraint("pk_idempotency_keys", type_="primary")
        batch.create_primary_key("pk_idempotency_keys", ["key"])
        batch.drop_column("tenant")
    op.drop_index("ix_jobs_tenant_id", "jobs")
    op.drop_column("jobs", "tenant")
