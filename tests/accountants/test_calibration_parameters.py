from __future__ import annotations

import math

import pytest
from pydantic import TypeAdapter, ValidationError

from tests.accountants.events import complex_gaussian, gaussian, laplace, training
from zetadp.accountants import Composed, Event, FixedSizeSampled, PoissonSampled, Release, Repeated
from zetadp.accountants.calibration import ClippingBound, NoiseScale, Parameter, SampleSize, SamplingProbability, Steps
from zetadp.accountants.calibration.forecast import Forecast
from zetadp.accountants.calibration.scaling import scaled
from zetadp.mechanisms import MECHANISMS, InvalidParameter, LocalRelease


def tree():
    return Composed(
        events=(
            Repeated(count=3, event=PoissonSampled(probability=0.25, event=laplace(5.0))),
            Repeated(count=7, event=FixedSizeSampled(sample_size=10, population_size=100, event=gaussian(1.0))),
            gaussian(2.0),
        )
    )


def json_at(event, pointer):
    """What RFC 6901 finds in the event's JSON."""
    found = event.model_dump(mode="json")
    for token in pointer.split("/")[1:]:
        found = found[int(token) if isinstance(found, list) else token]
    return found


@pytest.mark.parametrize("pointer", ["", "/events/0", "/events/1/event/event", "/events/2"])
def test_a_pointer_means_what_it_means_in_json(pointer):
    assert NoiseScale(at=pointer).part(tree()).model_dump(mode="json") == json_at(tree(), pointer)


@pytest.mark.parametrize("pointer", ["/event", "/events/3", "/events/2/event", "/events/0/events/0"])
def test_a_pointer_to_nothing_is_refused(pointer):
    with pytest.raises(InvalidParameter, match="a JSON pointer to a part of the event"):
        NoiseScale(at=pointer).part(tree())


@pytest.mark.parametrize("pointer", ["events/0", "/events", "/events/01", "/mechanism", "/"])
def test_text_that_is_no_pointer_into_an_event_is_refused(pointer):
    with pytest.raises(ValidationError, match="String should match pattern"):
        NoiseScale(at=pointer)


@pytest.mark.parametrize(
    ("parameter", "value", "pointer", "field", "expected"),
    [
        (NoiseScale(), 2.0, "/events/0/event/event/mechanism", "scale", 10.0),
        (NoiseScale(), 2.0, "/events/2/mechanism", "std", 4.0),
        (NoiseScale(at="/events/2"), 2.0, "/events/2/mechanism", "std", 4.0),
        (ClippingBound(), 0.5, "/events/2/mechanism/sensitivity", "l2", 0.5),
        (ClippingBound(at="/events/0"), 0.5, "/events/0/event/event/mechanism/sensitivity", "l1", 0.5),
        (SamplingProbability(), 0.125, "/events/0/event", "probability", 0.125),
        (SampleSize(at="/events/1"), 20.0, "/events/1/event", "sample_size", 20),
        (Steps(at="/events/1"), 20.0, "/events/1", "count", 20),
    ],
)
def test_a_value_changes_its_field_and_nothing_else(parameter, value, pointer, field, expected):
    changed = parameter.applied(tree(), value)
    assert json_at(changed, pointer)[field] == expected
    if parameter.at:
        others = {"/events/0", "/events/1", "/events/2"} - {parameter.at}
        assert all(json_at(changed, other) == json_at(tree(), other) for other in others)


def test_steps_of_an_event_that_is_not_repeated_repeat_it_as_a_whole():
    assert Steps().applied(laplace(), 5.0) == Repeated(count=5, event=laplace())


def test_steps_find_the_only_repetition_of_a_part():
    event = Composed(events=(gaussian(), training(0.1, 1.0, 10)))
    assert Steps().applied(event, 5.0) == Composed(events=(gaussian(), training(0.1, 1.0, 5)))


def test_steps_among_several_repetitions_name_them():
    with pytest.raises(InvalidParameter, match=r"exactly one repeated in it \(found: '/events/0', '/events/1'\)"):
        Steps().limits(tree())


@pytest.mark.parametrize(
    "parameter", [SamplingProbability(at="/events/1"), SampleSize(at="/events/0"), SamplingProbability(at="/events/2")]
)
def test_a_part_without_the_parameter_is_refused(parameter):
    with pytest.raises(InvalidParameter, match=r"parameter\.at must be a part of the event with"):
        parameter.limits(tree())


CLIPPED = [mechanism for mechanism in MECHANISMS if not issubclass(mechanism, LocalRelease)]
LOCAL = [mechanism for mechanism in MECHANISMS if issubclass(mechanism, LocalRelease)]


@pytest.mark.parametrize("mechanism", LOCAL, ids=lambda m: m.kind_name())
def test_a_local_release_has_a_box_and_no_clipping_bound(mechanism):
    with pytest.raises(InvalidParameter, match="without local releases"):
        ClippingBound().limits(Release(mechanism=mechanism.example()))


@pytest.mark.parametrize("mechanism", CLIPPED, ids=lambda m: m.kind_name())
@pytest.mark.parametrize("factor", [0.25, 1.0, 8.0])
def test_moves_and_noise_scaled_together_change_nothing(mechanism, factor):
    event = Release(mechanism=mechanism.example())
    both = scaled(ClippingBound().applied(event, factor), factor)
    before, after = event.mechanism.privacy_loss(), both.mechanism.privacy_loss()
    assert both.mechanism.sensitivity.adjacency == event.mechanism.sensitivity.adjacency
    assert after.renyi(3.0) == pytest.approx(before.renyi(3.0), rel=1e-12)


@pytest.mark.parametrize(
    "parameter", [NoiseScale(), ClippingBound(), SamplingProbability(), SampleSize(at="/events/1"), Steps(at="/events/0")]
)
def test_limits_are_values_of_events(parameter):
    for value in parameter.limits(tree()):
        TypeAdapter(Event).validate_python(parameter.applied(tree(), value))


@pytest.mark.parametrize(
    "parameter",
    [NoiseScale(at="/event"), ClippingBound(), SamplingProbability(at="/events/0"), SampleSize(), Steps()],
    ids=lambda p: p.kind,
)
def test_parameters_keep_their_json_form(parameter):
    adapter = TypeAdapter(Parameter)
    assert adapter.validate_json(adapter.dump_json(parameter)) == parameter


@pytest.mark.parametrize(
    "parameter", [NoiseScale(at="/events/2"), ClippingBound(), SamplingProbability(), SampleSize(), Steps(at="/events/0")]
)
@pytest.mark.parametrize("order", [2.0, 16.0])
def test_the_forecast_falls_with_safety(parameter, order):
    forecast = Forecast(tree(), parameter, order)
    values = (
        [forecast.log_mu(value) for value in (1.0, 3.0, 9.0, 27.0)] if parameter.whole else [forecast.log_mu(0.1 * k) for k in range(1, 9)]
    )
    assert values == sorted(values, reverse=parameter.more_is_safer)
    assert len(set(values)) == len(values)


def test_the_forecast_of_whole_gaussian_releases_is_exact():
    event = Composed(events=(gaussian(0.5), Repeated(count=9, event=complex_gaussian(2.0))))
    assert Forecast(event, NoiseScale(at="/events/0"), 2.0).log_mu(2.0) == pytest.approx(0.5 * math.log(1.0 + 9.0 / 4.0), rel=1e-14)


@pytest.mark.parametrize(
    ("parameter", "epsilon", "value"),
    [
        # Losses of 2 (once) and of 0.5 (four times), so far.
        (NoiseScale(), 8.0, 0.5),
        (NoiseScale(at="/events/1"), 3.0, 2.0),
        (ClippingBound(at="/events/0"), 3.0, 0.5),
        (Steps(), 5.9, 7.5),
        (Steps(), 6.0, 8.5),
        (Steps(), 2.1, 1.5),
    ],
)
def test_the_value_with_which_pure_epsilons_add_up_to_the_target_is_known(parameter, epsilon, value):
    event = Composed(events=(laplace(0.5), Repeated(count=4, event=laplace(2.0))))
    assert Forecast(event, parameter, 2.0).pure_value(epsilon) == pytest.approx(value, rel=1e-14)


@pytest.mark.parametrize(
    ("event", "parameter", "epsilon"),
    [
        (Composed(events=(laplace(0.5), laplace(2.0))), NoiseScale(at="/events/1"), 2.0),
        (Composed(events=(laplace(0.5), gaussian(1.0))), NoiseScale(), 2.0),
        (PoissonSampled(probability=0.5, event=laplace(1.0)), NoiseScale(), 2.0),
        (PoissonSampled(probability=0.5, event=laplace(1.0)), SamplingProbability(), 2.0),
    ],
    ids=["nothing left", "Gaussian noise", "samples", "probability"],
)
def test_without_pure_epsilons_to_add_up_no_such_value_is_known(event, parameter, epsilon):
    assert Forecast(event, parameter, 2.0).pure_value(epsilon) is None
