r"""Where webhooks may go. URLs come from users, and the service runs inside somebody's network: it must not become a way into that network.

By default only https to addresses on the internet. Hosts that the operator names may be private and without TLS. A service that itself
listens only on loopback, where all of its clients are on this machine, may also call this machine.
"""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from typing import final
from urllib.parse import SplitResult, urlsplit

from zetadp.app.jobs.webhooks.addresses import is_global
from zetadp.app.kit.settings import Settings
from zetadp.mechanisms.errors import InvalidParameter

FIELD = "webhook.url"
LONGEST_HOST = 253
"""Characters of a name in the DNS."""


class DestinationRefused(Exception):
    """The host's name resolves to an address that webhooks may not go to, or to none."""


@final
@dataclass(frozen=True)
class Destination:
    """A parsed URL: ``address`` is where to connect, ``host`` the name in the certificate and the request."""

    is_https: bool
    host: str
    port: int
    target: str
    address: str

    @property
    def host_header(self) -> str:
        """What the request's ``Host`` says."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == (443 if self.is_https else 80) else f"{name}:{self.port}"


@final
class Destinations:
    """The destinations that the operator's settings admit."""

    def __init__(self, settings: Settings) -> None:
        self._named = frozenset(name.strip().lower() for name in settings.webhook_hosts.split(",") if name.strip())
        self._own_machine = _is_loopback(settings.host)

    def check(self, url: str) -> None:
        """Checks the URL as far as possible without resolving its name. Raises InvalidParameter."""
        parts, host = _parts(url)
        if self._is_exempt(host):
            return
        if parts.scheme != "https":
            raise InvalidParameter(FIELD, "https, except to hosts in ZETADP_WEBHOOK_HOSTS", f"{parts.scheme}://{host}")
        if _is_address(host) and not is_global(host):
            raise InvalidParameter(FIELD, "an address on the internet, or a host in ZETADP_WEBHOOK_HOSTS", host)

    def resolved(self, url: str) -> Destination:
        """The destination, with its name resolved and the address checked: connect to that address, don't resolve the name again.

        Raises:
          InvalidParameter: as ``check``; the settings may have changed.
          DestinationRefused: the name resolves to a private address, or to none.
        """
        self.check(url)
        parts, host = _parts(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise DestinationRefused("its host has no address") from None
        addresses = [str(entry[4][0]) for entry in found]
        if not self._is_exempt(host) and not all(is_global(address) for address in addresses):
            raise DestinationRefused("its host has a private address")
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return Destination(is_https=parts.scheme == "https", host=host, port=port, target=target, address=addresses[0])

    def _is_exempt(self, host: str) -> bool:
        return host in self._named or (self._own_machine and _is_loopback(host))


def host_of(url: str) -> str:
    """The host in a URL, in small letters. Raises InvalidParameter."""
    return _parts(url)[1]


def _parts(url: str) -> tuple[SplitResult, str]:
    try:
        parts = urlsplit(url)
        host, _ = (parts.hostname or "").lower(), parts.port
    except ValueError:
        raise InvalidParameter(FIELD, "a URL", url) from None
    if parts.scheme not in ("http", "https") or not host or parts.username is not None or parts.password is not None or parts.fragment:
        raise InvalidParameter(FIELD, "an http or https URL with a host, without user, password or fragment", url)
    if len(host) > LONGEST_HOST:
        raise InvalidParameter(FIELD, f"a host of at most {LONGEST_HOST} characters", f"one of {len(host)}")
    return parts, host


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)
