"""Poisson samples of noise on whole numbers under replace_one: against sums over all outcomes, for all that two units may contribute."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from pydantic import ValidationError

from tests.selection import thinned
from zetadp.accountants import Grouped, Leaf, PoissonSampled, Release, Repeated, TruncatedPoissonSampled, profile
from zetadp.accountants.dominating import pair_of
from zetadp.accountants.grids.hockey_stick import calls
from zetadp.accountants.routes.rdp.rdp import leaf_renyi
from zetadp.mechanisms import Gaussian, Sensitivity
from zetadp.mechanisms.declared import DiscreteGaussian, DiscreteGaussianSum, DiscreteLaplace, Skellam

WHO = {"adjacency": "replace_one", "unit": "record"}
X = np.arange(-120, 121)
LEVELS = np.array([-1.0, -0.3, 0.0, 0.2, 0.7, 1.5])

NOISES = {
    "gaussian": lambda moves, contribution: DiscreteGaussian(scale=1.3, moves=moves, contribution=contribution, **WHO),
    "laplace": lambda moves, contribution: DiscreteLaplace(scale=1.7, moves=moves, contribution=contribution, **WHO),
    "skellam": lambda moves, contribution: Skellam(variance=3.0, moves=moves, contribution=contribution, **WHO),
    "sum": lambda moves, contribution: DiscreteGaussianSum(scale=0.8, honest=3, moves=moves, contribution=contribution, **WHO),
}


def masses(noise):
    """f over a range that leaves nothing out that a float sees."""
    f = np.exp(noise.law.log_weights(np.arange(-500, 501)).astype(float))
    return dict(zip(range(-500, 501), f / f.sum(), strict=True))


def moved(f, shift):
    return np.array([f[x - shift] for x in X])


def sampled(f, probability, values):
    """The law of the output where each of these values is sampled."""
    law = 0.0
    for chosen in itertools.product((0, 1), repeat=len(values)):
        weight = math.prod(probability if c else 1.0 - probability for c in chosen)
        law = law + weight * moved(f, sum(v for c, v in zip(chosen, values, strict=True) if c))
    return law


def hockey_stick(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize(("moves", "contribution"), thinned([(2, 1), (4, 2), (3, 2), (2, 3)], every=2))
@pytest.mark.parametrize("probability", [0.05, 0.6])
def test_no_two_units_lose_more_and_opposite_ones_lose_all(name, moves, contribution, probability):
    noise = NOISES[name](moves, contribution)
    f, found = masses(noise), calls(pair_of(Leaf(probability, noise)), LEVELS)
    values = range(-contribution, contribution + 1)
    laws = {value: sampled(f, probability, (value,)) for value in values}
    for level, low, high in zip(LEVELS, found.lower, found.upper, strict=True):
        most = max(hockey_stick(laws[a], laws[b], level) for a in values for b in values if abs(a - b) <= moves)
        assert most <= high * (1.0 + 1e-12) + 1e-15
        if moves == 2 * contribution:
            assert most == pytest.approx(low, rel=1e-9, abs=1e-14)


@pytest.mark.parametrize("probability", [0.3, 0.9999999])
def test_a_group_is_attained_by_opposite_members(probability):
    # With the larger probability nothing is left of samples without any of them but rounding.
    noise = NOISES["gaussian"](2, 1)
    f = masses(noise)
    first, second = (sampled(f, probability, (sign, sign)) for sign in (1, -1))
    found = calls(pair_of(Leaf(probability, noise, group=2)), LEVELS)
    truth = [hockey_stick(first, second, level) for level in LEVELS]
    assert truth == pytest.approx(found.upper, rel=1e-6)
    assert (np.array(truth) <= found.upper * (1.0 + 1e-12)).all()


@pytest.mark.parametrize("order", [1.5, 6.0])
def test_renyi_divergences_are_bounds_and_near(order):
    noise = NOISES["laplace"](2, 1)
    f = masses(noise)
    p, q = sampled(f, 0.3, (1,)), sampled(f, 0.3, (-1,))
    truth = math.log(float(np.sum(p**order * q ** (1.0 - order)))) / (order - 1.0)
    assert truth * (1.0 - 1e-9) <= leaf_renyi(Leaf(0.3, noise), order) <= truth * 1.001


def test_compositions_are_sums_over_all_outcomes():
    noise = NOISES["laplace"](2, 1)
    f = masses(noise)
    kept = np.abs(X) <= 40
    p, q = (sampled(f, 0.3, (sign,))[kept] for sign in (1, -1))
    joint_p, joint_q = np.multiply.outer(p, p).ravel(), np.multiply.outer(q, q).ravel()
    found = profile(Repeated(count=2, event=PoissonSampled(probability=0.3, event=Release(mechanism=noise))), "fft")
    for epsilon in (0.0, 0.2, 0.6):
        bound = found.delta(epsilon)
        truth = hockey_stick(joint_p, joint_q, epsilon)
        assert bound.lower * (1.0 - 1e-9) - 1e-10 <= truth <= bound.upper * (1.0 + 1e-9)
        assert bound.upper - bound.lower <= 1e-3 * bound.upper


def test_much_noise_is_nearly_that_on_the_line():
    def trained(mechanism):
        return Repeated(count=100, event=PoissonSampled(probability=0.02, event=Release(mechanism=mechanism)))

    smooth = profile(trained(Gaussian(std=4.0, sensitivity=Sensitivity(l2=2.0, l2_contribution=1.0, **WHO)))).epsilon(1e-5)
    found = profile(trained(DiscreteGaussian(scale=4.0, moves=2, contribution=1, **WHO))).epsilon(1e-5)
    assert found.upper == pytest.approx(smooth.upper, rel=0.01)
    assert found.upper - found.lower <= 1e-3 * found.upper


def test_cut_samples_and_groups_have_brackets():
    release = Release(mechanism=NOISES["skellam"](2, 1))
    for event in (
        TruncatedPoissonSampled(probability=0.01, largest_batch=12, population_size=1000, event=release),
        Grouped(size=3, unit="user", event=PoissonSampled(probability=0.01, event=release)),
    ):
        bound = profile(Repeated(count=50, event=event)).epsilon(1e-5)
        assert 0.0 < bound.lower <= bound.upper <= bound.lower * 1.001


def test_a_contribution_is_about_replacing():
    with pytest.raises(ValidationError, match=r"contribution must be absent under zero_out \(moves already covers it\)"):
        DiscreteLaplace(scale=1.0, moves=2, contribution=1, adjacency="zero_out", unit="record")


def test_a_whole_release_has_no_use_for_it():
    stated, plain = (Release(mechanism=DiscreteLaplace(scale=1.0, moves=2, **more, **WHO)) for more in ({"contribution": 1}, {}))
    assert profile(stated).delta(0.5) == profile(plain).delta(0.5)
    assert "contribution" not in plain.mechanism.model_dump_json()
