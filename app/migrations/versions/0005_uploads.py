r"""Uploaded files and the data sets of tenants."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables. Files lie beside the database, in the data folder."""
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
    op.create_index("ix_uploads_tenant_id", "uploads", ["tenant", "id"])
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
    op.create_index("ix_data_sets_tenant_id", "data_sets", ["tenant", "id"])


def downgrade() -> None:
    """Drop the tables; the files stay where they are."""
    for table in ("data_sets", "uploads"):
        op.drop_table(table)
