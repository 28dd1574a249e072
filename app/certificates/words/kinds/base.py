r"""What every kind of training tells the reader of its certificate: what was done, what of it is covered, and what that rests on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, final

from zetadp.app.certificates.facts import wording
from zetadp.app.certificates.facts.wording import ArithmeticName
from zetadp.mechanisms import AnyMechanism
from zetadp.trainer.specs.report import HeldOut, Selected


@final
@dataclass(frozen=True)
class Setting:
    r"""What the sentences depend on for every kind of training.

    Attributes:
      mechanisms: those that anything is claimed about.
      unit: of privacy.
      records_per_unit: None if a unit is one row.
      guaranteed: whether anything is certified.
      given_weights: SHA-256 of weights that training started from.
      averaged: whether the model, or that of a part, is a running mean of the parameters over the steps.
      uploaded: whether a user of the service made the data set.
      is_declared: whether the number of units was declared, not counted.
    """

    mechanisms: tuple[AnyMechanism, ...]
    unit: str
    records_per_unit: int | None
    held_out: HeldOut
    precision: Literal["float32", "bfloat16"]
    guaranteed: bool
    given_weights: tuple[str, ...] = ()
    averaged: bool = False
    uploaded: bool = False
    is_declared: bool = False

    def averages(self, model: str = "the model") -> str:
        """What a running mean of the parameters rests on, in words."""
        free = ", computed from what was released at no further cost in privacy" if self.guaranteed else ""
        return f"{model} is a running mean of the parameters over the steps{free}"

    def named(self, words: str) -> str:
        """The words with the unit's name filled in."""
        return words.replace("{unit}", self.unit)


@final
@dataclass(frozen=True)
class History:
    r"""How the run went.

    Attributes:
      released: steps.
      test_records: held out.
      restarts, checkpoints: the words about them; empty for a part of a comparison.
      canaries: made-up records that took part.
      selected: what came out of a private selection; None of anything else.
    """

    released: int
    test_records: int
    restarts: str = ""
    checkpoints: str = ""
    canaries: int = 0
    selected: Selected | None = None


class Kind(ABC):
    """One kind of training, with the plan of one run of it."""

    custody: ClassVar[str] = ""
    """What the service was trusted with in this run, if the algorithm's own words leave that open."""
    protected: ClassVar[str] = "training data"
    """Whose rows a guarantee is about."""

    @property
    def proofs(self) -> tuple[str, ...]:
        """Files in the code's ``proofs`` folders that the kind rests on, in addition to those of its mechanisms."""
        return ()

    @abstractmethod
    def released(self, setting: Setting) -> str:
        """What left the run, and which part of it is covered."""

    @abstractmethod
    def checkpoint(self) -> str:
        """What a checkpoint holds."""

    @abstractmethod
    def run_assumptions(self, setting: Setting) -> tuple[str, ...]:
        """What the kind assumes, in addition to its mechanisms' assumptions."""

    @abstractmethod
    def arithmetic(self) -> tuple[ArithmeticName, ...]:
        """How such a run computes, and draws and adds its noise."""

    @abstractmethod
    def lines(self, setting: Setting, history: History) -> Iterator[str]:
        """What was done, in words, without indentation."""

    def not_covered(self, setting: Setting) -> tuple[str, ...]:
        """What the guarantee says nothing about."""
        return wording.not_covered(setting.held_out)

    def test_metrics(self, setting: Setting) -> str:
        """What protects the held-out records."""
        if setting.held_out == "private" and not setting.guaranteed:
            return f"{wording.NOT_COVERED}: noise on what was measured on them doesn't make a guarantee here"
        return setting.named(wording.TEST_METRICS[setting.held_out])

    def other_rows(self, setting: Setting) -> str:
        """What holds for somebody with several rows if a unit is one row."""
        del setting
        return "a person with several rows is protected less"

    def checkpoints(self, setting: Setting) -> str:
        """What protects checkpoints."""
        return f"{'covered' if setting.guaranteed else wording.NOT_COVERED}: {self.checkpoint()}"
