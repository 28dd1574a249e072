r"""The same questions to dp-accounting, which is always here. Other libraries run in processes of their own: ``peers_apart``."""

from __future__ import annotations

from collections.abc import Callable

import dp_accounting
from dp_accounting import pld, rdp

PLD_NAME = "dp-accounting PLD 1e-4"


def training(probability: float, std: float, count: int) -> dp_accounting.DpEvent:
    """Poisson-sampled Gaussian, ``count`` times."""
    sampled = dp_accounting.PoissonSampledDpEvent(probability, dp_accounting.GaussianDpEvent(std))
    return dp_accounting.SelfComposedDpEvent(sampled, count)


def renyi(event: dp_accounting.DpEvent, delta: float) -> float:
    """dp-accounting's Renyi accountant with its default orders."""
    return rdp.RdpAccountant().compose(event).get_epsilon(delta)


def loss_distribution(event: dp_accounting.DpEvent, delta: float) -> float:
    """dp-accounting's PLD, pessimistic, at its default interval 1e-4."""
    return pld.PLDAccountant(value_discretization_interval=1e-4).compose(event).get_epsilon(delta)


def calibrated(make: Callable[[float], dp_accounting.DpEvent], epsilon: float, delta: float) -> float:
    """calibrate_dp_mechanism with PLD 1e-4."""

    def accountant() -> pld.PLDAccountant:
        return pld.PLDAccountant(value_discretization_interval=1e-4)

    return dp_accounting.calibrate_dp_mechanism(accountant, make, epsilon, delta)
