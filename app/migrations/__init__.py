r"""The database's history, by alembic; ``Database.migrate`` applies it."""
