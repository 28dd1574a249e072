r"""Logging: one JSON object a line on stderr, with fields; never data values, keys or passwords."""

from __future__ import annotations

import logging
import sys
from typing import Literal

import structlog


def configure_logs(level: Literal["debug", "info", "warning", "error"]) -> None:
    """Set up logging for this process; also the queue library's own lines (warnings and above) come out in the same form."""
    before = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*before, structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processor=structlog.processors.JSONRenderer(), foreign_pre_chain=before))
    library = logging.getLogger("dbos")  # it adds a handler of its own unless it finds one
    library.handlers = [handler]
    library.propagate = False
    library.setLevel(logging.WARNING)
