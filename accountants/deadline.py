r"""Time limits of calculations, and whether anybody still waits for them. The caller sets the limit; the engine's loops check it.

The limit is a context variable: it applies only to the thread (or task) that set it, and code that knows nothing about limits
passes it on automatically. Without a limit, a calculation may take any time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, final

from zetadp.mechanisms.errors import TimeLimitReached


@final
class _Limit(NamedTuple):
    seconds: float
    ends: float
    is_wanted: Callable[[], bool]


_LIMIT: ContextVar[_Limit | None] = ContextVar("zetadp_time_limit", default=None)


@contextmanager
def time_limit(seconds: float, is_wanted: Callable[[], bool] | None = None) -> Generator[None]:
    """Inside this context, ``check`` raises once ``seconds`` have passed. A limit inside another one can only be shorter.

    Args:
      is_wanted: called at every check; once it returns false, the limit counts as reached. None: as in the enclosing limit.

    >>> with time_limit(60.0):
    ...     check()
    """
    ends = time.monotonic() + seconds
    outer = _LIMIT.get()
    wanted = is_wanted or (_always if outer is None else outer.is_wanted)
    shorter = _Limit(seconds, ends, wanted) if outer is None or ends < outer.ends else outer._replace(is_wanted=wanted)
    token = _LIMIT.set(shorter)
    try:
        yield
    finally:
        _LIMIT.reset(token)


def check() -> None:
    """Every loop that can take longer than a few milliseconds must call this once per iteration; it costs about 0.1 us.

    What a calculation caches must be complete or absent when this raises: it may be called again with more time.

    Raises:
      TimeLimitReached: the caller's time limit is over, or nobody waits for the answer any more.
    """
    limit = _LIMIT.get()
    if limit is not None and (time.monotonic() > limit.ends or not limit.is_wanted()):
        raise TimeLimitReached(limit.seconds)


def _always() -> bool:
    return True
