r"""The service: HTTP, database, queue, certificates. It stores events, admits them, runs specs and signs what was proved."""
