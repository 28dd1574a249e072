r"""Time limits of calculations, and whether anybody still waits for them. The caller sets the limit; the engine's loops check it.

The limit is a context variable: it applies only to the thread (or task) that set it, and code that knows nothing about limits
passes it on automatically. Without a limit, a calculation may take any time.

What is limited is processor time, not time on the wall: a busy machine refuses nothing that a quiet one answers.
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
    clock: Callable[[], float]


_LIMIT: ContextVar[_Limit | None] = ContextVar("zetadp_time_limit", default=None)


@contextmanager
def time_limit(
    seconds: float, is_wanted: Callable[[], bool] | None = None, clock: Callable[[], float] = time.thread_time
) -> Generator[None]:
    """Inside this context, ``check`` raises once ``seconds`` of processor time are used. A limit inside another one can only be shorter.

    Args:
      is_wanted: called at every check; once it returns false, the limit counts as reached. None: as in the enclosing limit.
      clock: whose processor time: by default this thread's; a process that computes for one question alone counts all of its own. A
        limit inside another one goes by that one's clock.

    >>> with time_limit(60.0):
    ...     check()
    """
    outer = _LIMIT.get()
    clock = clock if outer is None else outer.clock
    ends = clock() + seconds
    wanted = is_wanted or (_always if outer is None else outer.is_wanted)
    shorter = _Limit(seconds, ends, wanted, clock) if outer is None or ends < outer.ends else outer._replace(is_wanted=wanted)
    token = _LIMIT.set(shorter)
    try:
        yield
    finally:
        _LIMIT.reset(token)


def check() -> None:
    """Every loop that can take longer than a few milliseconds must call this once per iteration; it costs less than a microsecond.

    What a calculation caches must be complete or absent when this raises: it may be called again with more time.

    Raises:
      TimeLimitReached: the caller's time limit is over, or nobody waits for the answer any more.
    """
    limit = _LIMIT.get()
    if limit is not None and (limit.clock() > limit.ends or not limit.is_wanted()):
        raise TimeLimitReached(limit.seconds)


def _always() -> bool:
    return True
