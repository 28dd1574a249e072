r"""Events as JAX Privacy 2.0 writes them into its plans (``jax_privacy.experimental.accounting``): they are dp-accounting's.

Each function here makes what the function of that name there makes, for the same numbers.
"""

from __future__ import annotations

import math

import pytest
from dp_accounting import dp_event as library

from zetadp.accountants import FixedSizeSampled, PoissonSampled, Release, Repeated, TruncatedPoissonSampled, profile
from zetadp.accountants.dp_accounting_events import from_dp_accounting
from zetadp.mechanisms import Gaussian, InvalidParameter, Sensitivity


def dpsgd_event(noise_multiplier: float, iterations: int, sampling_prob: float) -> library.DpEvent:
    sampled = library.PoissonSampledDpEvent(sampling_prob, library.GaussianDpEvent(noise_multiplier))
    return library.SelfComposedDpEvent(sampled, iterations)


def fixed_dpsgd_event(
    noise_multiplier: float, iterations: int, dataset_size: int, batch_size: int, replace: bool = False
) -> library.DpEvent:
    kind = library.SampledWithReplacementDpEvent if replace else library.SampledWithoutReplacementDpEvent
    return library.SelfComposedDpEvent(kind(dataset_size, batch_size, library.GaussianDpEvent(noise_multiplier)), iterations)


def truncated_dpsgd_event(noise_multiplier: float, iterations: int, sampling_prob: float, examples: int, most: int) -> library.DpEvent:
    return library.SelfComposedDpEvent(
        library.TruncatedSubsampledGaussianDpEvent(examples, sampling_prob, most, noise_multiplier), iterations
    )


def amplified_bandmf_event(noise_multiplier: float, iterations: int, num_bands: int, sampling_prob: float) -> library.DpEvent:
    return dpsgd_event(noise_multiplier, math.ceil(iterations / num_bands), sampling_prob)


def noisy(std: float, adjacency: str) -> Release:
    bounds = {"l2": 2.0, "l2_contribution": 1.0} if adjacency == "replace_one" else {"l2": 1.0}
    return Release(
        mechanism=Gaussian(std=std, sensitivity=Sensitivity.model_validate(bounds | {"adjacency": adjacency, "unit": "example"}))
    )


@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out", "replace_one"])
def test_dp_sgd_is_read_for_every_neighbour(adjacency: str) -> None:
    found = from_dp_accounting(dpsgd_event(1.1, 500, 0.02), adjacency=adjacency, unit="example")
    assert found == Repeated(count=500, event=PoissonSampled(probability=0.02, event=noisy(1.1, adjacency)))


def test_banded_matrices_are_dp_sgd_of_fewer_rounds() -> None:
    # Each example takes part in one round of ``num_bands`` steps at most; their default neighbours are REPLACE_SPECIAL.
    found = from_dp_accounting(amplified_bandmf_event(1.1, 501, 8, 0.1), adjacency="zero_out", unit="example")
    assert found == Repeated(count=63, event=PoissonSampled(probability=0.1, event=noisy(1.1, "zero_out")))


def test_samples_of_a_fixed_size_are_read() -> None:
    found = from_dp_accounting(fixed_dpsgd_event(1.1, 500, 1000, 16), adjacency="replace_one", unit="example")
    assert found == Repeated(count=500, event=FixedSizeSampled(sample_size=16, population_size=1000, event=noisy(1.1, "replace_one")))
    assert math.isfinite(profile(found).epsilon(1e-5).upper)


@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out", "replace_one"])
def test_truncated_dp_sgd_is_read(adjacency: str) -> None:
    found = from_dp_accounting(truncated_dpsgd_event(1.1, 500, 0.1, 1000, 120), adjacency=adjacency, unit="example")
    cut = TruncatedPoissonSampled(probability=0.1, largest_batch=120, population_size=1000, event=noisy(1.1, adjacency))
    assert found == Repeated(count=500, event=cut)


@pytest.mark.parametrize(
    ("event", "reason"),
    [(fixed_dpsgd_event(1.1, 500, 1000, 16, replace=True), "SampledWithReplacementDpEvent: no sample here holds a record several times")],
    ids=["with replacement"],
)
def test_plans_that_have_no_event_here_are_refused_with_the_reason(event: library.DpEvent, reason: str) -> None:
    with pytest.raises(InvalidParameter, match=reason):
        from_dp_accounting(event, adjacency="zero_out", unit="example")
