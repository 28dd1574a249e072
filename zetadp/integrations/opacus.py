r"""zetadp as an accountant of Opacus, 1.6 or newer: ``register()``, then ``PrivacyEngine(accountant="zetadp")``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, final

from zetadp.accountants import profile
from zetadp.accountants.profile import check_delta
from zetadp.integrations import missing
from zetadp.integrations.opacus_history import event_of_history
from zetadp.mechanisms.errors import InvalidParameter

try:
    from opacus.accountants import IAccountant, register_accountant  # pyright: ignore[reportMissingImports]
    from opacus.optimizers import DPOptimizer  # pyright: ignore[reportMissingImports]
    from opacus.optimizers.adaclipoptimizer import AdaClipDPOptimizer  # pyright: ignore[reportMissingImports]
except ImportError as error:
    raise missing("opacus", "opacus") from error

__all__ = ["NAME", "ZetaAccountant", "event_of_history", "register"]

NAME = "zetadp"
"""Its name in Opacus's registry."""


@final
class ZetaAccountant(IAccountant):
    r"""Accounts for what Opacus's optimizer did: ``get_epsilon`` is the upper end of a proved interval.

    The guarantee holds for a run that samples as ``event_of_history`` says, which an accountant can't see: with
    ``make_private(poisson_sampling=False)`` it is an epsilon of another run. What it does see and can't account, it refuses: several
    batches in one step, and adaptive clipping.

    Attributes:
      history: (noise_multiplier, sample_rate, num_steps) of each stretch of equal steps, as Opacus's own accountants keep it.
    """

    def __init__(self) -> None:
        self.history: list[tuple[float, float, int]] = []

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Counts one step."""
        before = 0
        if self.history and self.history[-1][:2] == (noise_multiplier, sample_rate):
            before = self.history.pop()[2]
        self.history.append((noise_multiplier, sample_rate, before + 1))

    def get_epsilon(self, delta: float) -> float:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The upper bound on epsilon at ``delta`` in (0, 1), for data sets that differ by one record that one of them lacks.

        Raises:
          InvalidParameter: delta, or a number of the history, is out of its range.
        """
        check_delta(delta)
        return profile(event_of_history(self.history)).epsilon(delta).upper if self.history else 0.0

    def __len__(self) -> int:
        """Steps taken so far."""
        return sum(steps for _, _, steps in self.history)

    @classmethod
    def mechanism(cls) -> str:
        return NAME

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[DPOptimizer], None]:
        """What Opacus's optimizer calls at each step, before the model changes.

        Raises:
          InvalidParameter: when called by a step of several batches, or by an optimizer with adaptive clipping.
        """
        count = super().get_optimizer_hook_fn(sample_rate)

        def checked(optimizer: DPOptimizer) -> None:
            if isinstance(optimizer, AdaClipDPOptimizer):
                # It divides a noisy count by the sample's own size, which no noise hides.
                raise InvalidParameter("clipping", "a bound that doesn't depend on the data", "adaptive clipping")
            if optimizer.accumulated_iterations != 1:
                # Opacus takes k samples for one at k times the rate; a record may be in several, and the sum moves by more than the bound.
                raise InvalidParameter("accumulated_iterations", "1: each step made from one sample", optimizer.accumulated_iterations)
            count(optimizer)

        return checked

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continues from a state dict of this accountant; another's history is read by ``event_of_history``.

        Raises:
          ValueError: it isn't this accountant's.
          InvalidParameter: its history isn't one.
        """
        before = self.history
        super().load_state_dict(state_dict)
        loaded, self.history = self.history, before
        if loaded:
            event_of_history(loaded)
        self.history = [(multiplier, rate, int(steps)) for multiplier, rate, steps in loaded]


def register() -> None:
    """Puts ``ZetaAccountant`` into Opacus's registry under ``NAME``; twice is as good as once."""
    register_accountant(NAME, ZetaAccountant, force=True)
