r"""The outcome of a verification: one line for each check, and a verdict that says exactly what it means."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, final

from zetadp.mechanisms.base import Value


class Status(StrEnum):
    """The outcome of one check; ``not_checked`` is neither good nor bad news."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_CHECKED = "not_checked"


@final
class Check(Value):
    """One check, its outcome, and why."""

    name: str
    status: Status
    detail: str


@final
class Rule(Value):
    r"""One demand of a policy.

    Attributes:
      name: the policy's field.
      required, found: in words.
      is_met: whether it is met; what couldn't be found out isn't.
    """

    name: str
    required: str
    found: str
    is_met: bool


@final
class PolicyVerdict(Value):
    r"""What a policy says of a certificate.

    Attributes:
      policy: its name.
      accepted: the certificate is valid and every demand is met.
      rules: in the policy's order; empty where the certificate isn't valid, since nothing that it says counts then.
    """

    policy: str
    accepted: bool
    rules: tuple[Rule, ...]

    @property
    def failing(self) -> tuple[str, ...]:
        """What isn't met, a line each."""
        return tuple(f"{rule.name}: {rule.required}, got {rule.found}" for rule in self.rules if not rule.is_met)


@final
class VerificationReport(Value):
    r"""The outcome of a verification.

    Attributes:
      verdict: ``valid`` if no check failed; ``revoked`` if the only failure is that its key was revoked and it isn't proven to be older.
      guarantee: of a ``valid`` one: ``stated``, or ``none`` if it states that there is no privacy guarantee at all. Null for all others:
        don't rely on anything that they state.
      meaning: what the verdict says and what it doesn't; names every check that wasn't made.
      checks: in the order they were made; a check that rests on a failed one isn't made.
      policy: what the reader's policy says of it; null without a policy.
    """

    verdict: Literal["valid", "invalid", "revoked"]
    guarantee: Literal["stated", "none"] | None
    meaning: str
    checks: tuple[Check, ...]
    policy: PolicyVerdict | None = None


def passed(name: str, detail: str) -> Check:
    """A check that passed."""
    return Check(name=name, status=Status.PASSED, detail=detail)


def failed(name: str, detail: str) -> Check:
    """A check that failed."""
    return Check(name=name, status=Status.FAILED, detail=detail)


def not_checked(name: str, detail: str) -> Check:
    """A check that wasn't or couldn't be made."""
    return Check(name=name, status=Status.NOT_CHECKED, detail=detail)


def outcome(name: str, problems: list[str], good: str) -> Check:
    """Failed with every problem named, or passed."""
    return failed(name, "; ".join(problems)) if problems else passed(name, good)
