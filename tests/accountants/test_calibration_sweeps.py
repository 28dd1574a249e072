from __future__ import annotations

import math

import numpy as np
import pytest

from tests.accountants.events import gaussian, training
from tests.selection import thinned
from zetadp.accountants import Composed, NonPrivate, Target, accountant_named
from zetadp.accountants.calibration import NoiseScale, RdpPoint, SamplingProbability, Solution, Steps, TradeOffPoint, solve, solve_many
from zetadp.mechanisms import CalibrationFailed, InvalidParameter, UnsupportedEvent

EPSILONS = [Target(epsilon=float(epsilon), delta=1e-5) for epsilon in np.geomspace(0.3, 10.0, 12)]
DELTAS = [Target(epsilon=1.0, delta=float(delta)) for delta in np.geomspace(1e-12, 1e-3, 12)]


SWEEPS = [
    pytest.param(parameter, targets, id=f"{parameter.kind}-{name}")
    for name, targets in (("epsilons", EPSILONS), ("deltas", DELTAS))
    for parameter in (NoiseScale(), Steps(), SamplingProbability())
]


@pytest.mark.parametrize(("parameter", "targets"), thinned(SWEEPS, every=2))
def test_a_sweep_says_what_its_targets_say_alone(parameter, targets):
    event, rdp = training(0.01, 3.0, 1000), accountant_named("rdp")
    solutions = solve_many(event, parameter, targets, rdp)
    assert [solution.target for solution in solutions] == targets
    for solution, target in zip(solutions, targets, strict=True):
        assert target.excess(rdp.profile(solution.event)) <= 0.0
        assert solution.value == pytest.approx(solve(event, parameter, target, rdp).value, rel=0.0 if parameter.whole else 1e-6)


def test_neighbours_shorten_the_search():
    event, rdp = training(0.01, 1.0, 10_000), accountant_named("rdp")
    targets = [Target(epsilon=float(epsilon), delta=1e-5) for epsilon in np.geomspace(0.3, 10.0, 40)]
    swept = [solution.evaluations for solution in solve_many(event, NoiseScale(), targets, rdp)]
    alone = [solve(event, NoiseScale(), target, rdp).evaluations for target in targets]
    assert sum(swept) <= 0.8 * sum(alone)
    assert max(swept) <= 4


def test_the_order_of_targets_does_not_matter_to_the_answers():
    event, rdp = training(0.01, 1.0, 1000), accountant_named("rdp")
    forward = solve_many(event, NoiseScale(), EPSILONS, rdp)
    assert solve_many(event, NoiseScale(), EPSILONS[::-1], rdp)[::-1] == forward


def test_targets_of_all_kinds_and_repeated_ones_share_a_sweep():
    targets = [
        Target(epsilon=1.0, delta=1e-5),
        Target(advantage=0.1),
        Target(rdp=RdpPoint(order=4.0, value=0.3)),
        Target(epsilon=1.0, delta=1e-5),
        Target(trade_off=TradeOffPoint(alpha=0.1, beta=0.8)),
        Target(epsilon=0.0, delta=0.1),
    ]
    rdp = accountant_named("rdp")
    solutions = solve_many(training(0.01, 1.0, 1000), NoiseScale(), targets, rdp)
    assert all(target.excess(rdp.profile(solution.event)) <= 0.0 for target, solution in zip(targets, solutions, strict=True))
    assert solutions[0].value == pytest.approx(solutions[3].value, rel=1e-6)
    assert solutions[1].value == pytest.approx(solutions[5].value, rel=1e-6)


def test_a_target_out_of_reach_spoils_no_other():
    event = Composed(events=(gaussian(10.0), training(0.01, 1.0, 100)))
    targets = [Target(epsilon=epsilon, delta=1e-6) for epsilon in (0.05, 1.0, 0.1)]
    solutions = solve_many(event, NoiseScale(at="/events/1"), targets, accountant_named("rdp"))
    assert [type(solution) for solution in solutions] == [CalibrationFailed, Solution, CalibrationFailed]


def test_a_kind_of_target_that_the_event_has_not_spoils_no_other():
    solutions = solve_many(training(0.01, 1.0, 100), NoiseScale(), [Target(gdp_mu=1.0), Target(advantage=0.1)], accountant_named("rdp"))
    assert [type(solution) for solution in solutions] == [UnsupportedEvent, Solution]


def test_a_sweep_of_nothing_is_empty():
    assert solve_many(gaussian(), NoiseScale(), [], accountant_named("auto")) == ()


def test_what_is_wrong_for_all_targets_is_raised():
    with pytest.raises(InvalidParameter, match="poisson_sampled in it"):
        solve_many(gaussian(), SamplingProbability(), EPSILONS, accountant_named("auto"))
    with pytest.raises(CalibrationFailed, match="no noise can help"):
        solve_many(NonPrivate(reason="raw labels"), NoiseScale(), EPSILONS, accountant_named("auto"))


def test_a_sweep_of_a_closed_form_is_exact():
    targets = [Target(gdp_mu=float(mu)) for mu in np.geomspace(1e-3, 1e3, 9)]
    for solution, target in zip(solve_many(gaussian(2.0), NoiseScale(), targets, accountant_named("auto")), targets, strict=True):
        assert isinstance(solution, Solution)
        assert solution.value == pytest.approx(0.5 / target.mu, rel=1e-12)
        assert math.isfinite(solution.value)
