"""What every accountant promises, run over the registry."""

from __future__ import annotations

import math
from collections.abc import Generator
from itertools import pairwise

import pytest

from tests.accountants.events import complex_gaussian, gaussian, laplace, training
from tests.accountants.two_point_truth import response
from tests.remembered import accounted_once
from tests.selection import chosen, thinned
from zetadp.accountants import ACCOUNTANTS, Composed, NonPrivate, PoissonSampled, RandomlyWeighted, Release, Repeated
from zetadp.accountants.calibration.scaling import scaled
from zetadp.mechanisms import ComplexGaussian, InvalidParameter, NumericalFloor, Sensitivity

EVENTS = {
    "gaussian": gaussian(1.5),
    "complex": Repeated(count=3, event=complex_gaussian(2.0, 0.4)),
    "laplace": Repeated(count=5, event=laplace(4.0)),
    "training": training(0.02, 0.9, 200),
    "response": Repeated(count=20, event=response(0.2)),
    "sampled response": Repeated(count=40, event=PoissonSampled(probability=0.5, event=response(0.3, dimension=4))),
    "shares": Repeated(count=20, event=RandomlyWeighted(shares=(0.4, 1.0), probabilities=(0.05, 0.02), event=gaussian(1.2))),
    "both noises": Repeated(count=20, event=PoissonSampled(probability=0.05, event=Composed(events=(gaussian(2.0), laplace(4.0))))),
    "mixture": Composed(events=(gaussian(3.0), laplace(5.0), training(0.1, 2.0, 20))),
}
CASES = [
    pytest.param(accountant, event, id=f"{accountant.name}-{name}")
    for accountant in ACCOUNTANTS
    for name, event in EVENTS.items()
    if accountant.unsupported(event) is None
]
EPSILONS = [0.0, 0.1, 0.4, 0.8, 1.1]
HELD_BY_MIXTURE = ("gaussian", "laplace", "training")
DEAREST = ("both noises",)
MIXING = [accountant.name for accountant in ACCOUNTANTS if accountant.unsupported(EVENTS["mixture"]) is None]
LEFT_OUT = [*((one, name) for one in MIXING for name in HELD_BY_MIXTURE), *((one.name, name) for one in ACCOUNTANTS for name in DEAREST)]
OF_DEFAULT = [case for case in CASES if (case.values[0].name, case.id.partition("-")[2]) not in LEFT_OUT]
"""Every accountant with every kind of event that it has, but for releases that it answers within the mixture too, and the dearest ones."""


def without(*dear):
    """The cases of which these are slow, as are those that the mixture holds."""
    return chosen(CASES, [case for case in OF_DEFAULT if case.id not in dear])


ONE_SEARCH = ["fft-gaussian", "fft-complex", "fft-laplace", "fft-training", "fft-mixture", "fft-shares", "auto-sampled response"]
"""The search for the best epsilon is the same for every event, and asks these for a new grid at each step of it."""


@pytest.fixture(autouse=True)
def each_event_is_accounted_once() -> Generator[None]:
    # Many tests ask the same: making a profile takes up to a second, and so does a point of it.
    with accounted_once():
        yield


@pytest.mark.parametrize(("accountant", "event"), without())
def test_delta_falls_with_epsilon(accountant, event):
    found = accountant.profile(event)
    deltas = [found.delta(epsilon).log_upper for epsilon in EPSILONS]
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(deltas))


@pytest.mark.parametrize(("accountant", "event"), without())
def test_delta_is_convex_in_the_exponential_of_epsilon(accountant, event):
    found = accountant.profile(event)
    low, middle, high = 0.2, math.log((math.exp(0.2) + math.exp(1.2)) / 2), 1.2
    assert found.delta(middle).lower <= (found.delta(low).upper + found.delta(high).upper) / 2 * (1 + 1e-9)


@pytest.mark.parametrize(("accountant", "event"), without())
def test_more_noise_means_less_loss(accountant, event):
    assert accountant.profile(scaled(event, 1.5)).epsilon(1e-5).upper < accountant.profile(event).epsilon(1e-5).upper


@pytest.mark.parametrize(("accountant", "event"), without())
def test_repeating_is_composing_with_itself(accountant, event):
    if accountant.unsupported(Repeated(count=3, event=event)) is not None:
        assert accountant.unsupported(Composed(events=(event,) * 3)) is not None
        return
    repeated, composed = accountant.profile(Repeated(count=3, event=event)), accountant.profile(Composed(events=(event,) * 3))
    assert repeated.epsilon(1e-5) == composed.epsilon(1e-5)


@pytest.mark.parametrize(("accountant", "event"), without("lattice-laplace"))
@pytest.mark.parametrize("delta", thinned([1e-6, 1e-3], every=2))
def test_no_upper_end_is_below_another_accountants_lower_end(accountant, event, delta):
    upper = accountant.profile(event).epsilon(delta).upper
    for other in ACCOUNTANTS:
        if other.unsupported(event) is None:
            assert other.profile(event).epsilon(delta).lower <= upper


@pytest.mark.parametrize(("accountant", "event"), without())
def test_epsilon_and_delta_agree(accountant, event):
    found = accountant.profile(event)
    assert found.delta(found.epsilon(1e-4).upper).upper <= 1e-4 * (1 + 1e-6)


@pytest.mark.parametrize(
    "alphas", [pytest.param((0.0, 0.05, 1.0), id="few"), pytest.param((0.0, 1e-4, 0.05, 0.5, 1.0), marks=pytest.mark.slow, id="more")]
)
@pytest.mark.parametrize(("accountant", "event"), without(*ONE_SEARCH))
def test_trade_off_never_exceeds_blind_guessing_and_falls(accountant, event, alphas):
    found = accountant.profile(event)
    betas = [found.trade_off(alpha) for alpha in alphas]
    assert all(beta <= 1 - alpha for alpha, beta in zip(alphas, betas, strict=True))
    assert betas == sorted(betas, reverse=True)


@pytest.mark.parametrize(("accountant", "event"), without())
def test_the_derivation_names_a_source_in_every_line(accountant, event):
    steps = accountant.profile(event).derivation()
    assert steps
    assert all(step.source and step.formula for step in steps)


@pytest.mark.parametrize(("accountant", "event"), without())
@pytest.mark.parametrize(
    ("ask", "text"),
    [
        (lambda p: p.epsilon(0.0), "delta must be in (0, 1), got 0.0"),
        (lambda p: p.epsilon(1.0), "delta must be in (0, 1), got 1.0"),
        (lambda p: p.delta(-1.0), "epsilon must be >= 0, got -1.0"),
        (lambda p: p.delta(math.nan), "epsilon must be >= 0, got nan"),
        (lambda p: p.rdp(1.0), "order must be finite and > 1, got 1.0"),
        (lambda p: p.trade_off(1.5), "alpha must be in [0, 1], got 1.5"),
    ],
)
def test_questions_out_of_range_are_refused(accountant, event, ask, text):
    with pytest.raises(InvalidParameter) as caught:
        ask(accountant.profile(event))
    assert str(caught.value) == text


@pytest.mark.parametrize("accountant", ACCOUNTANTS, ids=lambda a: a.name)
def test_an_event_with_a_non_private_part_has_no_guarantee(accountant):
    found = accountant.profile(Composed(events=(gaussian(), NonPrivate(reason="raw labels released"))))
    assert found.epsilon(1e-5).upper == math.inf
    assert found.delta(10.0).upper == 1.0


@pytest.mark.parametrize(("accountant", "event"), without())
def test_tiny_delta_is_answered_or_refused_but_never_understated(accountant, event):
    try:
        upper = accountant.profile(event).epsilon(1e-30).upper
    except NumericalFloor:
        return
    assert upper > accountant.profile(event).epsilon(1e-5).lower


def test_accountants_have_names_and_sources():
    assert [accountant.name for accountant in ACCOUNTANTS] == ["auto", "gdp", "single", "contour", "lattice", "fft", "rdp", "pld"]
    assert all(accountant.summary and accountant.sources for accountant in ACCOUNTANTS)


@pytest.mark.parametrize("accountant", ACCOUNTANTS, ids=lambda a: a.name)
@pytest.mark.parametrize(("std", "l2"), [(1e-50, 1e50), (1e50, 1e-50)])
def test_the_extremes_of_the_accepted_scales_are_answered_or_refused(accountant, std, l2):
    noise = ComplexGaussian(std=std, correlation=-0.9999999999999999, sensitivity=Sensitivity(l2=l2, adjacency="add_remove", unit="record"))
    event = Repeated(count=10**12, event=PoissonSampled(probability=1e-50, event=Release(mechanism=noise)))
    if accountant.unsupported(event) is not None:
        return
    bound = accountant.profile(event).epsilon(1e-5)
    assert 0.0 <= bound.lower <= bound.upper
    assert accountant.profile(event).delta(1.0).upper >= 0.0
