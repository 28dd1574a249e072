r"""Why a calculation isn't answered now. The same request may be answered soon, and each error says when to send it again."""

from __future__ import annotations

from zetadp.app.kit.errors import ProblemType, TooMuch, Unavailable


class CalculatorsBusy(Unavailable):
    """More is asked than can be calculated in time, or the processes that calculate take too long to start."""

    problem = ProblemType(503, "calculators-busy", "All calculating processes are busy, or starting.")

    def __init__(self, waiting: int, waited: float) -> None:
        super().__init__(f"none was free within {waited:g} s, and {waiting} others are waiting; send it again later, or as a job")


class MachineBusy(Unavailable):
    """A calculation that has begun gets too little processor time."""

    problem = ProblemType(503, "machine-busy", "The machine has too little time for the calculation.")

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the calculation has not had its share of processor time within {seconds:g} s; send it again later, or as a job")


class CalculatorLost(Unavailable):
    """The process that calculated ended before it had an answer."""

    problem = ProblemType(503, "calculator-lost", "The calculation ended without an answer.")

    def __init__(self) -> None:
        super().__init__("the process that calculated has ended; another one has taken its place")


class TooManyCalculations(TooMuch):
    """One address or key asks for more at once than it may."""

    problem = ProblemType(429, "too-many-calculations", "Too many calculations at once.")

    def __init__(self, most: int) -> None:
        super().__init__(f"expected at most {most} unanswered calculations of one address or key at a time")
