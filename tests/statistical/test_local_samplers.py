"""Local releases as drawn against their claims, with checks that a noise or an epsilon off by 30 % fails."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from tests.mechanisms.local import duchi, local_gaussian, local_laplace
from tests.selection import chosen, thinned
from zetadp.mechanisms import InvalidParameter, NumpySource, RandomStream
from zetadp.mechanisms.sampling.source import FAIR

COUNT = 200_000
CORNER = (1.0, -1.0, 1.0)


def released(mechanism, record, seed=31, count=COUNT):
    return mechanism.release(np.tile(np.asarray(record, dtype=float), (count, 1)), NumpySource.from_seed(seed))


def test_local_laplace_noise_has_the_claimed_law():
    noise = released(local_laplace(2, scale=0.7), (0.25, 1.0)) - np.array([0.25, 1.0])
    assert stats.kstest(noise.ravel(), "laplace", args=(0.0, 0.7)).pvalue > 1e-4


@pytest.mark.parametrize("wrong", [0.7, 1.3])
def test_the_check_rejects_a_scale_that_is_thirty_percent_off(wrong):
    noise = released(local_laplace(2, scale=0.7 * wrong), (0.25, 1.0), count=2000) - np.array([0.25, 1.0])
    assert stats.kstest(noise.ravel(), "laplace", args=(0.0, 0.7)).pvalue < 1e-6


def test_local_gaussian_noise_has_the_claimed_law():
    noise = released(local_gaussian(2, std=0.7), (0.25, 1.0)) - np.array([0.25, 1.0])
    assert stats.kstest(noise.ravel(), "norm", args=(0.0, 0.7)).pvalue > 1e-4


@pytest.mark.parametrize("wrong", [0.7, 1.3])
def test_the_check_rejects_a_deviation_that_is_thirty_percent_off(wrong):
    noise = released(local_gaussian(2, std=0.7 * wrong), (0.25, 1.0), count=2000) - np.array([0.25, 1.0])
    assert stats.kstest(noise.ravel(), "norm", args=(0.0, 0.7)).pvalue < 1e-6


@pytest.mark.parametrize("mechanism", [local_laplace(2), local_gaussian(2)], ids=lambda m: m.kind)
def test_noise_of_different_records_and_coordinates_is_uncorrelated(mechanism):
    noise = released(mechanism, (0.5, 0.5)) - 0.5
    assert abs(np.corrcoef(noise[:, 0], noise[:, 1])[0, 1]) < 5.0 / math.sqrt(COUNT)
    assert abs(np.corrcoef(noise[:-1, 0], noise[1:, 0])[0, 1]) < 5.0 / math.sqrt(COUNT)


def counts_of(outputs):
    """How often each of the sign vectors of three coordinates was released."""
    code = (outputs > 0).astype(int) @ np.array([4, 2, 1])
    return np.bincount(code, minlength=8)


def expected_counts(epsilon, record):
    """The law of three signs for a record in the cube, from the definition: over all V, then the two sides."""
    likely = 1.0 / (1.0 + math.exp(-epsilon))
    total = np.zeros(8)
    for signs in itertools.product((-1, 1), repeat=3):
        weight = math.prod(0.5 * (1.0 + v * s) for v, s in zip(record, signs, strict=True))
        for code, drawn in enumerate(itertools.product((-1, 1), repeat=3)):
            agree = sum(a * b for a, b in zip(signs, drawn, strict=True)) > 0
            total[code] += weight * (likely if agree else 1.0 - likely) / 4.0
    return total


@pytest.mark.parametrize("record", [CORNER, (0.3, -0.8, 0.0)])
@pytest.mark.parametrize("epsilon", thinned([0.3, 1.0, 4.0], every=2))
def test_released_signs_have_the_law_of_the_definition(epsilon, record):
    observed = counts_of(released(duchi(3, epsilon), record))
    assert stats.chisquare(observed, COUNT * expected_counts(epsilon, record)).pvalue > 1e-4


@pytest.mark.parametrize("wrong", [0.7, 1.3])
@pytest.mark.parametrize("epsilon", thinned([0.3, 1.0, 4.0], every=2))
def test_the_check_rejects_an_epsilon_that_is_thirty_percent_off(epsilon, wrong):
    observed = counts_of(released(duchi(3, epsilon * wrong), CORNER))
    assert stats.chisquare(observed, COUNT * expected_counts(epsilon, CORNER)).pvalue < 1e-6


@pytest.mark.parametrize("dimension", [1, 2, 5, 14])
def test_releases_are_unbiased_with_the_claimed_variance(dimension):
    mechanism = duchi(dimension, 1.0, lower=0.0, upper=1.0)
    record = np.linspace(0.0, 1.0, dimension + 1)[1:]
    outputs, variance = released(mechanism, record), mechanism.variance(record)
    assert np.all(np.abs(outputs.mean(axis=0) - record) < 5.0 * np.sqrt(variance / COUNT))
    assert outputs.var(axis=0) == pytest.approx(variance, rel=0.01)


def test_the_mean_check_rejects_outputs_that_are_thirty_percent_too_small():
    mechanism = duchi(3, 1.0)
    outputs, variance = 0.7 * released(mechanism, CORNER), mechanism.variance(np.array(CORNER))
    assert np.any(np.abs(outputs.mean(axis=0) - CORNER) > 5.0 * np.sqrt(variance / COUNT))


def observed_delta(actual, epsilon, dimension):
    """Hockey-stick value of the best test between opposite corners on samples, less five standard errors."""
    ones = (1.0,) * dimension
    hit = np.mean(released(actual, ones, 41).sum(axis=1) > 0)
    false = np.mean(released(actual, tuple(-x for x in ones), 42).sum(axis=1) > 0)
    error = math.sqrt(hit * (1 - hit) / COUNT) + math.exp(epsilon) * math.sqrt(false * (1 - false) / COUNT)
    return hit - math.exp(epsilon) * false - 5.0 * error


@pytest.mark.parametrize("dimension", thinned([1, 2, 5, 6], every=2))
@pytest.mark.parametrize("epsilon", thinned([0.0, 0.3, 0.8, 1.0], every=2))
def test_no_test_on_samples_beats_the_claimed_delta(dimension, epsilon):
    claimed = math.exp(duchi(dimension, 1.0).privacy_loss().log_delta(epsilon))
    assert observed_delta(duchi(dimension, 1.0), epsilon, dimension) <= claimed


@pytest.mark.parametrize("dimension", [1, 2, 5, 6])
def test_the_same_test_catches_an_epsilon_that_is_thirty_percent_too_large(dimension):
    assert observed_delta(duchi(dimension, 1.3), 0.3, dimension) > math.exp(duchi(dimension, 1.0).privacy_loss().log_delta(0.3))


def test_one_record_or_many_draw_from_the_same_law():
    mechanism, source = duchi(3, 1.0), NumpySource.from_seed(17)
    one_by_one = np.stack([mechanism.release(np.array(CORNER), source) for _ in range(20_000)])
    assert stats.chisquare(counts_of(one_by_one), 20_000 * expected_counts(1.0, CORNER)).pvalue > 1e-4


def test_records_are_released_independently():
    first = released(duchi(1, 0.5), (0.2,))[:, 0]
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 5.0 / math.sqrt(COUNT)


def test_torch_draws_the_same_releases():
    torch = pytest.importorskip("torch")
    from zetadp.trainer.engine.noise.torch_source import TorchSource

    for mechanism in (duchi(4, 1.0, lower=0.0, upper=2.0), local_laplace(4), local_gaussian(4)):
        value = np.full((6, 4), 0.5)
        source = TorchSource(RandomStream.from_seed(9, "noise"), torch.device("cpu"))
        assert np.array_equal(
            mechanism.release(torch.from_numpy(value), source).numpy(), mechanism.release(value, NumpySource.from_seed(9))
        )
        with pytest.raises(InvalidParameter, match="within"):
            mechanism.release(torch.from_numpy(value + 3.0), source)


@pytest.mark.parametrize("dtype", chosen(["float32", "float16", "bfloat16"], ["float16"]))
def test_narrow_torch_types_keep_the_law_of_the_sides(dtype):
    """The two sides are told apart by counting agreements, which no rounding of the tensors' own type can change."""
    torch = pytest.importorskip("torch")
    from zetadp.trainer.engine.noise.torch_source import TorchSource

    kind = getattr(torch, dtype)
    source = TorchSource(RandomStream.from_seed(9, "noise"), torch.device("cpu"))
    outputs = duchi(3001, 1.0).release(torch.ones((4000, 3001), dtype=kind), source)
    positive = float(((outputs > 0).sum(-1) > 1500).double().mean())
    likely = 1.0 / (1.0 + math.exp(-1.0))
    assert abs(positive - likely) < 5.0 * math.sqrt(likely * (1.0 - likely) / 4000)
    assert len(outputs.unique()) == 2


@pytest.mark.parametrize("share", thinned([0.0, 2.0**-60, 0.2, 0.5, 0.999, 1.0], every=2))
def test_signs_have_the_probability_that_was_asked_for(share):
    signs = RandomStream.from_seed(8, "noise").signs(COUNT, int(share * 2 * FAIR))
    assert abs(float(np.mean(signs < 0.0)) - share) <= 5.0 * math.sqrt(share * (1.0 - share) / COUNT)
    assert set(np.unique(signs)) <= {-1.0, 1.0}


@pytest.mark.parametrize("place", thinned([0, 63, 64, 100, 128, 191, 192, 255], every=3))
def test_signs_compare_all_bits_of_a_probability(place, monkeypatch):
    """Words that agree with the numerator down to a bit, and differ there, fall on the right side of it."""
    numerator = int.from_bytes(np.random.default_rng(place).bytes(32), "big") | 1 << place
    drawn = [numerator - (1 << place), numerator - 1, numerator, min(numerator + (1 << place), 2 * FAIR - 1)]

    class Crafted:
        def next(self, count):
            assert count == 32 * len(drawn)
            return b"".join(number.to_bytes(32, "big") for number in drawn)

    stream = RandomStream.from_seed(1, "noise")
    monkeypatch.setattr(stream, "_stream", Crafted())
    assert stream.signs(len(drawn), numerator).tolist() == [-1.0, -1.0, 1.0, 1.0]


@pytest.mark.parametrize("numerator", [-1, 2 * FAIR + 1])
def test_probabilities_outside_of_zero_to_one_are_refused(numerator):
    with pytest.raises(InvalidParameter, match="a numerator from 0 to"):
        RandomStream.from_seed(1, "noise").signs(3, numerator)
