from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from tests.accountants.events import complex_gaussian, fixed_size, gaussian, laplace, training
from tests.golden.oracles import oracle_rows
from tests.selection import thinned
from zetadp.accountants import Composed, NonPrivate, Repeated, Target, accountant_named, calibrate, calibrate_scale, leaves, profile
from zetadp.accountants.accountant import Accountant
from zetadp.accountants.calibration import (
    ClippingBound,
    NoiseScale,
    RdpPoint,
    SampleSize,
    SamplingProbability,
    Solution,
    Steps,
    TradeOffPoint,
    solve,
)
from zetadp.accountants.calibration.scaling import scaled
from zetadp.mechanisms import CalibrationFailed, InvalidParameter, UnsupportedEvent


class Counting(Accountant):
    """Another accountant's answers, and how many profiles were asked for."""

    sources = ()
    summary = "counts"

    def __init__(self, name):
        self._inner, self.name, self.profiles = accountant_named(name), name, 0

    def unsupported_parts(self, parts):
        return self._inner.unsupported_parts(parts)

    def _profile(self, parts):
        self.profiles += 1
        return self._inner.of_parts(parts)


@pytest.mark.parametrize(("inputs", "oracle"), thinned(oracle_rows("gaussian_calibration"), every=3))
def test_gaussian_noise_is_the_least_that_suffices(inputs, oracle):
    exact = float(oracle["value"]["sigma_component"]) / float(inputs["Delta"])
    factor = calibrate_scale(gaussian(1.0), epsilon=float(inputs["eps"]), delta=float(inputs["delta"]))
    assert exact <= factor <= exact * (1 + 1e-12)


@pytest.mark.parametrize(
    ("epsilon", "delta", "probability", "count", "exact"),
    [(3.0, 1e-5, 0.01, 10_000, 1.564965535), (1.0, 1e-6, 0.001, 100_000, 1.505833562)],
)
def test_sampled_noise_is_safe_and_tight(epsilon, delta, probability, count, exact):
    factor = calibrate_scale(training(probability, 1.0, count), epsilon=epsilon, delta=delta)
    assert exact * (1 - 1e-9) <= factor <= exact * (1 + 1e-6)


EVENTS = {
    "gaussian": gaussian(0.3),
    "complex": complex_gaussian(5.0, 0.9),
    "laplace": laplace(2.0),
    "training": training(0.05, 3.0, 50),
    "mixture": Composed(events=(gaussian(), laplace(), training(0.1, 1.0, 10))),
}


@pytest.mark.parametrize("name", thinned(EVENTS, every=3))
@pytest.mark.parametrize(
    "target", thinned([Target(epsilon=1.0, delta=1e-5), Target(epsilon=0.0, delta=0.01), Target(advantage=0.2)], every=2), ids=str
)
def test_the_calibrated_event_meets_the_target_and_less_noise_does_not(name, target):
    auto = accountant_named("auto")
    event, _ = calibrate(EVENTS[name], target, auto)
    assert target.excess(auto.profile(event)) <= 0.0
    assert target.excess(auto.profile(scaled(event, 1.0 - 1e-5))) > 0.0


TARGETS = [
    Target(epsilon=1.0, delta=1e-5),
    Target(epsilon=8.0, delta=1e-9),
    Target(epsilon=0.0, delta=0.1),
    Target(advantage=0.2),
    Target(rdp=RdpPoint(order=8.0, value=0.5)),
    Target(rdp=RdpPoint(order=2.0, value=0.01)),
    Target(trade_off=TradeOffPoint(alpha=0.05, beta=0.7)),
]
PARAMETERS = [
    (NoiseScale(), training(0.01, 2.0, 100)),
    (NoiseScale(at="/events/1"), Composed(events=(gaussian(30.0), Repeated(count=3, event=laplace(9.0))))),
    (ClippingBound(), training(0.01, 2.0, 100, adjacency="zero_out")),
    (ClippingBound(at="/event"), Repeated(count=5, event=complex_gaussian(0.2, 0.5))),
    (SamplingProbability(), training(0.5, 1.5, 40)),
    (Steps(), training(0.002, 1.3, 1)),
    (Steps(), laplace(300.0)),
]


@pytest.mark.parametrize("target", thinned(TARGETS, every=4), ids=lambda target: target.kind)
@pytest.mark.parametrize(("parameter", "event"), PARAMETERS, ids=lambda value: getattr(value, "kind", ""))
def test_every_parameter_meets_every_target_and_slightly_less_safe_values_miss_it(parameter, event, target):
    rdp = accountant_named("rdp")
    solution = solve(event, parameter, target, rdp)
    assert target.excess(rdp.profile(solution.event)) <= 0.0
    assert solution.event == parameter.applied(event, solution.value)
    less_safe = solution.value + 1 if parameter.whole else solution.value * (1.0 - 1e-5 if parameter.more_is_safer else 1.0 + 1e-5)
    assert target.excess(rdp.profile(parameter.applied(event, less_safe))) > 0.0


@pytest.mark.parametrize("target", thinned([target for target in TARGETS if target.rdp is None], every=3), ids=lambda target: target.kind)
@pytest.mark.parametrize(("parameter", "event"), thinned(PARAMETERS, every=4), ids=lambda value: getattr(value, "kind", ""))
def test_what_one_accountant_calibrates_the_tightest_one_confirms(parameter, event, target):
    solution = solve(event, parameter, target, accountant_named("rdp"))
    assert target.excess(profile(solution.event)) <= 1e-12


@pytest.mark.parametrize("target", thinned(TARGETS, every=3), ids=lambda target: target.kind)
def test_a_sample_of_fixed_size_is_the_largest_that_suffices(target):
    event, auto = fixed_size(10, 1000, 2.0, 20), accountant_named("auto")
    solution = solve(event, SampleSize(), target, auto)
    assert target.excess(auto.profile(solution.event)) <= 0.0
    assert target.excess(auto.profile(SampleSize().applied(event, solution.value + 1))) > 0.0


@pytest.mark.parametrize(
    ("probability", "count", "epsilon", "delta"),
    thinned(
        [(0.01, 10_000, 3.0, 1e-5), (0.001, 100_000, 1.0, 1e-6), (0.1, 200, 2.0, 1e-9), (0.02, 1000, 0.5, 1e-5), (1.0, 50, 2.0, 1e-6)],
        every=3,
    ),
)
@pytest.mark.parametrize(
    "parameter", thinned([NoiseScale(), ClippingBound(), SamplingProbability(), Steps()], every=2), ids=lambda p: p.kind
)
def test_usual_targets_take_at_most_six_profiles(probability, count, epsilon, delta, parameter):
    accountant = Counting("contour" if probability < 1.0 else "auto")
    solution = solve(training(probability, 5.0, count), parameter, Target(epsilon=epsilon, delta=delta), accountant)
    assert solution.evaluations == accountant.profiles <= 6


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 12.0])
@pytest.mark.parametrize(
    ("parameter", "most"), [(NoiseScale(), 4), (ClippingBound(), 4), (Steps(), 3)], ids=lambda of: getattr(of, "kind", "")
)
def test_few_pure_releases_take_few_profiles(parameter, most, epsilon):
    accountant = Counting("auto")
    solution = solve(laplace(1.7 / epsilon if parameter.whole else 1.0), parameter, Target(epsilon=epsilon, delta=1e-5), accountant)
    assert solution.evaluations == accountant.profiles <= most


@pytest.mark.parametrize("probability", [0.01, 0.3])
def test_more_privacy_asked_takes_more_noise_fewer_steps_and_smaller_samples(probability):
    event, rdp = training(probability, 1.0, 100), accountant_named("rdp")
    targets = [Target(epsilon=epsilon, delta=1e-6) for epsilon in (0.3, 1.0, 3.0, 10.0)]
    noise = [solve(event, NoiseScale(), target, rdp).value for target in targets]
    steps = [solve(scaled(event, 50.0), Steps(), target, rdp).value for target in targets]
    samples = [solve(event, SamplingProbability(), target, rdp).value for target in targets]
    assert noise == sorted(noise, reverse=True)
    assert (steps, samples) == (sorted(steps), sorted(samples))


@pytest.mark.parametrize(
    ("mu", "parameter", "value"),
    [
        (0.25, NoiseScale(), math.sqrt(1.0 + 100.0 / 4.0) / 0.25),
        (2.0, NoiseScale(at="/events/1"), math.sqrt(25.0 / 3.0)),
        (2.0, ClippingBound(at="/events/1"), math.sqrt(3.0 / 25.0)),
        (2.0, Steps(), 12.0),
    ],
)
def test_gaussian_events_are_calibrated_to_mu_in_closed_form(mu, parameter, value):
    event = Composed(events=(gaussian(1.0), Repeated(count=100, event=gaussian(2.0))))
    solution = solve(event, parameter, Target(gdp_mu=mu), accountant_named("auto"))
    assert solution.value == pytest.approx(value, rel=1e-12)
    assert profile(solution.event).gdp_mu <= mu
    assert solution.evaluations <= 2


def test_mu_target_is_met_exactly():
    event, factor = calibrate(complex_gaussian(2.0, 0.5), Target(gdp_mu=0.25), accountant_named("gdp"))
    assert (factor, profile(event).gdp_mu) == (pytest.approx(math.sqrt(2.0) / 0.5, rel=1e-12), pytest.approx(0.25, rel=1e-12))
    assert profile(event).gdp_mu <= 0.25


def test_mu_target_for_a_sampled_event_is_refused():
    with pytest.raises(UnsupportedEvent, match="Gaussian and not sampled"):
        calibrate(training(0.1, 1.0, 10), Target(gdp_mu=1.0), accountant_named("auto"))


def test_the_trade_off_of_a_gaussian_event_is_calibrated_to_its_mu():
    solution = solve(gaussian(), NoiseScale(), Target(trade_off=TradeOffPoint(alpha=0.05, beta=0.7)), accountant_named("auto"))
    # Phi^-1(0.95) - Phi^-1(0.7)
    assert 1.0 / solution.value == pytest.approx(1.120453114243, rel=1e-10)
    assert profile(solution.event).trade_off(0.05) >= 0.7


def test_every_record_may_be_sampled_where_noise_suffices():
    solution = solve(training(0.1, 100.0, 10), SamplingProbability(), Target(epsilon=1.0, delta=1e-5), accountant_named("rdp"))
    assert (solution.value, solution.at_limit, solution.misses_at) == (1.0, True, None)


def test_the_most_steps_there_are_is_an_answer():
    solution = solve(training(1e-9, 100.0, 10), Steps(), Target(epsilon=1.0, delta=1e-5), accountant_named("rdp"))
    assert (solution.value, solution.at_limit) == (1e12, True)
    assert next(iter(leaves(solution.event).values())) == 10**12


@pytest.mark.parametrize(("count", "std"), [(10**12, 1.0), (10**9, 0.7)])
def test_astronomical_counts_are_calibrated(count, std):
    target, rdp = Target(epsilon=1.0, delta=1e-5), accountant_named("rdp")
    solution = solve(training(0.01, std, count), NoiseScale(), target, rdp)
    assert target.excess(rdp.profile(solution.event)) <= 0.0 < target.excess(rdp.profile(scaled(solution.event, 1.0 - 1e-5)))


@pytest.mark.parametrize("parameter", [NoiseScale(), Steps()], ids=lambda p: p.kind)
def test_no_noise_helps_a_non_private_event(parameter):
    with pytest.raises(CalibrationFailed, match="no noise can help"):
        solve(NonPrivate(reason="raw labels"), parameter, Target(epsilon=1.0, delta=1e-5), accountant_named("auto"))


@pytest.mark.parametrize(
    ("event", "parameter", "text"),
    [
        (Composed(events=(gaussian(1.0), training(0.1, 1.0, 100))), NoiseScale(at="/events/1"), "no noise in the searched range is proved"),
        (training(0.1, 0.1, 100), Steps(), "no number of steps in the searched range is proved to meet the target"),
        (Composed(events=(gaussian(1.0), training(0.1, 1.0, 100))), SamplingProbability(), "no sampling probability in the searched range"),
        (Composed(events=(gaussian(1.0), laplace(1.0))), ClippingBound(at="/events/1"), "no clipping bound in the searched range"),
    ],
)
def test_a_target_out_of_reach_fails_with_the_bracket(event, parameter, text):
    with pytest.raises(CalibrationFailed, match=text) as caught:
        solve(event, parameter, Target(epsilon=1.0, delta=1e-6), accountant_named("auto"))
    low, high = caught.value.bracket
    assert 0.0 < low < high


@pytest.mark.parametrize(("parameter", "text"), [(NoiseScale(), "hardly any noise"), (ClippingBound(), "hardly any noise")])
def test_a_target_that_hardly_any_noise_meets_is_refused(parameter, text):
    with pytest.raises(CalibrationFailed, match=text):
        solve(training(0.5, 1.0, 1000), parameter, Target(epsilon=1e40, delta=1e-6), accountant_named("auto"))


@pytest.mark.parametrize("probability", [1e-9, 1e-8, 1.2e-8])
def test_sampling_so_sparse_that_noise_hardly_matters_still_has_a_safe_answer(probability):
    target, rdp = Target(epsilon=1.0, delta=1e-5), Counting("rdp")
    solution = solve(training(probability, 1.0, 1000), NoiseScale(), target, rdp)
    assert target.excess(rdp.profile(solution.event)) <= 0.0
    assert solution.evaluations <= 20


@pytest.mark.parametrize(
    ("fields", "text"),
    thinned(
        [
            ({"epsilon": 1.0}, "target must be epsilon and delta together, got 'only one of the two'"),
            ({}, "target must be exactly one of"),
            ({"gdp_mu": 1.0, "advantage": 0.1}, "target must be exactly one of"),
            ({"epsilon": 1.0, "delta": 1.0}, "Input should be less than 1"),
            ({"trade_off": {"alpha": 0.5, "beta": 0.5}}, "trade_off must be alpha + beta < 1 (any guess has alpha + beta = 1)"),
            ({"rdp": {"order": 1.0, "value": 0.5}}, "order must be > 1, got 1.0"),
        ],
        every=2,
    ),
)
def test_bad_targets_are_refused(fields, text):
    with pytest.raises(ValidationError) as caught:
        Target.model_validate(fields)
    assert text in str(caught.value)


@pytest.mark.parametrize("target", thinned(TARGETS, every=3), ids=lambda target: target.kind)
def test_targets_and_solutions_keep_their_json_form(target):
    solution = solve(training(0.1, 1.0, 10), NoiseScale(at="/event"), target, accountant_named("rdp"))
    assert Target.model_validate_json(target.model_dump_json()) == target
    assert Solution.model_validate_json(solution.model_dump_json()) == solution


def test_a_tiny_epsilon_is_met_where_delta_alone_covers_it():
    factor = calibrate_scale(training(0.28, 1.0, 200), epsilon=1e-90, delta=1e-5)
    event = training(0.28, factor, 200)
    assert profile(event).delta(0.0).upper <= 1e-5
    assert profile(training(0.28, 0.999 * factor, 200)).epsilon(1e-5).upper > 0.0


def test_a_target_that_the_accountant_cannot_speak_of_is_refused():
    with pytest.raises(UnsupportedEvent, match="an rdp target needs accountant rdp, gdp or auto"):
        solve(training(0.1, 1.0, 10), NoiseScale(), Target(rdp=RdpPoint(order=2.0, value=0.1)), accountant_named("pld"))


def test_an_event_without_the_parameter_is_refused():
    with pytest.raises(InvalidParameter, match="poisson_sampled in it"):
        solve(gaussian(), SamplingProbability(), Target(advantage=0.1), accountant_named("auto"))
