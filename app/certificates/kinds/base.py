r"""What every kind of training offers its certificate: the fixed sentences, the checks against the event, and the lines read aloud."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, final

from accountants.events import Event
from app.certificates import wording
from app.certificates.evaluation import CountsFacts
from app.certificates.facts import ReleaseFacts
from app.certificates.steps import StepFacts
from mechanisms import AnyMechanism
from trainer.report import HeldOut

Sentence = tuple[str, object, object]
"""(path in the certificate or part, what stands there, what this version writes)."""


@final
@dataclass(frozen=True)
class Setting:
    r"""What the sentences depend on, whatever the kind of training.

    Attributes:
      mechanisms: that anything is claimed of.
      unit: of privacy.
      records_per_unit: None where a unit is one row.
      guaranteed: whether anything is certified.
      given_weights: SHA-256 of weights that training started from.
      in_ledger: whether a budget was charged.
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
    in_ledger: bool = False
    uploaded: bool = False
    is_declared: bool = False

    def named(self, words: str) -> str:
        """The words with the unit's name in them."""
        return words.replace("{unit}", self.unit)


@final
@dataclass(frozen=True)
class Training:
    r"""What a certificate, or one part of a comparison, states of a training besides its kind's section.

    Attributes:
      event: all of its releases.
      units_name: of ``units`` in the certificate.
      units: that were sampled from or released.
      expected_batch_size: None where nothing is divided by one.
      counts: of held-out records; None where there are none.
      test_records: held out.
      restarts, checkpoints: what is read aloud of them; empty for a part.
    """

    event: Event
    steps: StepFacts
    releases: tuple[ReleaseFacts, ...]
    unit: str
    units_name: str
    units: int
    expected_batch_size: int | None
    counts: CountsFacts | None
    test_records: int
    restarts: str = ""
    checkpoints: str = ""

    def unsampled_problems(self) -> Iterator[str]:
        """What is stated although only noisy sums of samples have it."""
        if self.expected_batch_size is not None:
            yield "expected_batch_size: stated only where noisy sums of samples are divided by it"
        if self.counts is not None:
            yield "scope.evaluation: private counts are stated only beside noisy sums"


class Kind(ABC):
    """One kind of training with its section: the same for whoever issues a certificate, checks it or reads it aloud."""

    training_metrics: str = wording.TRAINING_METRICS
    custody: str = ""
    """What the service was trusted with in this run, where the algorithm's own words leave that open."""
    protected: str = "training data"
    """Whose rows a guarantee is about."""
    proofs: tuple[str, ...] = ()
    """Files in the code's ``proofs`` folders that the kind rests on, beside those of its mechanisms."""

    @abstractmethod
    def released(self, setting: Setting) -> str:
        """What left the run, and what of it is covered."""

    @abstractmethod
    def checkpoint(self) -> str:
        """What a checkpoint holds."""

    @abstractmethod
    def run_assumptions(self, setting: Setting) -> tuple[str, ...]:
        """What the kind takes for granted, beside what its mechanisms do."""

    @abstractmethod
    def arithmetic(self, setting: Setting) -> str:
        """How noise was computed and added, for the caveat on floats."""

    @abstractmethod
    def sentences(self, setting: Setting) -> Iterator[Sentence]:
        """The fixed sentences in the kind's own section."""

    @abstractmethod
    def problems(self, training: Training) -> Iterator[str]:
        """What the section says that its event, or the rest of the certificate, refutes."""

    @abstractmethod
    def lines(self, training: Training) -> Iterator[str]:
        """What was done, read aloud, without indentation."""

    def not_covered(self, setting: Setting) -> tuple[str, ...]:
        """What the guarantee says nothing about."""
        return wording.not_covered(setting.held_out)

    def test_metrics(self, setting: Setting) -> str:
        """What protects the held-out records."""
        if setting.held_out == "private" and not setting.guaranteed:
            return f"{wording.NOT_COVERED}: noise on what was measured on them doesn't make a guarantee here"
        return setting.named(wording.TEST_METRICS[setting.held_out])

    def other_rows(self, setting: Setting) -> str:
        """What becomes of somebody with several rows where a unit is one of them."""
        del setting
        return "a person with several rows is protected less"

    def checkpoints(self, setting: Setting) -> str:
        """What protects checkpoints."""
        return f"{'covered' if setting.guaranteed else wording.NOT_COVERED}: {self.checkpoint()}"

    def floating_point(self, setting: Setting) -> str:
        """What computing with floats leaves open."""
        return wording.floating_point(self.arithmetic(setting))
