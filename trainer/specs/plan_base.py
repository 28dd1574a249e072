r"""What every plan states about its run. The union of plans is in ``trainer.specs.plans``. Free of torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Annotated

from pydantic import StringConstraints

from zetadp.accountants.events import Event
from zetadp.mechanisms import AnyMechanism
from zetadp.mechanisms.base import PrivacyUnit, Value

if TYPE_CHECKING:
    from zetadp.trainer.specs.execution_plan import PrivateEvaluation
    from zetadp.trainer.specs.plans import ComparedPlan

PartName = Annotated[str, StringConstraints(strict=True, pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")]


class Stated:
    r"""What some plans have as fields and others compute. Declared for type checkers alone: at run time no field may override a property.

    Attributes:
      steps: the run's steps.
      delta: the delta at which epsilon is reported.
      unit: the unit of privacy, one of which the guarantee protects.
      units: the number of units of privacy in the data.
    """

    if TYPE_CHECKING:
        steps: int
        delta: float
        unit: PrivacyUnit
        units: int


class Plan(Value, Stated, ABC):
    r"""What a run releases, and therefore what it costs.

    Attributes:
      (all): as in ``Stated``.
    """

    @property
    @abstractmethod
    def mechanisms(self) -> tuple[AnyMechanism, ...]:
        """The mechanisms about which anything is claimed, each once."""

    @property
    @abstractmethod
    def noise_std(self) -> float:
        """Standard deviation of each real component of what is released, Laplace's scale b; 0 if there isn't one single noise."""

    @abstractmethod
    def event_after(self, steps: int) -> Event:
        """The event of the first ``steps`` steps, >= 1."""

    @property
    def event(self) -> Event:
        """The event of the whole run."""
        return self.event_after(self.steps)

    @property
    def compared(self) -> tuple[ComparedPlan, ...]:
        """The trainings that a comparison consists of, in their order; empty for a single training."""
        return ()

    @property
    def counts(self) -> PrivateEvaluation | None:
        """The noisy counts about held-out units that are released; None if there are none."""
        return None

    @property
    def initial_bound(self) -> float | None:
        """The bound to which the first step clips gradients; None if none are clipped."""
        return None

    @property
    def sampling_probability(self) -> float | None:
        """The probability with which a step draws each unit; None if steps don't sample."""
        return None

    @property
    def declared_units(self) -> int | None:
        """N if the whole run uses a declared number of units; None if any part of it uses a counted one."""
        return None

    @property
    def is_protected(self) -> bool:
        """Whether anything is guaranteed, at ``delta`` or any other."""
        return True

    @property
    def protects_held_out(self) -> bool:
        """Whether the guarantee is about the held-out records, and assumes that the training records are public."""
        return False

    @property
    def allows_half_precision(self) -> bool:
        """Whether a network may compute in half precision in such a run."""
        return True


class SingleReleasePlan(Plan, ABC):
    """A plan whose releases are counted as a whole, after any number of steps: everything else is post-processing, or isn't private."""

    @property
    @abstractmethod
    def event(self) -> Event:
        """The event of the whole run."""

    def event_after(self, steps: int) -> Event:
        """The same after any number of steps."""
        del steps
        return self.event
