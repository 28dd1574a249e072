r"""Triggers by which the database itself refuses to change what only grows. Part of the first migration."""

from __future__ import annotations

from alembic import op

GROW_ONLY = {
    "ledger_entries": "the entries of a ledger are append-only",
    "certificate_log_entries": "the log of certificates is append-only",
    "certificate_log_nodes": "the log of certificates is append-only",
    "audit_log_deletions": "what left the audit log stays on record",
}
"""By table, what the database says to whoever changes or deletes a row."""
AUDIT_LOG = "the audit log is append-only"
KEPT = f"{AUDIT_LOG}: an entry goes after 30 days at the earliest, once audit_log_deletions says so"
COVERED = "EXISTS (SELECT 1 FROM audit_log_deletions WHERE OLD.time < audit_log_deletions.before)"


def refuse_changes() -> None:
    """Make the triggers, in the tables that are there."""
    if op.get_bind().dialect.name == "sqlite":
        _refuse_in_sqlite()
    else:
        _refuse_in_postgresql()


def _refuse_in_sqlite() -> None:
    for table, refusal in GROW_ONLY.items():
        for change in ("UPDATE", "DELETE"):
            op.execute(f"CREATE TRIGGER {table}_no_{change.lower()} BEFORE {change} ON {table} BEGIN SELECT RAISE(ABORT, '{refusal}'); END")
    op.execute(f"CREATE TRIGGER audit_log_no_update BEFORE UPDATE ON audit_log BEGIN SELECT RAISE(ABORT, '{AUDIT_LOG}'); END")
    age = "strftime('%Y-%m-%d %H:%M:%S', 'now', '-30 days')"
    op.execute(
        f"CREATE TRIGGER audit_log_no_delete BEFORE DELETE ON audit_log WHEN OLD.time >= {age} OR NOT {COVERED} "
        f"BEGIN SELECT RAISE(ABORT, '{KEPT}'); END"
    )


def _refuse_in_postgresql() -> None:
    for table, refusal in GROW_ONLY.items():
        _refuse(table, "UPDATE OR DELETE OR TRUNCATE", refusal)
    _refuse("audit_log", "UPDATE OR TRUNCATE", AUDIT_LOG)
    op.execute(
        "CREATE FUNCTION audit_log_keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF OLD.time >= now() - interval '30 days' OR NOT {COVERED} THEN RAISE EXCEPTION '{KEPT}'; END IF; RETURN OLD; END $$"
    )
    op.execute("CREATE TRIGGER audit_log_keeps BEFORE DELETE ON audit_log FOR EACH ROW EXECUTE FUNCTION audit_log_keep()")


def _refuse(table: str, changes: str, refusal: str) -> None:
    op.execute(f"CREATE FUNCTION {table}_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION '{refusal}'; END $$")
    op.execute(f"CREATE TRIGGER {table}_grow_only BEFORE {changes} ON {table} FOR EACH STATEMENT EXECUTE FUNCTION {table}_refuse()")
