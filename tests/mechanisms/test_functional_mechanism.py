from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from zetadp.mechanisms.analysis.cross_entropy import loss, sigmoid
from zetadp.mechanisms.analysis.functional_mechanism import coefficient_count, l1_sensitivity, l2_sensitivity, most_flips
from zetadp.mechanisms.base import Adjacency

SIZES = [(1, 1), (1, 2), (2, 3), (3, 2), (14, 1), (14, 7), (2, 7), (5, 5)]
BOTH_NORMS = [(1, l1_sensitivity), (2, l2_sensitivity)]


def coefficients(h, t):
    """(h t^T, triu h h^T) of records, one a row."""
    rows, columns = np.triu_indices(h.shape[-1])
    products = np.einsum("...r,...i->...ri", h, t).reshape(*h.shape[:-1], -1)
    return np.concatenate([products, h[..., rows] * h[..., columns]], axis=-1)


def corners(count, size, generator):
    return generator.integers(0, 2, (count, size)) - 0.5


def records(count, features, units, generator, *, at_corners):
    draw = corners if at_corners else lambda *shape: generator.uniform(-0.5, 0.5, shape[:2])
    h = draw(count, units, generator)
    h[:, 0] = 0.5
    return h, draw(count, features, generator)


@pytest.mark.parametrize(("features", "units"), SIZES)
@pytest.mark.parametrize(("norm", "bound"), BOTH_NORMS)
@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.ZERO_OUT])
def test_every_corner_attains_the_sensitivity_of_one_record_more(features, units, norm, bound, adjacency):
    found = coefficients(*records(20, features, units, np.random.default_rng(1), at_corners=True))
    norms = np.linalg.norm(found, norm, axis=-1)
    assert norms == pytest.approx(bound(features, units, adjacency), rel=1e-14)


@pytest.mark.parametrize(("features", "units"), SIZES)
@pytest.mark.parametrize(("norm", "bound"), BOTH_NORMS)
@pytest.mark.parametrize("at_corners", [True, False])
def test_a_search_never_exceeds_the_sensitivities(features, units, norm, bound, at_corners):
    generator = np.random.default_rng(2)
    one, other = (coefficients(*records(20_000, features, units, generator, at_corners=at_corners)) for _ in range(2))
    assert np.linalg.norm(one, norm, axis=-1).max() <= bound(features, units, Adjacency.ADD_REMOVE) * (1 + 1e-15)
    assert np.linalg.norm(one - other, norm, axis=-1).max() <= bound(features, units, Adjacency.REPLACE_ONE) * (1 + 1e-15)


@pytest.mark.parametrize(("features", "units"), SIZES)
@pytest.mark.parametrize(("norm", "bound"), BOTH_NORMS)
def test_climbing_from_the_worst_corners_never_exceeds_the_bound_on_a_replacement(features, units, norm, bound):
    """Coordinates of both records moved one at a time to their best value on a grid, from random corners."""
    generator = np.random.default_rng(3)
    grid = np.linspace(-0.5, 0.5, 9)
    best = 0.0
    for _ in range(6):
        h, t = records(2, features, units, generator, at_corners=True)
        for _ in range(3):
            for array, record, place in [(h, k, r) for k in (0, 1) for r in range(1, units)] + [
                (t, k, i) for k in (0, 1) for i in range(features)
            ]:
                moves = []
                for value in grid:
                    array[record, place] = value
                    moves.append(np.linalg.norm(np.subtract(*coefficients(h, t)), norm))
                array[record, place] = grid[int(np.argmax(moves))]
                best = max(best, *moves)
    limit = bound(features, units, Adjacency.REPLACE_ONE)
    assert best <= limit * (1 + 1e-15)
    squares = (units - 1) / 4 if norm == 1 else limit - math.sqrt(max(limit**2 - (units - 1) / 16, 0.0))
    assert best >= min(limit - squares, limit) * (1 - 1e-12)


@pytest.mark.parametrize(("features", "units"), [(1, 2), (2, 3), (3, 3), (2, 5)])
def test_most_flips_is_the_largest_over_all_pairs_of_corners(features, units):
    found = 0
    for flips in itertools.product((0, 1), repeat=units - 1 + features):
        units_flipped, features_flipped = (0, *flips[: units - 1]), flips[units - 1 :]
        changed = sum(u != f for u in units_flipped for f in features_flipped)
        changed += sum(u != v for u, v in itertools.combinations(units_flipped, 2))
        found = max(found, changed)
    assert most_flips(features, units) == found


def test_the_papers_sizes():
    assert coefficient_count(14, 7) == 126
    assert l1_sensitivity(14, 7, Adjacency.ADD_REMOVE) == 31.5
    assert l1_sensitivity(14, 7, Adjacency.REPLACE_ONE) == 50.5
    assert l2_sensitivity(14, 7, Adjacency.ADD_REMOVE) == pytest.approx(math.sqrt(7.875), rel=1e-15)


@pytest.mark.parametrize(("features", "units"), SIZES)
def test_the_l2_sensitivity_is_not_rounded_below_its_square(features, units):
    exact = Fraction(2 * units * features + units * (units + 1), 32)
    assert Fraction(l2_sensitivity(features, units, Adjacency.ADD_REMOVE)) ** 2 >= exact


@pytest.mark.parametrize("a", [-4.0, -0.3, 0.7, 5.0])
@pytest.mark.parametrize("x", [0.0, 0.3, 1.0])
def test_the_proofs_bound_touches_the_loss_at_both_points_and_is_never_below(a, x):
    curvature = math.tanh(a / 2) / (2 * a)

    def bound(z):
        return loss(x, a) + (sigmoid(a) - x) * (z - a) + curvature / 2 * (z - a) ** 2

    for z in np.linspace(-20.0, 20.0, 401):
        assert bound(float(z)) >= loss(x, float(z)) - 1e-12
    assert bound(-a) == pytest.approx(loss(x, -a), rel=1e-12)
    assert bound(a + 0.5) - loss(x, a + 0.5) > 0
