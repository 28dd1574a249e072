from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from accountants import Composed, Event, NonPrivate, PoissonSampled, Repeated, leaves, neighbourhood, non_private_reason
from accountants.events import MAXIMUM_DEPTH, scaled
from mechanisms import InvalidParameter
from tests.accountants.events import complex_gaussian, gaussian, laplace, training

ADAPTER: TypeAdapter[Event] = TypeAdapter(Event)
EVERY_KIND = Composed(
    events=(training(0.1, 1.0, 5), Repeated(count=3, event=complex_gaussian(2.0, 0.5)), laplace(), NonPrivate(reason="test"))
)


def test_every_kind_survives_json():
    assert ADAPTER.validate_json(EVERY_KIND.model_dump_json()) == EVERY_KIND


def test_leaves_count_nested_repetitions():
    event = Repeated(count=3, event=Composed(events=(gaussian(), Repeated(count=4, event=gaussian()), laplace())))
    assert sorted(leaves(event).values()) == [3, 15]


def test_nested_samplings_multiply():
    event = PoissonSampled(probability=0.5, event=PoissonSampled(probability=0.5, event=gaussian()))
    assert [leaf.probability for leaf in leaves(event)] == [0.25]


def test_a_sample_shared_by_two_releases_is_refused():
    event = PoissonSampled(probability=0.5, event=Composed(events=(gaussian(), gaussian())))
    with pytest.raises(InvalidParameter, match="a single release"):
        leaves(event)


def test_too_many_releases_are_refused():
    event = gaussian()
    for _ in range(3):
        event = Repeated(count=10**6, event=event)
    with pytest.raises(InvalidParameter, match=r"at most 1e\+15 releases in all, got '1\.000e\+18'"):
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
    event = scaled(Composed(events=(training(0.1, 1.0, 5), laplace(3.0))), 2.0)
    assert {(leaf.mechanism.noise_scale, leaf.probability): count for leaf, count in leaves(event).items()} == {
        (2.0, 0.1): 5,
        (6.0, 1.0): 1,
    }


@pytest.mark.parametrize("count", [0, -1, 1.5, True])
def test_a_count_is_a_positive_whole_number(count):
    with pytest.raises(ValidationError, match="count"):
        Repeated(count=count, event=gaussian())
