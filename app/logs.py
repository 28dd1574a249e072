r"""Logging: one JSON object a line on stderr, with fields; never data values, keys or passwords."""

from __future__ import annotations

import logging
import sys
from typing import Literal

import structlog
from structlog.typing import EventDict

from app.access.text import without_secrets

_RENDER = structlog.processors.JSONRenderer()


def _rendered(logger: object, name: str, event: EventDict) -> str:
    """The line, without the secret of any key that came into it, whichever way."""
    line = _RENDER(logger, name, event)
    return without_secrets(line if isinstance(line, str) else line.decode())


def configure_logs(level: Literal["debug", "info", "warning", "error"]) -> None:
    """Set up logging for this process; also the queue library's own lines (warnings and above) come out in the same form."""
    before = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*before, _rendered],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processor=_rendered, foreign_pre_chain=before))
    library = logging.getLogger("dbos")  # it adds a handler of its own unless it finds one
    library.handlers = [handler]
    library.propagate = False
    library.setLevel(logging.WARNING)
