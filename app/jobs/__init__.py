r"""Durable jobs, trainings and long calculations: stored, queued, done by a worker in a child process, followed by events."""
