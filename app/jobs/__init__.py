r"""Durable jobs (trainings and long calculations): stored, queued, run by a worker in a child process, and followed by events."""
