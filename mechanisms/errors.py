r"""The errors of the privacy layers. They carry data and know nothing about HTTP; ``app/kit/problems.py`` maps them to status codes.

PrivacyError
├── InvalidParameter      a value outside its range
├── UnsupportedEvent      an accountant that has no bound for this event, with the reason
├── IncompatibleEvent     parts of one event that disagree about neighbours or units
├── CalibrationFailed     no scale in the bracket meets the target
├── NumericalFloor        a request beyond what the arithmetic can answer
├── ContradictoryBounds   two proved bounds that exclude each other: a defect of this program
├── TimeLimitReached      a calculation that takes longer than its caller allows
│   └── CostTooHigh       one that isn't begun, since it would take much longer
└── BudgetExceeded        a spend that exceeds what is left of a budget
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class PrivacyError(Exception):
    """Base of every error that a user of the privacy layers can cause or must know about."""


class InvalidParameter(PrivacyError, ValueError):
    """A parameter outside its range; also a ``ValueError``, so that Pydantic reports its field."""

    def __init__(self, field: str, expected: str, got: object) -> None:
        self.field = field
        self.expected = expected
        self.got = got
        super().__init__(f"{field} must be {expected}, got {got!r}")


class UnsupportedEvent(PrivacyError):
    """The accountant can't bound the event."""

    def __init__(self, accountant: str, reason: str) -> None:
        self.accountant = accountant
        self.reason = reason
        super().__init__(f"accountant {accountant} can't bound this event: {reason}")


class IncompatibleEvent(PrivacyError, ValueError):
    """Parts of one event disagree about what a neighbour or a protected unit is."""

    def __init__(self, what: str, first: str, second: str) -> None:
        self.what = what
        self.values = (first, second)
        super().__init__(f"all parts of an event must have the same {what}, got {first!r} and {second!r}")


class CalibrationFailed(PrivacyError):
    """No noise in the searched bracket meets the target."""

    def __init__(self, reason: str, bracket: tuple[float, float]) -> None:
        self.reason = reason
        self.bracket = bracket
        super().__init__(f"{reason} (searched scales {bracket[0]:.3g} to {bracket[1]:.3g})")


class NumericalFloor(PrivacyError):
    """The request is beyond what this route can answer reliably."""

    def __init__(self, quantity: str, requested: float, floor: float, hint: str) -> None:
        self.quantity = quantity
        self.requested = requested
        self.floor = floor
        self.hint = hint
        super().__init__(f"{quantity} = {requested!r} is beyond this route's floor of {floor!r}: {hint}")


class ContradictoryBounds(PrivacyError):
    """Two proved bounds of the same number exclude each other: one of them is wrong, and nothing tells which, so nothing is answered."""

    def __init__(self, quantity: str, lower: float, upper: float) -> None:
        self.quantity = quantity
        self.bounds = (lower, upper)
        super().__init__(
            f"a defect of this program: {quantity} was proved to be at least {lower!r} and at most {upper!r}; please report it"
        )


class TimeLimitReached(PrivacyError):
    """The calculation would take longer than its caller allows. The request itself is valid: with more time it has an answer."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(f"the calculation takes longer than the limit of {seconds:g} s")


_OTHER = {"epsilon": "delta", "delta": "epsilon"}


class CheaperBound(NamedTuple):
    """An upper bound that costs little, in place of an answer that costs too much: of ``quantity`` where the other of the two is ``at``."""

    quantity: Literal["epsilon", "delta"]
    at: float | str
    upper: float
    accountant: str


class CostTooHigh(TimeLimitReached):
    """The calculation isn't begun: by a cautious prediction it would take several times what its caller allows.

    Attributes:
      predicted_seconds: of processor time, hardly ever more than what it would take.
      cheaper: what else is known of what was asked; empty if nothing is.
    """

    def __init__(self, seconds: float, predicted_seconds: float, cheaper: tuple[CheaperBound, ...] = ()) -> None:
        self.seconds = seconds
        self.predicted_seconds = predicted_seconds
        self.cheaper = cheaper
        known = "".join(
            f"; accountant {bound.accountant} gives {bound.quantity} <= {bound.upper!r} at {_OTHER[bound.quantity]} = {bound.at!r}"
            for bound in cheaper[:1]
        )
        expected = f"the calculation would take about {predicted_seconds:.2g} s of processor time or more"
        # Past the constructor of its base, whose words are about a calculation that was begun.
        PrivacyError.__init__(self, f"{expected}; the limit is {seconds:g} s{known}")


class BudgetExceeded(PrivacyError):
    """A spend that exceeds what is left of a budget. Nothing was spent, and a smaller spend may fit."""

    def __init__(self, quantity: str, requested: float, remaining: float) -> None:
        self.quantity = quantity
        self.requested = requested
        self.remaining = remaining
        super().__init__(f"the spend needs {quantity} = {requested!r}, but only {remaining!r} of the budget remains")
