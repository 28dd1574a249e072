"""Releases of one sample against all of its subsets, listed: the law of all outputs together."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from pydantic import TypeAdapter

from tests.accountants.events import gaussian, laplace
from tests.accountants.test_dominating import LEVELS, PLANE, both_orders, noise_density, profile
from zetadp import accountants
from zetadp.accountants import Composed, Event, FixedSizeSampled, Grouped, NonPrivate, PoissonSampled, RandomlyAllocated, Repeated, leaves
from zetadp.accountants import Release as Released
from zetadp.accountants.calibration.scaling import scaled
from zetadp.accountants.densities import GAUSSIAN, LAPLACE
from zetadp.accountants.dominating import pair_of
from zetadp.accountants.events import TruncatedPoissonSampled
from zetadp.mechanisms import ComplexGaussian, Gaussian, InvalidParameter, LocalGaussian, PureGuarantee, Sensitivity, UnsupportedEvent

ADAPTER: TypeAdapter[Event] = TypeAdapter(Event)
TWO = Composed(events=(gaussian(2.0), gaussian(1.0)))
"""Distances 1/2 and 1."""


def shared(event, probability=0.4):
    return PoissonSampled(probability=probability, event=event)


def pair(event):
    (leaf,) = leaves(event)
    return pair_of(leaf)


def joint_law(family, records, probability, second):
    """Density of (first sum, second sum) plus noise of scale 1; ``second`` maps the first output to a factor of the second query."""
    law = 0.0
    for chosen in itertools.product((0, 1), repeat=len(records)):
        weight = math.prod(probability if c else 1 - probability for c in chosen)
        first, then = (np.array(chosen) @ records) if len(records) else np.zeros(2)
        near = noise_density(family, [first], [PLANE])
        moved = (PLANE[None, :] - then * second(PLANE)[:, None]).ravel()
        far = noise_density(family, [0.0], [moved]).reshape(len(PLANE), len(PLANE))
        law = law + weight * near[:, None] * far
    return law


def fixed(output):
    return np.ones_like(output)


def adaptive(output):
    return np.where(output > 0.3, 1.0, np.where(output > -1.0, -1.0, 0.4))


@pytest.mark.parametrize("level", LEVELS)
def test_two_gaussian_releases_of_one_sample_are_attained_by_one_record(level):
    first, second = (joint_law(GAUSSIAN, np.array(r).reshape(-1, 2), 0.4, fixed) for r in ([[0.5, 1.0]], []))
    assert both_orders(first, second, level, [PLANE, PLANE]) == pytest.approx(profile(pair(shared(TWO)), level), abs=1e-3)


@pytest.mark.parametrize(("family", "noise"), [(GAUSSIAN, gaussian), (LAPLACE, laplace)], ids=["gaussian", "laplace"])
@pytest.mark.parametrize("second", [fixed, adaptive])
def test_no_data_set_exceeds_the_pair_of_a_shared_sample(family, noise, second):
    rng = np.random.default_rng(5)
    allowed = pair(shared(Composed(events=(noise(2.0), noise(1.0)))))
    for _ in range(5):
        records = rng.choice([-1.0, 1.0, 0.7], size=(3, 2)) * np.array([0.5, 1.0])
        laws = [joint_law(family, one, 0.4, second) for one in (records, records[:-1])]
        for level in LEVELS:
            assert both_orders(*laws, level, [PLANE, PLANE]) <= profile(allowed, level) + 1e-3


def test_a_group_in_a_shared_sample_is_attained_by_equal_members():
    allowed = pair(Grouped(size=2, unit="user", event=shared(TWO)))
    first, second = (joint_law(GAUSSIAN, np.array([[0.5, 1.0]] * n).reshape(-1, 2), 0.4, fixed) for n in (2, 0))
    for level in LEVELS:
        assert both_orders(first, second, level, [PLANE, PLANE]) == pytest.approx(profile(allowed, level), abs=1e-3)


def test_releases_of_one_sample_reveal_more_than_of_samples_of_their_own():
    ours = accountants.profile(shared(TWO, 0.05)).delta(1.0)
    own = Composed(events=(shared(gaussian(2.0), 0.05), shared(gaussian(1.0), 0.05)))
    assert accountants.profile(own).delta(1.0).upper < 0.9 * ours.lower


def test_laplace_releases_of_one_sample_have_the_largest_loss_of_all_together():
    assert pair(shared(Composed(events=(laplace(2.0), laplace(1.0))))).distance == pytest.approx(1.5)


@pytest.mark.parametrize(
    "sampled",
    [
        lambda event: FixedSizeSampled(sample_size=3, population_size=10, event=event),
        lambda event: TruncatedPoissonSampled(probability=0.3, largest_batch=3, population_size=10, event=event),
        lambda event: RandomlyAllocated(steps=4, event=event),
        lambda event: PoissonSampled(probability=0.5, event=PoissonSampled(probability=0.5, event=event)),
    ],
    ids=["fixed size", "truncated", "allocated", "nested"],
)
def test_every_sampling_takes_several_releases_as_one_of_all_their_vectors(sampled):
    several = sampled(Composed(events=(Repeated(count=9, event=gaussian(2.0)), gaussian(4.0 / 7.0))))
    assert ADAPTER.validate_json(several.model_dump_json()) == several
    (found,) = leaves(several)
    (single,) = leaves(sampled(gaussian(1.0 / math.sqrt(9 / 4 + 49 / 16))))
    assert (found.releases, found.scheme, found.probability) == (10, single.scheme, single.probability)
    assert pair_of(found).distance == pytest.approx(pair_of(single).distance, rel=1e-15)


def test_what_one_unit_contributes_adds_up_as_the_moves_do():
    bounds = Sensitivity(l2=2.0, l2_contribution=1.0, adjacency="replace_one", unit="record")
    parts = (Gaussian(std=1.0, sensitivity=bounds), ComplexGaussian(std=0.5, sensitivity=bounds))
    stated = pair(shared(Composed(events=tuple(Released(mechanism=one) for one in parts))))
    assert stated.upper.shifts[-1] == pytest.approx(math.sqrt(1.0 + 4.0), rel=1e-15)
    missing = Composed(events=(Released(mechanism=parts[0]), gaussian(1.0, adjacency="replace_one")))
    with pytest.raises(UnsupportedEvent, match=r"needs sensitivity\.l2_contribution"):
        pair(shared(missing))


def test_a_sample_of_everybody_is_no_sample():
    mixed = Composed(events=(gaussian(2.0), laplace(3.0)))
    assert leaves(shared(mixed, 1.0)) == leaves(mixed)
    assert leaves(RandomlyAllocated(steps=1, event=mixed)) == leaves(mixed)


def test_noise_scales_in_a_shared_sample_as_everywhere():
    (found,) = leaves(scaled(shared(TWO), 2.0))
    assert found.mechanism.privacy_loss().mu == pytest.approx(math.sqrt(1.25) / 2.0)


def test_the_derivation_says_that_they_are_one():
    lines = accountants.profile(shared(TWO)).derivation()
    assert (lines[0].symbol, lines[0].value) == ("mu", pytest.approx(math.sqrt(1.25)))
    assert "2 releases of one sample are one" in lines[0].formula


LOCAL = Released(mechanism=LocalGaussian.example())
PURE = Released(mechanism=PureGuarantee(epsilon=1.0, adjacency="add_remove", unit="record"))


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (Repeated(count=2, event=LOCAL), "several of Gaussian or Laplace noise"),
        (Composed(events=(gaussian(), PURE)), "got 'gaussian and pure_dp'"),
        (Composed(events=(gaussian(), PoissonSampled(probability=0.5, event=gaussian()))), "not sampled in another way"),
        (Composed(events=(gaussian(unit="record"), Grouped(size=2, unit="record", event=gaussian(unit="image")))), "put grouped around"),
        (Composed(events=(gaussian(), NonPrivate(reason="test"))), "must be releases, got 'non_private'"),
        (Repeated(count=10**8, event=Repeated(count=10**8, event=gaussian())), "at most 1e.15 releases of one sample"),
        (Repeated(count=10**10, event=gaussian(1e-49)), "together move by at most 1e.50 scales"),
    ],
)
def test_what_has_no_pair_together_is_refused_with_the_reason(event, text):
    with pytest.raises(InvalidParameter, match=text):
        leaves(shared(event))
