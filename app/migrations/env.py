r"""Run by alembic: applies the migrations on the connection (and in the transaction) that ``Database.migrate`` hands over."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection

from zetadp.app.migrations.models import Base


def run() -> None:
    """Apply what is missing."""
    connection = context.config.attributes["connection"]
    assert isinstance(connection, Connection)  # Database.migrate is the only caller
    context.configure(connection=connection, target_metadata=Base.metadata, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()


if __name__ == "env_py":  # the name alembic gives this file when it runs it; an import alone changes nothing
    run()
