r"""Leases of workers; priority, device, time limit and labels of jobs that can be changed; webhooks and what they are still to be told."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

JOBS = sa.table("jobs", sa.column("id", sa.String), sa.column("document", sa.JSON), sa.column("labels", sa.JSON))


def upgrade() -> None:
    """Labels leave the document, which never changes. Jobs that a worker had in hand are nobody's now, and are queued again."""
    op.add_column("jobs", sa.Column("labels", sa.JSON(), nullable=False, server_default="{}"))
    op.add_column("jobs", sa.Column("priority", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("device", sa.String(16), nullable=False, server_default="auto"))
    op.add_column("jobs", sa.Column("timeout_seconds", sa.Double(), nullable=True))
    op.add_column("jobs", sa.Column("ran_seconds", sa.Double(), nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("holder", sa.String(32), nullable=True))
    op.create_index("ix_jobs_holder", "jobs", ["holder"])
    op.create_index("ix_jobs_state_priority_id", "jobs", ["state", "priority", "id"])
    op.execute("UPDATE jobs SET state = 'queued' WHERE state = 'running'")
    op.execute("UPDATE jobs SET state = 'cancelled' WHERE state = 'cancelling'")
    _rewrite(lambda document, labels: (_without(document, "labels"), document.get("labels", labels)))
    op.create_table(
        "executors",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("token", sa.String(32), nullable=False),
        sa.Column("beat", sa.Integer(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("renewed", sa.DateTime(timezone=True), nullable=False),
        sa.Column("lease_seconds", sa.Double(), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("device", sa.String(32), nullable=False),
        sa.Column("hardware", sa.String(255), nullable=False),
        sa.Column("job_id", sa.String(64), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_executors"),
    )
    op.create_table(
        "webhooks",
        sa.Column("job_id", sa.String(64), nullable=False),
        sa.Column("url", sa.String(2000), nullable=False),
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
    op.create_index("ix_webhook_deliveries_due", "webhook_deliveries", ["due"])


def downgrade() -> None:
    """Labels go back into the document; webhooks and what they weren't told yet are lost."""
    for table in ("webhook_deliveries", "webhooks", "executors"):
        op.drop_table(table)
    _rewrite(lambda document, labels: ({**document, "labels": labels} if "spec" in document else document, labels))
    op.drop_index("ix_jobs_state_priority_id", "jobs")
    op.drop_index("ix_jobs_holder", "jobs")
    for column in ("holder", "ran_seconds", "timeout_seconds", "device", "priority", "labels"):
        op.drop_column("jobs", column)


def _rewrite(change: Any) -> None:
    connection = op.get_bind()
    for job_id, document, labels in connection.execute(sa.select(JOBS.c.id, JOBS.c.document, JOBS.c.labels)).all():
        new_document, new_labels = change(document, labels)
        connection.execute(sa.update(JOBS).where(JOBS.c.id == job_id).values(document=new_document, labels=new_labels))


def _without(document: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != name}
