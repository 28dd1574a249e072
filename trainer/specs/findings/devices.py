r"""What a self-test of a device found. Free of torch."""

from __future__ import annotations

from typing import final

from zetadp.mechanisms.base import NonNegative, Value


@final
class Check(Value):
    """One comparison: what, whether it came out as it must (None: it can't here, or nothing must), and what was found."""

    name: str
    passed: bool | None
    found: str


@final
class SelfTest(Value):
    r"""What a device computes.

    Attributes:
      device: its name.
      seconds: what some computations take: processor time on a processor, by the clock on an accelerator.
    """

    device: str
    checks: tuple[Check, ...]
    seconds: dict[str, NonNegative]
