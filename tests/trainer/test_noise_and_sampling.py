r"""The two random draws of a step: who is in the sample, and the noise on each real component."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from zetadp.mechanisms import ComplexGaussian, RandomOrigin, RandomStream, Sensitivity
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.engine import FreshRandomness, SeededRandomness, TorchSource, poisson_sample

COORDINATES = 20_000
MULTIPLIER, BOUND = 1.5, 0.4
VECTOR = torch.zeros(1)


def check_noise(noise: Tensor, std: float) -> None:
    """Both real components have this standard deviation and are uncorrelated: six standard errors, which is 3 % here."""
    tolerance = 6.0 / math.sqrt(2.0 * noise.numel())
    for part in (noise.real, noise.imag):
        assert part.double().square().mean().sqrt().item() == pytest.approx(std, rel=tolerance)
    assert abs((noise.real.double() * noise.imag.double()).mean().item()) <= 2.0 * tolerance * std**2


def _noise(std: float) -> Tensor:
    mechanism = ComplexGaussian(std=std, sensitivity=Sensitivity(l2=BOUND, adjacency="add_remove", unit="record"))
    source = TorchSource(RandomStream.from_seed(11, "noise test"), torch.device("cpu"))
    return mechanism.release(torch.zeros(COORDINATES, dtype=torch.complex128), source)


def test_noise_has_variance_sigma_squared_b_squared_in_each_real_component() -> None:
    check_noise(_noise(MULTIPLIER * BOUND), MULTIPLIER * BOUND)


@pytest.mark.parametrize("factor", [0.7, 1.3])
def test_the_check_rejects_noise_that_is_thirty_per_cent_off(factor: float) -> None:
    with pytest.raises(AssertionError):
        check_noise(_noise(factor * MULTIPLIER * BOUND), MULTIPLIER * BOUND)


def test_the_check_rejects_torchs_complex_normal_draw() -> None:
    drawn = torch.randn(COORDINATES, dtype=torch.cfloat, generator=torch.Generator().manual_seed(0))
    with pytest.raises(AssertionError):
        check_noise(drawn, 1.0)


def test_the_check_rejects_noise_on_the_real_part_alone() -> None:
    drawn = torch.complex(torch.randn(COORDINATES, generator=torch.Generator().manual_seed(0)), torch.zeros(COORDINATES))
    with pytest.raises(AssertionError):
        check_noise(drawn, 1.0)


def test_torch_and_numpy_draw_the_same_numbers_from_the_same_stream() -> None:
    source = TorchSource(RandomStream.from_seed(3, "same"), torch.device("cpu"))
    drawn = source.standard_normal((4, 5)), source.standard_laplace((7,))
    stream = RandomStream.from_seed(3, "same")
    assert np.array_equal(drawn[0].numpy(), stream.grid_normal(20).reshape(4, 5))
    assert np.array_equal(drawn[1].numpy(), stream.grid_laplace(7))


def test_source_knows_complex_and_finite() -> None:
    source = TorchSource(RandomStream.from_operating_system(), torch.device("cpu"))
    assert source.origin is RandomOrigin.OPERATING_SYSTEM
    assert source.is_complex(torch.zeros(1, dtype=torch.cfloat))
    assert not source.is_complex(torch.zeros(1))
    assert not source.all_finite(torch.tensor([complex(0.0, math.nan)]))


def test_a_real_sum_is_refused_by_the_complex_mechanism() -> None:
    mechanism = ComplexGaussian(std=1.0, sensitivity=Sensitivity(l2=1.0, adjacency="add_remove", unit="record"))
    source = TorchSource(RandomStream.from_seed(3, "real"), torch.device("cpu"))
    with pytest.raises(InvalidParameter, match="value must be complex for this mechanism, got 'real'"):
        mechanism.release(torch.zeros(3), source)


def test_every_record_joins_with_the_sampling_probability() -> None:
    stream = RandomStream.from_seed(1, "sampling test")
    counts = np.zeros(50)
    draws = 4000
    for _ in range(draws):
        counts[poisson_sample(50, 0.2, stream)] += 1
    assert np.abs(counts / draws - 0.2).max() < 5.0 * math.sqrt(0.2 * 0.8 / draws)  # 16 % of q


def test_records_join_independently() -> None:
    # A fixed-size sample has no spread in its size at all; its guarantee would be another one (errata Z12).
    stream = RandomStream.from_seed(2, "sampling test")
    sizes = np.array([len(poisson_sample(50, 0.2, stream)) for _ in range(4000)])
    assert sizes.var() == pytest.approx(50 * 0.2 * 0.8, rel=0.1)


@pytest.mark.parametrize("probability", [1.0, 1.0 - 2.0**-53, 0.3, 2.0**-10, 1e-300])
def test_a_unit_joins_where_its_uniform_is_at_most_the_probability(probability: float) -> None:
    rows = poisson_sample(5_000, probability, RandomStream.from_seed(1, "sample"))
    uniform = RandomStream.from_seed(1, "sample").uniform(5_000)
    assert rows.tolist() == np.flatnonzero(uniform <= probability).tolist()


def test_probability_one_takes_everyone() -> None:
    rows = poisson_sample(5, 1.0, RandomStream.from_seed(1, "all"))
    assert rows.tolist() == [0, 1, 2, 3, 4]


def test_seeded_randomness_differs_by_step_and_by_purpose_and_repeats() -> None:
    first, again = SeededRandomness(5), SeededRandomness(5)
    draws = {float(stream.uniform(1)[0]) for step in (1, 2, 3) for stream in (first.sampling(step), first.noise(step, VECTOR))}
    assert len(draws) == 6
    assert first.noise(2, VECTOR).uniform(3).tolist() == again.noise(2, VECTOR).uniform(3).tolist()
    assert first.origin is RandomOrigin.USER_SEED


def test_fresh_randomness_never_repeats_a_step() -> None:
    one, other = FreshRandomness(), FreshRandomness()
    asked = [(r.sampling(1), r.sampling(1), r.noise(1, VECTOR), r.noise(1, VECTOR)) for r in (one, other)]
    draws = {float(stream.uniform(1)[0]) for streams in asked for stream in streams}
    assert len(draws) == 8
    assert one.origin is RandomOrigin.OPERATING_SYSTEM
