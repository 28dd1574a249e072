r"""The application in one of several processes that share a port: each makes its own."""

from __future__ import annotations

import multiprocessing
import signal

from fastapi import FastAPI

from zetadp.app.kit.logs import configure_logs
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app
from zetadp.trainer.parent import die_with_parent


def application() -> FastAPI:
    """Made from the environment, for a process that ends with the one that started it."""
    settings = Settings()
    configure_logs(settings.log_level, settings.log_format)
    if (parent := multiprocessing.parent_process()) is not None and parent.pid is not None:
        die_with_parent(parent.pid, signal.SIGTERM)
    return create_app(settings)
