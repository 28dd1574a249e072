r"""Each event is accounted for once a process, and the code is read once: the same few certificates are verified in hundreds of tests, and
nearly all of the time of a verification goes into what depends on the event or on the code alone."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest

from zetadp.accountants import ACCOUNTANTS, Event, PrivacyProfile, cross_check, deadline
from zetadp.app.certificates.issuing import issue
from zetadp.app.certificates.signing.digests import code_manifest
from zetadp.app.certificates.verification import files
from zetadp.mechanisms import NumericalFloor, TimeLimitReached, UnsupportedEvent

PROFILES = 48
"""Kept for each accountant: their grids take megabytes."""
POINTS = 4096
"""Kept for each profile and for the recomputation."""
REFUSALS = (NumericalFloor, UnsupportedEvent, TimeLimitReached)


def _remembered(answer: Callable[..., Any], most: int) -> Callable[..., Any]:
    """The same function, which computes each answer or refusal once. What took too long under a limit may still be asked without one."""
    kept: OrderedDict[tuple[object, ...], tuple[object, Exception | None]] = OrderedDict()

    def asked(*question: object) -> object:
        is_limited = deadline._LIMIT.get() is not None
        found, refusal = kept.get(question, (None, None))
        if question not in kept or (isinstance(refusal, TimeLimitReached) and not is_limited):
            try:
                found, refusal = answer(*question), None
            except REFUSALS as raised:
                found, refusal = None, raised.with_traceback(None)  # a traceback would keep the grids of its frames
            kept[question] = found, refusal
            if len(kept) > most:
                kept.popitem(last=False)
        if refusal is not None:
            raise refusal
        return found

    return asked


def _profile_that_remembers(profile: Callable[[Any, Event], PrivacyProfile]) -> Callable[[Any, Event], PrivacyProfile]:
    def remembering(accountant: Any, event: Event) -> PrivacyProfile:
        found = profile(accountant, event)
        for question in ("delta", "epsilon", "rdp"):
            setattr(found, question, _remembered(getattr(found, question), POINTS))
        return found

    return _remembered(remembering, PROFILES)


_PROFILES = {type(accountant): _profile_that_remembers(type(accountant).profile) for accountant in ACCOUNTANTS}
_RECOMPUTED = {
    "recomputed_epsilon": _remembered(cross_check.recomputed_epsilon, POINTS),
    "recomputed_log_deltas": _remembered(lambda event, of=cross_check.recomputed_log_deltas: _remembered(of(event), POINTS), PROFILES),
}

_MANIFEST = cache(code_manifest)


@contextmanager
def accounted_once() -> Generator[None]:
    """While it lasts, no accountant and no recomputation is asked the same thing twice, and the code isn't read again."""
    with pytest.MonkeyPatch.context() as patch:
        for kind, profile in _PROFILES.items():
            patch.setattr(kind, "profile", profile)
        for name, recomputed in _RECOMPUTED.items():
            patch.setattr(cross_check, name, recomputed)
        for module in (issue, files):
            patch.setattr(module, "code_manifest", _MANIFEST)
        yield
