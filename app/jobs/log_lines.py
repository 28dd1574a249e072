r"""The part of a process's log that may be shown. A log is free text of any library, and an error's text may quote a record.

Kept are the lines of a trace that name code, and the types of errors and warnings; their texts, and every other line, are left out and
counted. The log itself stays on the worker's disk, for those who may read the data anyway.
"""

from __future__ import annotations

import re
from typing import final

LONGEST_LINE = 400
MOST_LINES = 1000
"""Of one attempt."""

_WHOLE = re.compile(
    r"Traceback \(most recent call last\):"
    r'|  File "[^"\x00-\x1f]{1,250}", line \d{1,7}, in [\w.<>]{1,120}'
    r"|During handling of the above exception, another exception occurred:"
    r"|The above exception was the direct cause of the following exception:"
    r"|Fatal Python error: [A-Za-z ]{1,60}"
)
_ERROR = re.compile(r"([A-Za-z_][\w.]{0,120}(?:Error|Exception|Interrupt|Exit|Stopped|Refused|Failed|Diverged))(?::.*)?", re.DOTALL)
_WARNING = re.compile(r'([^":\s\x00-\x1f]{1,250}\.py:\d{1,7}): (\w{1,80}Warning): .*', re.DOTALL)


@final
class LogLines:
    """The lines of one attempt that may be shown, in order."""

    def __init__(self) -> None:
        self._left_out = 0
        self._told = 0

    def tell(self, line: str) -> list[str]:
        """What to show now that this line was written."""
        safe = safe_line(line.rstrip("\r\n"))
        if safe is None:
            self._left_out += 1
            return []
        return self._within([*self.end(), safe])

    def end(self) -> list[str]:
        """What is left to show after the last line."""
        count, self._left_out = self._left_out, 0
        return [] if count == 0 else self._within([f"({count} {'line' if count == 1 else 'lines'} left out: free text may quote data)"])

    def _within(self, lines: list[str]) -> list[str]:
        room = MOST_LINES - self._told
        self._told += len(lines)
        return lines[: max(0, room)]


def safe_line(line: str) -> str | None:
    r"""The part of a line that can't hold a data value; None if there is none.

    >>> safe_line('  File "/x/train.py", line 3, in step'), safe_line("ValueError: bad record [0.1, 0.2]"), safe_line("loss 0.123")
    ('  File "/x/train.py", line 3, in step', 'ValueError', None)
    >>> safe_line("/x/conv.py:12: UserWarning: input is [0.1]")
    '/x/conv.py:12: UserWarning'
    """
    if _WHOLE.fullmatch(line):
        return line[:LONGEST_LINE]
    if (error := _ERROR.fullmatch(line)) is not None:
        return error[1]
    if (warning := _WARNING.fullmatch(line)) is not None:
        return f"{warning[1]}: {warning[2]}"
    return None
