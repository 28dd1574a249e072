"""What is said of an event's releases, and the figures that follow from it: sizes of samples and of groups are the event's own."""

from __future__ import annotations

import pytest

from tests.accountants.two_point_truth import local_laplace, response
from tests.selection import thinned
from zetadp.accountants import ACCOUNTANTS
from zetadp.accountants.events import (
    Composed,
    Event,
    FixedSizeSampled,
    Grouped,
    PoissonSampled,
    RandomlyAllocated,
    Release,
    Repeated,
    Shuffled,
    TruncatedPoissonSampled,
)
from zetadp.app.certificates.facts.claims import falling, guarantee_of, why_no_epsilon_without_sampling, without_sampling
from zetadp.app.certificates.facts.decimals import upper
from zetadp.app.certificates.facts.guarantee import ApproximateDp, DeltaPoint
from zetadp.app.certificates.facts.report import Status
from zetadp.app.certificates.verification import recomputation
from zetadp.app.certificates.verification.recomputation import check_figures
from zetadp.app.certificates.words.releases import (
    ADJACENCY_MEANING,
    NOISE,
    largest_group,
    noise_figures,
    noise_phrase,
    release_phrase,
    releases_of,
    sampling_in_words,
    sensitivity_figures,
)
from zetadp.mechanisms import MECHANISMS, Gaussian, InvalidParameter, PureGuarantee, RandomOrigin, Sensitivity
from zetadp.mechanisms.base import Adjacency

DELTA = 1e-5


def release(adjacency: Adjacency = Adjacency.ADD_REMOVE, l2: float = 1.0, contribution: float | None = None, std: float = 3.0) -> Release:
    return Release(
        mechanism=Gaussian(std=std, sensitivity=Sensitivity(l2=l2, l2_contribution=contribution, adjacency=adjacency, unit="record"))
    )


def fixed(sample: int, population: int, adjacency: Adjacency = Adjacency.ADD_REMOVE) -> FixedSizeSampled:
    return FixedSizeSampled(sample_size=sample, population_size=population, event=release(adjacency))


EVENTS: dict[str, Event] = {
    "fixed size": Repeated(count=50, event=fixed(10, 100)),
    "fixed size, replaced": Repeated(count=5, event=fixed(10, 100, Adjacency.REPLACE_ONE)),
    "fixed size, nulls": Repeated(count=5, event=fixed(10, 100, Adjacency.ZERO_OUT)),
    "cut": Repeated(
        count=50, event=TruncatedPoissonSampled(probability=0.1, largest_batch=20, population_size=100, event=release(Adjacency.ADD_REMOVE))
    ),
    "allocated": Repeated(count=2, event=RandomlyAllocated(steps=6, event=release())),
    "shuffled": Repeated(count=2, event=Shuffled(steps=20, event=release(Adjacency.ZERO_OUT))),
    "users": Grouped(size=4, unit="user", event=Repeated(count=50, event=PoissonSampled(probability=0.05, event=release()))),
    "replaced": Repeated(count=50, event=PoissonSampled(probability=0.1, event=release(Adjacency.REPLACE_ONE, 2.0, 1.0))),
    "mixed": Composed(events=(Repeated(count=20, event=fixed(10, 100)), PoissonSampled(probability=0.1, event=release()), release())),
    "responses": Repeated(count=20, event=response(0.5)),
    "even response": Repeated(count=20, event=response(0.5, dimension=14)),
    "users' responses": Grouped(size=4, unit="user", event=Repeated(count=5, event=response(0.25))),
    "sampled responses": Repeated(count=50, event=PoissonSampled(probability=0.1, event=response(0.5))),
    "local, fixed size": Repeated(count=50, event=FixedSizeSampled(sample_size=10, population_size=100, event=local_laplace(0.5))),
}


# Releases


def test_a_sample_of_fixed_size_is_told_with_both_sizes() -> None:
    (found,) = releases_of(EVENTS["fixed size"])
    assert sampling_in_words(found) == "10 of 100, without replacement"
    assert release_phrase(found, "record") == (
        "50 releases with Gaussian noise of standard deviation 3.0 on each real component, on samples of exactly 10 of 100 "
        "(counted in units of one record)"
    )


def test_shuffled_batches_are_told_as_such() -> None:
    (found,) = releases_of(EVENTS["shuffled"])
    assert sampling_in_words(found) == "each unit in one of the 20 batches of a shuffled epoch"
    assert release_phrase(found, "record") == (
        "2 releases with Gaussian noise of standard deviation 3.0 on each real component, each over the 20 batches of a "
        "shuffled epoch, of which each record is in one"
    )


def test_samples_of_one_rate_and_different_sizes_are_told_apart() -> None:
    found = releases_of(Composed(events=(fixed(10, 100), Repeated(count=3, event=fixed(20, 200)), fixed(10, 100))))
    assert [(one.count, sampling_in_words(one)) for one in found] == [
        (2, "10 of 100, without replacement"),
        (3, "20 of 200, without replacement"),
    ]


def test_everybody_in_the_sample_is_not_called_all_of_the_data() -> None:
    # One record displaces another even then.
    assert sampling_in_words(releases_of(fixed(100, 100))[0]) == "100 of 100, without replacement"


def test_poisson_sampling_of_everybody_is_all_of_the_data() -> None:
    assert sampling_in_words(releases_of(PoissonSampled(probability=1.0, event=release()))[0]) == "all of the data"
    assert (
        sampling_in_words(releases_of(PoissonSampled(probability=0.1, event=release()))[0])
        == "each unit independently with probability 0.1"
    )


def test_group_size_is_that_of_all_nested_groups() -> None:
    event = Grouped(size=3, unit="hospital", event=Grouped(size=20, unit="patient", event=release()))
    (found,) = releases_of(event)
    assert sensitivity_figures(found) == "l2 1.0; groups of up to 60 of the unit 'record'"
    assert release_phrase(found, "hospital").endswith("on all of the data, where one hospital holds at most 60 units (record)")
    assert largest_group(event) == 60


def test_a_null_record_contributes_nothing() -> None:
    assert ADJACENCY_MEANING[Adjacency.ZERO_OUT].endswith("replaced by a null unit, which contributes nothing")


def test_more_releases_than_one_repetition_holds_are_counted() -> None:
    many = Repeated(count=1000, event=Repeated(count=10**12, event=release()))
    assert releases_of(many)[0].count == 10**15


def test_a_local_release_is_told_with_its_box_and_its_parameter() -> None:
    (duchi,) = releases_of(EVENTS["even response"])
    assert noise_figures(duchi.mechanism) == {"epsilon": "0.5"}
    assert noise_phrase(duchi.mechanism) == (
        "random signs (Duchi, Jordan and Wainwright 2018) at epsilon 0.5 for each record, separately for every record of 14 coordinates in "
        "[0.0, 1.0]"
    )
    (noise,) = releases_of(EVENTS["local, fixed size"])
    assert noise_figures(noise.mechanism) == {"Laplace scale": "4.0"}
    assert noise_phrase(noise.mechanism) == "Laplace noise of scale 4.0, separately for every record of 2 coordinates in [0.0, 1.0]"


def test_every_mechanism_of_the_service_has_words_for_what_it_adds() -> None:
    assert NOISE.keys() == {one.kind_name() for one in MECHANISMS}


def test_a_group_of_local_releases_is_told_although_each_is_accounted_by_itself() -> None:
    assert largest_group(EVENTS["users' responses"]) == 4
    (found,) = releases_of(EVENTS["users' responses"])
    assert found.count == 5
    assert release_phrase(found, "user").endswith("where one user holds at most 4 units (record)")


# Figures


@pytest.fixture(scope="module", params=thinned(EVENTS, every=3))
def claim(request: pytest.FixtureRequest) -> tuple[Event, ApproximateDp]:
    event = EVENTS[request.param]
    guarantee = guarantee_of(event, DELTA, RandomOrigin.OPERATING_SYSTEM)
    assert isinstance(guarantee, ApproximateDp)
    return event, guarantee


def test_figures_of_every_kind_of_event_are_recomputed(claim: tuple[Event, ApproximateDp]) -> None:
    checks = check_figures(*claim)
    assert [check for check in checks if check.status is Status.FAILED] == []


def test_a_smaller_epsilon_is_caught_for_every_kind_of_event(claim: tuple[Event, ApproximateDp]) -> None:
    event, guarantee = claim
    smaller = ApproximateDp.model_validate({**dict(guarantee), "epsilon": f"{0.9 * float(guarantee.epsilon):.6f}", "epsilon_lower": "0"})
    assert Status.FAILED in {check.status for check in check_figures(event, smaller)}


def test_a_sample_that_is_cut_is_told_with_its_numbers() -> None:
    (found,) = releases_of(EVENTS["cut"])
    assert sampling_in_words(found) == "each unit independently with probability 0.1, cut to at most 20, of at most 100"
    assert release_phrase(found, "record") == (
        "50 releases with Gaussian noise of standard deviation 3.0 on each real component, each record drawn with probability 0.1, samples "
        "cut to at most 20 of at most 100 (counted in units of one record)"
    )


def test_a_random_allocation_is_told_with_its_steps() -> None:
    (found,) = releases_of(EVENTS["allocated"])
    assert sampling_in_words(found) == "each unit in one of 6 releases, chosen uniformly"
    assert release_phrase(found, "record") == (
        "2 releases with Gaussian noise of standard deviation 3.0 on each real component, each over 6 steps, of which each record takes "
        "part in one, chosen uniformly"
    )


@pytest.mark.parametrize("name", ["fixed size", "fixed size, replaced", "cut", "allocated", "mixed"])
def test_samples_of_fixed_size_have_no_epsilon_without_sampling(name: str) -> None:
    # Whole releases with this noise are mu = 1/3 each; the sampled ones displace records, at twice the distance.
    assert without_sampling(EVENTS[name]) is None


def test_a_certificate_says_why_samples_of_fixed_size_have_no_epsilon_without_sampling() -> None:
    guarantee = guarantee_of(EVENTS["fixed size"], DELTA, RandomOrigin.OPERATING_SYSTEM)
    assert isinstance(guarantee, ApproximateDp)
    assert guarantee.epsilon_without_sampling is None
    assert why_no_epsilon_without_sampling(EVENTS["fixed size"]).startswith("samples have a fixed or largest size, or hold")
    assert why_no_epsilon_without_sampling(release()).startswith("nothing was sampled")


def test_groups_stay_groups_without_sampling() -> None:
    assert without_sampling(EVENTS["users"]) == Grouped(size=4, unit="user", event=Repeated(count=50, event=release()))


def _points(*pairs: tuple[str, str]) -> list[DeltaPoint]:
    return [DeltaPoint(epsilon=epsilon, delta=delta) for epsilon, delta in pairs]


def test_a_curve_never_contradicts_itself_where_its_points_come_from_unlike_routes() -> None:
    curve = _points(("0", "0.1"), ("1", "0.2"), ("1.5", "9e-06"), ("2", "1e-05"), ("3", "2e-05"), ("4", "1e-09"))
    assert list(falling(curve, curve[3])) == _points(("0", "0.1"), ("1", "0.1"), ("2", "1e-05"), ("3", "1e-05"), ("4", "1e-09"))


def test_points_of_the_curve_that_no_route_reaches_are_said_not_to_be_checked() -> None:
    event = PoissonSampled(probability=0.01, event=release())
    guarantee = guarantee_of(event, DELTA, RandomOrigin.OPERATING_SYSTEM)
    assert isinstance(guarantee, ApproximateDp)
    beyond = DeltaPoint(epsilon="500", delta="1e-300")
    checks = check_figures(event, ApproximateDp.model_validate({**dict(guarantee), "delta_curve": (*guarantee.delta_curve, beyond)}))
    assert [check.detail for check in checks if check.name == "curve"] == ["no route reproduced delta at epsilon 500"]


def test_a_point_inside_every_bracket_is_not_taken_for_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recomputation, "_CURVE_SECONDS", 60.0)  # a slow machine asks for all points too
    event = Repeated(count=3, event=RandomlyAllocated(steps=6, event=release()))
    guarantee = guarantee_of(event, DELTA, RandomOrigin.OPERATING_SYSTEM)
    assert isinstance(guarantee, ApproximateDp)
    # As it was stated every point is proved; the true delta may be above what is stated below.
    assert [check for check in check_figures(event, guarantee) if check.name == "curve"] == []
    point = guarantee.delta_curve[-1]
    bounds = [one.profile(event).delta(float(point.epsilon)) for one in ACCOUNTANTS if one.unsupported(event) is None]
    lower, least = max(bound.lower for bound in bounds), min(bound.upper for bound in bounds)
    inside = DeltaPoint(epsilon=point.epsilon, delta=upper((lower + least) / 2))
    claim = ApproximateDp.model_validate({**dict(guarantee), "delta_curve": (*guarantee.delta_curve[:-1], inside)})
    checks = check_figures(event, claim)
    assert [check.name for check in checks if check.status is Status.FAILED] == []
    assert [check.detail for check in checks if check.name == "curve"] == [f"no route reproduced delta at epsilon {point.epsilon}"]


def test_what_is_only_declared_is_in_no_certificates_words() -> None:
    declared = Release(mechanism=PureGuarantee(epsilon=0.5, adjacency="add_remove", unit="record"))
    with pytest.raises(InvalidParameter, match="mechanisms that the service itself releases"):
        releases_of(Repeated(count=2, event=declared))


@pytest.mark.parametrize("probability", [0.1, 1.0])
def test_releases_that_share_a_sample_are_in_no_certificates_words(probability: float) -> None:
    with pytest.raises(InvalidParameter, match="single releases, each with a sample of its own"):
        releases_of(PoissonSampled(probability=probability, event=Composed(events=(release(), release(std=2.0)))))
