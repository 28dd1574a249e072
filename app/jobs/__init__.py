r"""What a job is and what happened to it: stored, queued, charged to a ledger and followed by events. ``app.worker`` runs it."""
