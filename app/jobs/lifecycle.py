r"""Tying the jobs to an application: what its handlers need is made at start and closed at the end."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from fastapi import FastAPI, Request

from app.database import Database
from app.jobs.queue import JobQueue
from app.jobs.service import JobService
from app.settings import Settings


@contextmanager
def attached(app: FastAPI, settings: Settings) -> Generator[None]:
    """For the application's lifespan: brings the tables up to date and sets ``settings``, ``database`` and ``queue`` of ``app.state``."""
    database = Database(settings)
    queue = JobQueue(settings)
    app.state.settings, app.state.database, app.state.queue = settings, database, queue
    try:
        database.migrate()
        yield
    finally:
        queue.close()
        database.close()


def job_service(request: Request) -> JobService:
    """The jobs of the application that serves this request."""
    state = request.app.state
    return JobService(state.settings, state.database, state.queue)
