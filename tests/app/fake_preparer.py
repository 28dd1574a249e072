r"""A stand-in for the preparing process, of the same protocol: standard library only, so it starts at once.

It passes the request on to the process that started it (``preparing_harness.preparing_here``), and that process's answer back.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, name: bytes) -> int:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return 4
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(name)
        connection.sendall(sys.stdin.buffer.read())
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as answer:
            sys.stdout.buffer.write(answer.read())
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), bytes.fromhex(sys.argv[2])))
