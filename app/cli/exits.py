r"""Exit codes of the command line. A separate module, since ``--help`` prints them and needs nothing else."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes that scripts can rely on."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_FOUND = 4
    CANCELLED = 5
    REFUSED = 6
    INTERRUPTED = 130


EXIT_CODES = (
    "Exit codes: 0 done; 1 the job failed, the certificate is invalid or the service refused; 2 the call or its input is wrong; "
    "3 no service answers; 4 there is no such job or certificate; 5 the job was cancelled; "
    "6 the certificate is valid, and the policy refuses it; 130 Ctrl-C ended a training in this process, and its checkpoint is there."
)
