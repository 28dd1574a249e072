r"""Sends one webhook message, within a total time: name, connection, TLS, request and the head of the answer.

Headers, signature and secret are those of Standard Webhooks, so its libraries verify them: ``webhook-signature: v1,`` and the base64
HMAC-SHA256 of ``{webhook-id}.{webhook-timestamp}.{body}``. They also refuse old timestamps, so that nobody can replay an overheard message.
"""

from __future__ import annotations

import asyncio
import hmac
import ssl
import time
from base64 import b64encode
from functools import cache
from hashlib import sha256
from typing import final

import h11

from zetadp.app.jobs.webhooks.destinations import Destination, Destinations
from zetadp.app.jobs.webhooks.secrets import key_of
from zetadp.mechanisms.base import Value
from zetadp.version import VERSION

_AT_ONCE = 65_536
"""Bytes read at once; h11 refuses a head of more than that."""


@final
class Delivery(Value):
    r"""One change of state, ready to send.

    Attributes:
      tenant: whose job it is.
      host: of the URL; it and the tenant limit how many messages are in hand.
      tries: the tries so far, this one included.
      deadline: when this try must be over, in seconds of this process's monotonic clock.
    """

    job_id: str
    number: int
    tenant: str
    host: str
    tries: int
    url: str
    secret: str
    body: str
    deadline: float

    @property
    def message_id(self) -> str:
        """The message's id, the same at every try. It holds no full stop, which delimits what is signed."""
        return f"msg_{self.job_id}_{self.number}"


class NotTaken(Exception):
    """The receiver didn't answer with a 2xx status in time; the text says what happened instead, without anything that it sent."""


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """The signature, which a receiver computes as well and compares. Raises InvalidParameter for a secret of another form."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + b64encode(hmac.new(key_of(secret), signed, sha256).digest()).decode()


def send(destinations: Destinations, delivery: Delivery) -> None:
    r"""One try, which is over at the delivery's deadline. Redirects aren't followed: they could lead anywhere.

    Only looking up a name can take longer, since the system's resolver can't be interrupted; nothing is sent after it then.

    Raises:
      NotTaken: no 2xx status came in time.
      DestinationRefused, InvalidParameter: as ``Destinations.resolved`` and ``signature``.
    """
    destination = destinations.resolved(delivery.url)
    left = delivery.deadline - time.monotonic()
    if left <= 0.0:
        raise NotTaken("finding its host's address took too long")
    try:
        status = asyncio.run(_status(destination, delivery, left))
    except TimeoutError:
        raise NotTaken("it didn't answer in time") from None
    except (OSError, h11.ProtocolError) as error:
        raise NotTaken(type(error).__name__) from None
    if not 200 <= status < 300:
        raise NotTaken(f"HTTP status {status}")


async def _status(destination: Destination, delivery: Delivery, seconds: float) -> int:
    """The answer's status; its body isn't read. Raises TimeoutError after so many seconds, whatever the receiver does meanwhile."""
    body, timestamp = delivery.body.encode(), int(time.time())
    headers = [
        ("host", destination.host_header),
        ("content-type", "application/json"),
        ("content-length", str(len(body))),
        ("connection", "close"),
        ("user-agent", f"zetadp/{VERSION}"),
        ("webhook-id", delivery.message_id),
        ("webhook-timestamp", str(timestamp)),
        ("webhook-signature", signature(delivery.secret, delivery.message_id, timestamp, body)),
    ]
    http = h11.Connection(h11.CLIENT)
    request = http.send(h11.Request(method="POST", target=destination.target, headers=headers))
    assert request is not None  # only a closed connection has nothing to send
    content = http.send(h11.Data(body)) or b""
    async with asyncio.timeout(seconds):
        # It connects to the checked address, whatever the name resolves to by now; the certificate must be valid for the name.
        secured = {"ssl": _authorities(), "server_hostname": destination.host} if destination.is_https else {}
        reader, writer = await asyncio.open_connection(destination.address, destination.port, **secured)
        try:
            writer.write(request + content)
            while not isinstance(event := http.next_event(), h11.Response):
                if event is h11.NEED_DATA:
                    http.receive_data(await reader.read(_AT_ONCE))
            return event.status_code
        finally:
            writer.transport.abort()


@cache
def _authorities() -> ssl.SSLContext:
    """The certificate authorities that this machine trusts."""
    return ssl.create_default_context()
