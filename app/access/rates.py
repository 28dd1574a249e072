r"""Rate limits: requests per key, requests without a key per address, and failures to send a valid key per address."""

from __future__ import annotations

import ipaddress
import math
import time
from collections.abc import MutableMapping
from functools import lru_cache
from typing import Any, final

from limits import RateLimitItem, parse
from limits.strategies import FixedWindowRateLimiter

from zetadp.app.access.caller import Caller
from zetadp.app.access.errors import AccessError, KeyNeeded, TooManyRequests
from zetadp.app.access.windows import Windows
from zetadp.app.kit.settings import Settings

SHARED = "rates"
"""The file of the counts of several processes, in the data folder."""
_ONCE_A_MINUTE = parse("1/minute")


@final
class Rates:
    """Counts for all processes of the service that share its data folder; one that is alone counts in its memory."""

    def __init__(self, settings: Settings) -> None:
        self._limiter = FixedWindowRateLimiter(Windows(None if settings.processes == 1 else settings.data_dir / SHARED))
        self._per_key = parse(settings.requests_per_key)
        self._per_address = parse(settings.requests_per_address)
        self._failures = parse(settings.failures_per_address)

    def count(self, caller: Caller | None, address: str) -> None:
        """Count a request. Raises TooManyRequests."""
        if caller is None or caller.key_id is None:
            self._hit(self._per_address, "address", address)
        else:
            self._hit(self._per_key, "key", caller.key_id)

    def failed(self, address: str) -> AccessError:
        """Count a request without its required key, and return the error to raise. A valid key from the same address is never refused."""
        try:
            self._hit(self._failures, "failures", address)
        except TooManyRequests as often:
            return often
        return KeyNeeded()

    def is_first_excess(self, who: str) -> bool:
        """Whether this is the first request over the limit in a minute: a flood of requests must not become a flood of log entries."""
        return self._limiter.hit(_ONCE_A_MINUTE, "excess", who)

    def _hit(self, item: RateLimitItem, kind: str, who: str) -> None:
        if not self._limiter.hit(item, kind, who):
            reset = self._limiter.get_window_stats(item, kind, who).reset_time
            raise TooManyRequests(str(item), max(1, math.ceil(reset - time.time())))


def address_of(scope: MutableMapping[str, Any]) -> str:
    """The address by which a request is counted; for IPv6 its 64-bit network, which one host usually has to itself.

    >>> address_of({"client": ("2001:db8::5", 443)}), address_of({"client": ("192.0.2.1", 443)}), address_of({"client": None})
    ('2001:db8::/64', '192.0.2.1', 'unknown')
    """
    client = scope.get("client")
    return _counted_as(str(client[0])) if client else "unknown"


@lru_cache(maxsize=4096)
def _counted_as(host: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host[:64]
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        return str(mapped) if mapped else str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))
    return str(address)
