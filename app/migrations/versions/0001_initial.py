r"""Every table. What only grows, the database itself refuses to change (``growing``)."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from zetadp.app.migrations.growing import refuse_changes

revision = "0001"
down_revision = branch_labels = depends_on = None

OF_A_JOB = sa.text("job_id IS NOT NULL")


def upgrade() -> None:
    """Create everything, with an empty log of certificates. There is nothing before it to go back to."""
    _create_tables()
    op.create_table(
        "backups", sa.Column("made", sa.DateTime(timezone=True), nullable=False), sa.PrimaryKeyConstraint("made", name="pk_backups")
    )
    op.execute("INSERT INTO certificate_log (id, size) VALUES (1, 0)")
    refuse_changes()


def _create_tables() -> None:
    op.create_table(
        "access_keys",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("tenant", sa.String(63), nullable=False),
        sa.Column("principal", sa.String(32), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("secret_sha256", sa.String(64), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_used", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_access_keys"),
    )
    op.create_index("ix_access_keys_tenant_id", "access_keys", ["tenant", "id"], unique=False)
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
    op.create_index("ix_audit_log_tenant_number", "audit_log", ["tenant", "number"], unique=False)
    op.create_index("ix_audit_log_time", "audit_log", ["time"], unique=False)
    op.create_table(
        "audit_log_deletions",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("before", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_audit_log_deletions"),
    )
    op.create_table(
        "announced_data_sets",
        sa.Column("tenant", sa.String(63), nullable=False),
        sa.Column("identity", sa.String(64), nullable=False),
        sa.Column("tag", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "identity", name="pk_announced_data_sets"),
        sa.UniqueConstraint("tag", name="uq_announced_data_sets_tag"),
    )
    op.create_table(
        "announced_plans",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("job_id", sa.String(64), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("tag", sa.String(32), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("statement", sa.Text(), nullable=False),
        sa.Column("head_size", sa.Integer(), nullable=True),
        sa.Column("time_stamps", sa.Integer(), nullable=False),
        sa.Column("cosignatures", sa.Integer(), nullable=False),
        sa.Column("beacon", sa.String(64), nullable=True),
        sa.Column("epsilon", sa.String(64), nullable=True),
        sa.Column("delta", sa.String(64), nullable=True),
        sa.Column("terms", sa.String(100), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_announced_plans"),
        sa.UniqueConstraint("tag", "ordinal", name="uq_announced_plans_tag_ordinal"),
    )
    op.create_index("ix_announced_plans_job_id", "announced_plans", ["job_id"], unique=False)
    op.create_table(
        "certificate_log_heads",
        sa.Column("size", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("checkpoint", sa.Text(), nullable=False),
        sa.Column("time_stamps", sa.JSON(), nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("size", name="pk_certificate_log_heads"),
    )
    op.create_table(
        "certificate_log",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_certificate_log"),
    )
    op.create_table(
        "certificate_log_entries",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("subject", sa.String(80), nullable=False),
        sa.Column("content", sa.String(500), nullable=False),
        sa.Column("leaf", sa.String(64), nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_certificate_log_entries"),
        sa.UniqueConstraint("kind", "subject", name="uq_certificate_log_entries_kind_subject"),
    )
    op.create_index("ix_certificate_log_entries_leaf", "certificate_log_entries", ["leaf"], unique=False)
    op.create_table(
        "certificate_log_nodes",
        sa.Column("level", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("level", "position", name="pk_certificate_log_nodes"),
    )
    op.create_table(
        "data_sets",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("tenant", sa.String(63), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("due", sa.DateTime(timezone=True), nullable=False),
        sa.Column("deleted", sa.DateTime(timezone=True), nullable=True),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.Column("stored", sa.Text(), nullable=True),
        sa.Column("manifest", sa.Text(), nullable=True),
        sa.Column("idempotency_key", sa.String(255), nullable=True),
        sa.Column("request_sha256", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_data_sets"),
        sa.UniqueConstraint("tenant", "idempotency_key", name="uq_data_sets_tenant_idempotency_key"),
    )
    op.create_index("ix_data_sets_tenant_id", "data_sets", ["tenant", "id"], unique=False)
    op.create_table(
        "executors",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("token", sa.String(32), nullable=False),
        sa.Column("beat", sa.Integer(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("renewed", sa.DateTime(timezone=True), nullable=False),
        sa.Column("lease_seconds", sa.Double(), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("lock", sa.String(128), nullable=False),
        sa.Column("device", sa.String(1000), nullable=False),
        sa.Column("hardware", sa.String(255), nullable=False),
        sa.Column("capacity", sa.JSON(), nullable=False),
        sa.Column("job_id", sa.String(64), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_executors"),
    )
    op.create_table(
        "housekeeping",
        sa.Column("name", sa.String(32), nullable=False),
        sa.Column("due", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_housekeeping"),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("tenant", sa.String(63), server_default="default", nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished", sa.DateTime(timezone=True), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("worker_deaths", sa.Integer(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("device", sa.String(16), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("gpu_kind", sa.String(64), nullable=True),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=True),
        sa.Column("machines", sa.Integer(), nullable=False),
        sa.Column("resources", sa.JSON(), nullable=False),
        sa.Column("timeout_seconds", sa.Double(), nullable=True),
        sa.Column("ledger", sa.String(32), nullable=True),
        sa.Column("purpose", sa.String(128), nullable=True),
        sa.Column("spender", sa.String(64), nullable=True),
        sa.Column("awaits", sa.String(64), nullable=True),
        sa.Column("ran_seconds", sa.Double(), nullable=False),
        sa.Column("holder", sa.String(32), nullable=True),
        sa.Column("files_deleted", sa.DateTime(timezone=True), nullable=True),
        sa.Column("events_deleted", sa.DateTime(timezone=True), nullable=True),
        sa.Column("traceparent", sa.String(55), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
    )
    op.create_index("ix_jobs_holder", "jobs", ["holder"], unique=False)
    op.create_index("ix_jobs_state_priority_tenant_id", "jobs", ["state", "priority", "tenant", "id"], unique=False)
    op.create_index("ix_jobs_tenant_id", "jobs", ["tenant", "id"], unique=False)
    op.create_index("ix_jobs_tenant_state_id", "jobs", ["tenant", "state", "id"], unique=False)
    op.create_table(
        "job_turns",
        sa.Column("queue", sa.String(16), nullable=False),
        sa.Column("tenant", sa.String(63), nullable=False),
        sa.Column("served", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("queue", "tenant", name="pk_job_turns"),
    )
    op.create_table(
        "launches",
        sa.Column("job_id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("asked", sa.DateTime(timezone=True), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.String(255), nullable=True),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("due", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_launches_job_id_jobs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", name="pk_launches"),
        sa.UniqueConstraint("name", name="uq_launches_name"),
    )
    op.create_table(
        "ledgers",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("tenant", sa.String(63), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("entries", sa.Integer(), nullable=False),
        sa.Column("head", sa.String(64), nullable=False),
        sa.Column("latest", sa.DateTime(timezone=True), nullable=False),
        sa.Column("next_lapse", sa.DateTime(timezone=True), nullable=True),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.Column("sums", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.String(255), nullable=True),
        sa.Column("request_sha256", sa.String(64), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_ledgers"),
        sa.UniqueConstraint("tenant", "idempotency_key", name="uq_ledgers_tenant_idempotency_key"),
        sa.UniqueConstraint("tenant", "name", name="uq_ledgers_tenant_name"),
    )
    op.create_index("ix_ledgers_tenant_id", "ledgers", ["tenant", "id"], unique=False)
    op.create_table(
        "uploads",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("tenant", sa.String(63), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("due", sa.DateTime(timezone=True), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("format", sa.String(16), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=True),
        sa.Column("contents", sa.Text(), nullable=True),
        sa.Column("idempotency_key", sa.String(255), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_uploads"),
        sa.UniqueConstraint("tenant", "idempotency_key", name="uq_uploads_tenant_idempotency_key"),
    )
    op.create_index("ix_uploads_tenant_id", "uploads", ["tenant", "id"], unique=False)
    op.create_table(
        "certificates",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("job_id", sa.String(64), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("envelope", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_certificates_job_id_jobs"),
        sa.PrimaryKeyConstraint("id", name="pk_certificates"),
        sa.UniqueConstraint("job_id", name="uq_certificates_job_id"),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("tenant", sa.String(63), server_default="default", nullable=False),
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("request_sha256", sa.String(64), nullable=False),
        sa.Column("job_id", sa.String(64), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_idempotency_keys_job_id_jobs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("tenant", "key", name="pk_idempotency_keys"),
    )
    op.create_index("ix_idempotency_keys_job_id", "idempotency_keys", ["job_id"], unique=False)
    op.create_table(
        "job_events",
        sa.Column("job_id", sa.String(64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_job_events_job_id_jobs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "number", name="pk_job_events"),
    )
    op.create_index("ix_job_events_job_id_kind_number", "job_events", ["job_id", "kind", "number"], unique=False)
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
    op.create_index(
        "ix_ledger_entries_job_id", "ledger_entries", ["job_id"], unique=False, sqlite_where=OF_A_JOB, postgresql_where=OF_A_JOB
    )
    op.create_index(
        "ix_ledger_entries_ledger_id_idempotency_key",
        "ledger_entries",
        ["ledger_id", "idempotency_key"],
        unique=True,
        sqlite_where=sa.text("idempotency_key IS NOT NULL"),
        postgresql_where=sa.text("idempotency_key IS NOT NULL"),
    )
    op.create_table(
        "ledger_jobs",
        sa.Column("job_id", sa.String(64), nullable=False),
        sa.Column("ledger_id", sa.String(64), nullable=False),
        sa.Column("reservation_id", sa.String(64), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["ledger_id"], ["ledgers.id"], name="fk_ledger_jobs_ledger_id_ledgers"),
        sa.PrimaryKeyConstraint("job_id", name="pk_ledger_jobs"),
    )
    op.create_index("ix_ledger_jobs_reservation_id", "ledger_jobs", ["reservation_id"], unique=False)
    op.create_table(
        "ledger_lapses",
        sa.Column("ledger_id", sa.String(64), nullable=False),
        sa.Column("reservation_id", sa.String(64), nullable=False),
        sa.Column("look_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["ledger_id"], ["ledgers.id"], name="fk_ledger_lapses_ledger_id_ledgers"),
        sa.PrimaryKeyConstraint("ledger_id", "reservation_id", name="pk_ledger_lapses"),
    )
    op.create_index("ix_ledger_lapses_ledger_id_look_at", "ledger_lapses", ["ledger_id", "look_at"], unique=False)
    op.create_table(
        "ledger_users",
        sa.Column("ledger_id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("sums", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["ledger_id"], ["ledgers.id"], name="fk_ledger_users_ledger_id_ledgers"),
        sa.PrimaryKeyConstraint("ledger_id", "name", name="pk_ledger_users"),
    )
    op.create_table(
        "webhooks",
        sa.Column("job_id", sa.String(64), nullable=False),
        sa.Column("url", sa.String(2000), nullable=False),
        sa.Column("host", sa.String(253), nullable=False),
        sa.Column("secret", sa.String(255), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_webhooks_job_id_jobs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", name="pk_webhooks"),
    )
    op.create_table(
        "webhook_deliveries",
        sa.Column("job_id", sa.String(64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("due", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["webhooks.job_id"], name="fk_webhook_deliveries_job_id_webhooks", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "number", name="pk_webhook_deliveries"),
    )
    op.create_index("ix_webhook_deliveries_due", "webhook_deliveries", ["due"], unique=False)
