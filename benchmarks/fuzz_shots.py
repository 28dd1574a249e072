r"""One request as it goes over the wire, and what a fuzzer changes in its bytes."""

from __future__ import annotations

import random
from dataclasses import dataclass

TOKENS = (
    *(
        b"\x00",
        b"\xff\xfe",
        b"1e999",
        b"-1e-400",
        b"NaN",
        b"-0.0",
        b'"\\ud800"',
        b"9" * 400,
        b"[" * 300,
        b'{"a":' * 150,
        b"null",
        b"true",
        b"\xe2\x80\xa8",
    ),
    *(
        b"[]",
        b"{}",
        b'""',
        b"'",
        b"../",
        b"%00",
        b"0x10",
        b'"' + b"a" * 5000 + b'"',
        b"1.7976931348623157e308",
        b"5e-324",
        b"18446744073709551616",
    ),
)
SEGMENTS = (
    "%00",
    "%2e%2e",
    "..",
    "%ff",
    "a" * 3000,
    "%F0%9F%98%80",
    "0",
    "-1",
    "%0d%0aX:1",
    "null",
    "f" * 32,
    "certificate.json",
    "%2F",
    "",
)
HEADERS = (
    *(("Idempotency-Key", value) for value in (b"k", b"\xff\x00\xfe", b"x" * 300, b"", b"' OR 1=1")),
    *(("Last-Event-ID", value) for value in (b"0", b"-1", b"9" * 40, b"\xb2", b"abc")),
    *(
        ("Content-Type", value)
        for value in (b"text/plain", b"application/json; charset=utf-16", b"multipart/form-data", b"application/octet-stream")
    ),
    *(("Authorization", value) for value in (b"Bearer", b"Bearer zdp_1_2", b"Basic YTpi", b"\xff", b"Bearer " + b"a" * 5000)),
    *(("Range", value) for value in (b"bytes=0-", b"bytes=5-1", b"bytes=-99999999999", b"bytes=0-1,3-4", b"lines=1")),
    *(
        ("Accept", b"text/html"),
        ("X-Request-ID", b"\xe9" * 70),
        ("Content-Encoding", b"gzip"),
        ("Expect", b"100-continue"),
        ("Host", b"evil.example"),
    ),
)


@dataclass(frozen=True)
class Shot:
    """One request, as it goes over the wire but for its length."""

    operation: str
    method: str
    target: str
    headers: tuple[tuple[str, bytes], ...]
    body: bytes


def changed(shot: Shot, chance: random.Random) -> Shot:
    """The request with something wrong in its bytes."""
    body, target, headers = bytearray(shot.body), shot.target, list(shot.headers)
    for _ in range(chance.randint(1, 3)):
        kind = chance.random()
        if body and kind < 0.6:
            body = _damaged(body, chance)
        elif kind < 0.8:
            path, _, query = target.partition("?")
            parts = path.split("/")
            if len(parts) > 2 and chance.random() < 0.6:
                parts[chance.randrange(2, len(parts))] = chance.choice(SEGMENTS)
            else:
                query += chance.choice(
                    ("&limit=0", "&limit=9999999999999999999999", "&cursor=%00", "&state=", "&after=-1", "&x=%ff", "&label=a=b=c")
                )
            target = "/".join(parts) + ("?" + query.lstrip("&") if query else "")
        else:
            headers.append(chance.choice(HEADERS))
    return Shot(shot.operation, shot.method, target, tuple(headers), bytes(body))


def _damaged(body: bytearray, chance: random.Random) -> bytearray:
    place, kind = chance.randrange(len(body)), chance.randrange(5)
    if kind == 0:
        return body[:place]
    if kind == 1:
        body[place] ^= 1 << chance.randrange(8)
        return body
    if kind == 2:
        return body[:place] + body[place + chance.randint(1, 20) :]
    if kind == 3:
        return body[:place] + body[place : place + 50] * 2 + body[place + 50 :]
    return body[:place] + bytearray(chance.choice(TOKENS)) + body[place + chance.choice((0, 1, 4)) :]
