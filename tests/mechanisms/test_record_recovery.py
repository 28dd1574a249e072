"""What one printed update gives away; the true record is the oracle."""

from __future__ import annotations

import numpy as np
import pytest

from zetadp.mechanisms.analysis.record_recovery import distance_from_rank_one, dominant_column, recovered
from zetadp.mechanisms.published import spof as published


def test_the_attack_recovers_whatever_record_it_is_given():
    generator = np.random.default_rng(12)
    for _ in range(20):
        x, encoder, decoder = generator.uniform(size=9), generator.normal(size=(9, 4)) / 3.0, generator.normal(size=(4, 9))
        noise = tuple(generator.laplace(scale=1e3, size=9) for _ in range(2))
        gradients = published.algorithm_1_gradients(x, encoder, decoder, 0.5, noise)
        found, code = recovered(*gradients, decoder + 0.5)
        np.testing.assert_allclose(found, x, atol=1e-7)
        np.testing.assert_allclose(code, 1.0 / (1.0 + np.exp(-(encoder.T @ x))), atol=1e-7)


def test_the_attack_has_nothing_to_find_where_the_noisy_record_is_used_everywhere():
    # The sound variant: the encoder sees x~, so what the update gives away is x~.
    generator = np.random.default_rng(13)
    x, encoder, decoder = generator.uniform(size=9), generator.normal(size=(9, 4)) / 3.0, generator.normal(size=(4, 9))
    noisy = x + generator.laplace(scale=9.0, size=9)
    gradients = published.algorithm_1_gradients(noisy, encoder, decoder, 0.0, (np.zeros(9), np.zeros(9)))
    found, _ = recovered(*gradients, decoder)
    np.testing.assert_allclose(found, noisy, rtol=1e-6)
    assert np.max(np.abs(found - x)) > 1.0


def test_the_largest_columns_direction_is_the_records_own():
    generator = np.random.default_rng(14)
    x, back = generator.uniform(size=9), generator.normal(size=4)
    assert abs(dominant_column(np.outer(x, back)) @ x) == pytest.approx(np.linalg.norm(x), rel=1e-14)


def test_the_distance_from_rank_one_tells_a_sum_of_two_records_from_one():
    generator = np.random.default_rng(15)
    one, other = (np.outer(generator.uniform(size=9), generator.normal(size=4)) for _ in range(2))
    assert distance_from_rank_one(one) < 1e-15
    assert distance_from_rank_one(one + other) > 0.05
