from __future__ import annotations

import pickle
from fractions import Fraction

import pytest
from pydantic import TypeAdapter, ValidationError

from tests.accountants.events import complex_gaussian, fixed_size, gaussian, laplace, training
from zetadp.accountants import (
    Composed,
    Event,
    FixedSizeSampled,
    Grouped,
    NonPrivate,
    PoissonSampled,
    Repeated,
    leaves,
    neighbourhood,
    non_private_reason,
)
from zetadp.accountants.calibration.scaling import scaled
from zetadp.accountants.events import MAXIMUM_DEPTH
from zetadp.mechanisms import InvalidParameter

ADAPTER: TypeAdapter[Event] = TypeAdapter(Event)
EVERY_KIND = Composed(
    events=(
        training(0.1, 1.0, 5),
        Repeated(count=3, event=complex_gaussian(2.0, 0.5)),
        laplace(),
        fixed_size(3, 100, 1.0, 5),
        Grouped(size=4, unit="record", event=training(0.1, 1.0, 2, unit="slice")),
        NonPrivate(reason="test"),
    )
)


def test_every_kind_survives_json():
    assert ADAPTER.validate_json(EVERY_KIND.model_dump_json()) == EVERY_KIND


def test_leaves_count_nested_repetitions():
    event = Repeated(count=3, event=Composed(events=(gaussian(), Repeated(count=4, event=gaussian()), laplace())))
    assert sorted(leaves(event).values()) == [3, 15]


def test_nested_samplings_multiply():
    event = PoissonSampled(probability=0.5, event=PoissonSampled(probability=0.5, event=gaussian()))
    assert [leaf.probability for leaf in leaves(event)] == [0.25]


def test_too_many_releases_are_refused():
    event = gaussian()
    for _ in range(3):
        event = Repeated(count=10**6, event=event)
    with pytest.raises(InvalidParameter, match=r"at most 1e\+15 releases in total, got '1\.000e\+18'"):
        leaves(event)


@pytest.mark.parametrize(("what", "neighbours"), [("unit", {"unit": "user"}), ("adjacency", {"adjacency": "replace_one"})])
def test_parts_that_disagree_are_refused(what, neighbours):
    with pytest.raises(ValidationError, match=f"all parts of an event must have the same {what}"):
        Composed(events=(gaussian(), gaussian(**neighbours)))


def test_disagreement_deep_inside_is_seen():
    with pytest.raises(ValidationError, match="same unit, got 'record' and 'user'"):
        Composed(events=(training(0.1, 1.0, 5), Repeated(count=2, event=training(0.1, 1.0, 5, unit="user"))))


def test_nesting_beyond_the_limit_is_refused():
    event = gaussian()
    for _ in range(MAXIMUM_DEPTH - 1):
        event = Repeated(count=1, event=event)
    with pytest.raises(ValidationError, match=f"event must be nested at most {MAXIMUM_DEPTH} deep, got '{MAXIMUM_DEPTH + 1} levels'"):
        Repeated(count=1, event=event)


def test_neighbourhood_is_that_of_any_part():
    assert neighbourhood(EVERY_KIND) == ("add_remove", "record")


def test_one_non_private_part_makes_the_whole_so():
    assert non_private_reason(EVERY_KIND) == "test"


def test_scaling_multiplies_every_noise_and_nothing_else():
    group = Grouped(size=4, unit="record", event=training(0.1, 1.0, 2, unit="slice"))
    event = scaled(Composed(events=(training(0.1, 1.0, 5), laplace(3.0), fixed_size(1, 2, 5.0, 3), group)), 2.0)
    assert {(leaf.mechanism.noise_scale, leaf.probability, leaf.scheme, leaf.group): n for leaf, n in leaves(event).items()} == {
        (2.0, 0.1, "poisson", 1): 5,
        (6.0, 1.0, "poisson", 1): 1,
        (10.0, 0.5, "fixed_size", 1): 3,
        (2.0, 0.1, "poisson", 4): 2,
    }


@pytest.mark.parametrize("count", [0, -1, 1.5, True])
def test_a_count_is_a_positive_whole_number(count):
    with pytest.raises(ValidationError, match="count"):
        Repeated(count=count, event=gaussian())


def test_fixed_size_samples_keep_their_scheme_and_round_their_probability_up():
    (leaf,) = leaves(fixed_size(3, 10, 1.0, 5))
    assert (leaf.scheme, leaf.group) == ("fixed_size", 1)
    assert Fraction(leaf.probability) >= Fraction(3, 10)
    assert leaf.probability == pytest.approx(0.3, rel=1e-15)


def test_a_fixed_size_sample_of_everyone_is_not_a_whole_release():
    (leaf,) = leaves(fixed_size(10, 10, 1.0, 1))
    assert leaf.probability == 1.0
    assert not leaf.is_whole


def test_a_sample_larger_than_the_population_is_refused():
    with pytest.raises(ValidationError, match="sample_size must be at most population_size = 10, got 11"):
        FixedSizeSampled(sample_size=11, population_size=10, event=gaussian())


def test_fixed_size_and_poisson_sampling_do_not_nest():
    event = PoissonSampled(probability=0.5, event=FixedSizeSampled(sample_size=1, population_size=2, event=gaussian()))
    with pytest.raises(InvalidParameter, match="not sampled in another way"):
        leaves(event)
    event = FixedSizeSampled(sample_size=1, population_size=2, event=FixedSizeSampled(sample_size=1, population_size=2, event=gaussian()))
    with pytest.raises(InvalidParameter, match="not sampled in another way"):
        leaves(event)


def test_nested_groups_multiply_and_the_outermost_names_the_unit():
    event = Grouped(size=3, unit="clinic", event=Grouped(size=20, unit="patient", event=training(0.1, 1.0, 7)))
    assert [(leaf.group, count) for leaf, count in leaves(event).items()] == [(60, 7)]
    assert neighbourhood(event) == ("add_remove", "clinic")


def test_a_group_and_a_single_unit_disagree_in_one_composition():
    with pytest.raises(ValidationError, match="same unit, got 'user' and 'record'"):
        Composed(events=(Grouped(size=2, unit="user", event=gaussian()), gaussian()))


def test_a_group_needs_a_unit_of_its_own():
    with pytest.raises(ValidationError, match="a unit other than the event's own, 'record', got 'record'"):
        Grouped(size=2, unit="record", event=gaussian())


def test_a_group_inside_a_sampling_is_refused_with_a_way_out():
    with pytest.raises(InvalidParameter, match="put grouped around the sampling"):
        leaves(PoissonSampled(probability=0.5, event=Grouped(size=2, unit="user", event=gaussian())))


def test_groups_beyond_the_largest_are_refused():
    event = Grouped(size=10**4, unit="clinic", event=Grouped(size=10**4, unit="patient", event=gaussian()))
    with pytest.raises(InvalidParameter, match="groups of at most 1000000 units in total, got 100000000"):
        leaves(event)


def test_nested_sampling_probabilities_are_never_rounded_down():
    event = PoissonSampled(probability=0.1, event=PoissonSampled(probability=0.7, event=gaussian()))
    (leaf,) = leaves(event)
    assert Fraction(leaf.probability) >= Fraction(0.1) * Fraction(0.7)


def test_asking_for_the_leaves_changes_nothing_that_is_seen():
    asked, fresh = training(0.1, 1.0, 5), training(0.1, 1.0, 5)
    leaves(asked)
    assert asked == fresh
    assert hash(asked) == hash(fresh)
    assert asked.model_dump_json() == fresh.model_dump_json()


def test_a_leaf_leaves_its_hash_behind_where_another_process_has_other_hashes():
    leaf = next(iter(leaves(training(0.1, 1.0, 5))))
    sent = pickle.loads(pickle.dumps(leaf))
    assert leaf._hash == hash(leaf) != sent._hash == 0
    assert sent == leaf
    assert hash(sent) == hash(leaf)
