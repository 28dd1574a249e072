r"""Logging: one JSON object per line on stderr, or text on a terminal, with fields; never data values, keys or passwords.

An exception's message is left out, since it may quote a value; its type and its places in the code are logged. Libraries' own lines of
level warning and above have the same form.
"""

from __future__ import annotations

import logging
import re
import sys
import traceback
from types import TracebackType
from typing import Any, Literal

import structlog
from structlog.typing import EventDict, Processor

from zetadp.app.kit.key_text import without_secrets

Format = Literal["auto", "json", "text"]
SERVER = ("uvicorn", "uvicorn.error")
LIBRARIES = ("dbos", "alembic", "sqlalchemy", "asyncio", "concurrent.futures")
DEEPEST_TRACE = 60
"""The most frames that are logged of one exception, the innermost ones."""

_PASSWORD = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s/@:\"'\\]*):[^\s/@\"'\\]+@")
_JSON = structlog.processors.JSONRenderer()


def configure_logs(level: Literal["debug", "info", "warning", "error"], form: Format = "auto") -> None:
    """Set up logging for this process, including the libraries' lines; may be called again."""
    is_text = form == "text" or (form == "auto" and sys.stderr.isatty())
    render: Processor = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()) if is_text else _JSON

    def rendered(logger: object, name: str, event: EventDict) -> str:
        """The log line without the secret of any key or URL in it."""
        line = render(logger, name, event)
        return without_passwords(without_secrets(line if isinstance(line, str) else line.decode()))

    errors = sys.stderr
    before: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        without_texts,
    ]
    structlog.configure(
        processors=[*before, rendered],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        # Who captured the lines when this was called may have closed their file since.
        logger_factory=lambda *_: structlog.WriteLogger(sys.stderr if errors.closed else errors),
    )
    handler = logging.StreamHandler(sys.stderr)
    foreign = [structlog.stdlib.add_logger_name, *before]
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processor=rendered, foreign_pre_chain=foreign))
    for name in (*LIBRARIES, *SERVER):
        library = logging.getLogger(name)
        library.handlers = [] if name == "uvicorn.error" else [handler]  # its lines go up to uvicorn's
        library.propagate = name == "uvicorn.error"
        library.setLevel(logging.WARNING if name in LIBRARIES else level.upper())


def without_passwords(text: str) -> str:
    """The text with the password of every URL in it left out.

    >>> without_passwords("postgresql://zetadp:hunter2@db/zetadp")
    'postgresql://zetadp:...@db/zetadp'
    """
    return _PASSWORD.sub(r"\1:...@", text)


def without_texts(_logger: Any, _name: str, event: EventDict) -> EventDict:
    """The event with its exception reduced to types and places in the code, as ``exception``."""
    given = event.pop("exc_info", None)
    if given is True:
        given = sys.exc_info()
    error = given[1] if isinstance(given, tuple) else given
    if isinstance(error, BaseException):
        event["exception"] = trace(error)
    return event


def trace(error: BaseException) -> str:
    """Types and places of an exception and its causes, the first cause first, without their messages."""
    chain: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and following not in chain:
        chain.append(following)
        following = following.__cause__ or (None if following.__suppress_context__ else following.__context__)
    return "\n".join(line for each in reversed(chain) for line in (*_places(each.__traceback__), _type(each)))


def _places(found: TracebackType | None) -> list[str]:
    frames = traceback.extract_tb(found)[-DEEPEST_TRACE:]
    return [f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}' for frame in frames]


def _type(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}"
