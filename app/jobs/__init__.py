r"""Durable training jobs: stored, queued, run by a worker in a child process, followed by events, ended with a certificate."""
