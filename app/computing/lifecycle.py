r"""Attaches calculating processes to an application."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from zetadp.app.computing.desk import Desk
from zetadp.app.computing.pool import Pool
from zetadp.app.kit.settings import Settings


@asynccontextmanager
async def attached(app: FastAPI, settings: Settings) -> AsyncGenerator[None]:
    """For the application's lifespan: sets ``desk`` of ``app.state``, unless it calculates itself."""
    if settings.calculating_processes == 0:
        yield
        return
    pool = Pool(settings)
    async with pool.running():
        app.state.desk = Desk(settings, pool)
        yield
