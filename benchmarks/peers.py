r"""The same questions to other libraries: dp-accounting, which is always here, and prv-accountant if it happens to be installed
(``pip install --no-deps prv-accountant``); what isn't there is left out of the report."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator

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


def others(probability: float, std: float, count: int, delta: float) -> Iterator[tuple[str, Callable[[], float]]]:
    """Name and question for each further library that is installed."""
    if importlib.util.find_spec("prv_accountant"):
        yield "prv-accountant, error 0.1", lambda: _prv(probability, std, count, delta)


def _prv(probability: float, std: float, count: int, delta: float) -> float:
    library = importlib.import_module("prv_accountant")
    mechanism = library.PoissonSubsampledGaussianMechanism(sampling_probability=probability, noise_multiplier=std)
    accountant = library.PRVAccountant(prvs=[mechanism], max_self_compositions=[count], eps_error=0.1, delta_error=delta / 1000)
    return accountant.compute_epsilon(delta=delta, num_self_compositions=[count])[2]
