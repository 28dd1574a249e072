r"""What is deleted after its time: when a job's files were, what left the audit log, and when the next round is due."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

REFUSAL = "the audit log is append-only"
KEPT = "the audit log is append-only: an entry goes after 30 days at the earliest, once audit_log_deletions says so"
NEVER = "what left the audit log stays on record"
AGE_SQLITE = "strftime('%Y-%m-%d %H:%M:%S', 'now', '-30 days')"
COVERED = "EXISTS (SELECT 1 FROM audit_log_deletions WHERE OLD.time < audit_log_deletions.before)"


def upgrade() -> None:
    """The audit log still refuses every change; an entry that is old enough may go, and that it went stays."""
    for column in ("files_deleted", "events_deleted"):
        op.add_column("jobs", sa.Column(column, sa.DateTime(timezone=True), nullable=True))
    op.create_table(
        "audit_log_deletions",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("before", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_audit_log_deletions"),
    )
    op.create_index("ix_audit_log_time", "audit_log", ["time"])
    op.create_table(
        "housekeeping",
        sa.Column("name", sa.String(32), nullable=False),
        sa.Column("due", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_housekeeping"),
    )
    if op.get_bind().dialect.name == "sqlite":
        op.execute("DROP TRIGGER audit_log_no_delete")
        op.execute(
            f"CREATE TRIGGER audit_log_no_delete BEFORE DELETE ON audit_log WHEN OLD.time >= {AGE_SQLITE} OR NOT {COVERED} "
            f"BEGIN SELECT RAISE(ABORT, '{KEPT}'); END"
        )
        for change in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER audit_log_deletions_no_{change.lower()} BEFORE {change} ON audit_log_deletions "
                f"BEGIN SELECT RAISE(ABORT, '{NEVER}'); END"
            )
        return
    op.execute("DROP TRIGGER audit_log_grows_only ON audit_log")
    op.execute(
        "CREATE TRIGGER audit_log_grows_only BEFORE UPDATE OR TRUNCATE ON audit_log FOR EACH STATEMENT EXECUTE FUNCTION audit_log_refuse()"
    )
    op.execute(
        "CREATE FUNCTION audit_log_keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF OLD.time >= now() - interval '30 days' OR NOT {COVERED} THEN RAISE EXCEPTION '{KEPT}'; END IF; RETURN OLD; END $$"
    )
    op.execute("CREATE TRIGGER audit_log_keeps BEFORE DELETE ON audit_log FOR EACH ROW EXECUTE FUNCTION audit_log_keep()")
    op.execute(
        f"CREATE FUNCTION audit_log_deletions_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION '{NEVER}'; END $$"
    )
    op.execute(
        "CREATE TRIGGER audit_log_deletions_grow_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log_deletions "
        "FOR EACH STATEMENT EXECUTE FUNCTION audit_log_deletions_refuse()"
    )


def downgrade() -> None:
    """The audit log refuses every deletion again; what is gone stays gone."""
    op.drop_table("housekeeping")
    if op.get_bind().dialect.name == "sqlite":
        op.execute("DROP TRIGGER audit_log_no_delete")
        op.execute(f"CREATE TRIGGER audit_log_no_delete BEFORE DELETE ON audit_log BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END")
    else:
        op.execute("DROP TRIGGER audit_log_keeps ON audit_log")
        op.execute("DROP FUNCTION audit_log_keep()")
        op.execute("DROP TRIGGER audit_log_grows_only ON audit_log")
        op.execute(
            "CREATE TRIGGER audit_log_grows_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log "
            "FOR EACH STATEMENT EXECUTE FUNCTION audit_log_refuse()"
        )
    op.drop_index("ix_audit_log_time", "audit_log")
    op.drop_table("audit_log_deletions")
    if op.get_bind().dialect.name != "sqlite":
        op.execute("DROP FUNCTION audit_log_deletions_refuse()")
    for column in ("events_deleted", "files_deleted"):
        op.drop_column("jobs", column)
