"""What a certificate says of an event: sizes of samples, groups and contributions are those of the event, and of nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from accountants.events import Composed, Event, FixedSizeSampled, Grouped, NonPrivate, PoissonSampled, Release, Repeated
from app.certificates.claims import falling, guarantee_of, without_sampling
from app.certificates.consistency import check_words
from app.certificates.facts import GroupFacts, ReleaseFacts, SamplingFacts, neighbourhood_of, releases_of
from app.certificates.guarantee import ApproximateDp, DeltaPoint
from app.certificates.issue import CertificateInput, predicate_of
from app.certificates.recomputation import check_figures
from app.certificates.report import Check, Status
from app.certificates.statement import PrivacyCertificate
from app.certificates.text import describe
from mechanisms import Gaussian, RandomOrigin, Sensitivity
from mechanisms.base import Adjacency
from trainer.data import data_set_facts

DELTA = 1e-5


def release(adjacency: Adjacency = Adjacency.ADD_REMOVE, l2: float = 1.0, contribution: float | None = None, std: float = 3.0) -> Release:
    return Release(
        mechanism=Gaussian(std=std, sensitivity=Sensitivity(l2=l2, l2_contribution=contribution, adjacency=adjacency, unit="record"))
    )


def fixed(sample: int, population: int, adjacency: Adjacency = Adjacency.ADD_REMOVE) -> FixedSizeSampled:
    return FixedSizeSampled(sample_size=sample, population_size=population, event=release(adjacency))


EVENTS: dict[str, Event] = {
    "fixed size": Repeated(count=50, event=fixed(10, 100)),
    "fixed size, replaced": Repeated(count=50, event=fixed(10, 100, Adjacency.REPLACE_ONE)),
    "fixed size, nulls": Repeated(count=50, event=fixed(10, 100, Adjacency.ZERO_OUT)),
    "users": Grouped(size=4, unit="user", event=Repeated(count=50, event=PoissonSampled(probability=0.05, event=release()))),
    "replaced": Repeated(count=50, event=PoissonSampled(probability=0.1, event=release(Adjacency.REPLACE_ONE, 2.0, 1.0))),
    "mixed": Composed(events=(Repeated(count=20, event=fixed(10, 100)), PoissonSampled(probability=0.1, event=release()), release())),
}


# Facts


def test_a_sample_of_fixed_size_is_stated_with_both_sizes() -> None:
    sampling = releases_of(EVENTS["fixed size"])[0].sampling
    assert sampling == SamplingFacts(kind="fixed_size", probability="0.1", sample_size=10, population_size=100)


def test_samples_of_one_rate_and_different_sizes_are_stated_apart() -> None:
    found = releases_of(Composed(events=(fixed(10, 100), Repeated(count=3, event=fixed(20, 200)), fixed(10, 100))))
    assert [(facts.sampling.sample_size, facts.sampling.population_size, facts.count) for facts in found] == [(10, 100, 2), (20, 200, 3)]


def test_everybody_in_the_sample_is_not_called_all_of_the_data() -> None:
    # One record displaces another even then.
    assert releases_of(fixed(100, 100))[0].sampling.kind == "fixed_size"


def test_poisson_sampling_of_everybody_is_all_of_the_data() -> None:
    assert releases_of(PoissonSampled(probability=1.0, event=release())) == releases_of(release())


def test_group_size_is_that_of_all_nested_groups() -> None:
    event = Grouped(size=3, unit="hospital", event=Grouped(size=20, unit="patient", event=release()))
    assert releases_of(event)[0].group == GroupFacts(size=60, of="record")


def test_the_unit_of_a_group_is_the_one_protected() -> None:
    neighbourhood = neighbourhood_of(EVENTS["users"])
    assert neighbourhood is not None
    assert neighbourhood.unit == "user"


def test_a_bound_on_contributions_is_stated() -> None:
    sensitivity = releases_of(EVENTS["replaced"])[0].mechanism.sensitivity
    assert (sensitivity.l2, sensitivity.l2_contribution, sensitivity.l1_contribution) == ("2.0", "1.0", None)


def test_facts_without_sizes_groups_and_contributions_keep_the_form_they_had() -> None:
    facts = json.loads(releases_of(PoissonSampled(probability=0.1, event=release()))[0].model_dump_json())
    assert set(facts) == {"mechanism", "sampling", "count"}
    assert set(facts["sampling"]) == {"kind", "probability"}
    assert set(facts["mechanism"]["sensitivity"]) == {"l1", "l2", "l2_real", "l2_imag"}


@pytest.mark.parametrize("name", EVENTS)
def test_facts_survive_their_json(name: str) -> None:
    for facts in releases_of(EVENTS[name]):
        assert ReleaseFacts.model_validate_json(facts.model_dump_json()) == facts


def test_a_null_record_contributes_nothing() -> None:
    neighbourhood = neighbourhood_of(EVENTS["fixed size, nulls"])
    assert neighbourhood is not None
    assert neighbourhood.meaning.endswith("replaced by a null unit, which contributes nothing")


def test_more_releases_than_one_repetition_holds_are_stated() -> None:
    many = Repeated(count=1000, event=Repeated(count=10**12, event=release()))
    assert releases_of(many)[0].count == 10**15


# Figures


@pytest.fixture(scope="module", params=list(EVENTS))
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


@pytest.mark.parametrize("name", ["fixed size", "fixed size, replaced", "mixed"])
def test_samples_of_fixed_size_have_no_epsilon_without_sampling(name: str) -> None:
    # Whole releases with this noise are mu = 1/3 each; the sampled ones displace records, at twice the distance.
    assert without_sampling(EVENTS[name]) is None


def test_a_certificate_says_why_samples_of_fixed_size_have_no_epsilon_without_sampling() -> None:
    guarantee = guarantee_of(EVENTS["fixed size"], DELTA, RandomOrigin.OPERATING_SYSTEM)
    assert isinstance(guarantee, ApproximateDp)
    assert guarantee.epsilon_without_sampling is None
    assert str(guarantee.epsilon_without_sampling_absent_because).startswith("samples have a fixed size")


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
    assert [check.detail for check in checks if check.name == "curve"] == ["no route recomputed delta at epsilon 500"]


# Words against the event


@pytest.fixture(scope="module")
def predicate(run: CertificateInput) -> PrivacyCertificate:
    return predicate_of(run, data_set_facts(run.spec.data))


@pytest.fixture
def words_for(predicate: PrivacyCertificate) -> Callable[..., Check]:
    """The check of a certificate whose releases are said to be those of another event, with other fields changed on top."""

    def check(event: Event, **changes: dict[str, Any]) -> Check:
        document = json.loads(predicate.model_dump_json())
        document |= {"event": json.loads(event.model_dump_json())}
        document |= {"releases": [json.loads(facts.model_dump_json()) for facts in releases_of(event)]}
        neighbourhood = neighbourhood_of(event)
        document["neighbourhood"] = None if neighbourhood is None else json.loads(neighbourhood.model_dump_json())
        document["steps"] = {"planned": 1, "released": sum(facts.count for facts in releases_of(event)) or 1}
        document["data"] |= {"expected_batch_size": 10, "training_records": 100}
        document["clipping"]["bound"] = "1.0"
        for name, fields in changes.items():
            document[name] |= fields
        return check_words(PrivacyCertificate.model_validate_json(json.dumps(document)))

    return check


@pytest.mark.parametrize("name", ["fixed size", "replaced", "mixed"])
def test_words_of_every_kind_of_event_agree(words_for: Callable[..., Check], name: str) -> None:
    assert words_for(EVENTS[name]).status is Status.PASSED


def test_sizes_of_samples_are_those_of_the_data(words_for: Callable[..., Check]) -> None:
    found = words_for(EVENTS["fixed size"], data={"expected_batch_size": 20, "training_records": 200})
    assert "expected_batch_size and training_records are 20 and 200, the event samples 10 of 100" in found.detail


def test_units_of_many_records_are_not_called_records(words_for: Callable[..., Check]) -> None:
    found = words_for(EVENTS["users"], data={"expected_batch_size": 5})
    assert found.detail == "data.units_are_records: the certificate says True, its event has groups of up to 4"


def test_units_of_many_records_may_be_certified_as_such(words_for: Callable[..., Check]) -> None:
    assert words_for(EVENTS["users"], data={"expected_batch_size": 5, "units_are_records": False}).status is Status.PASSED


def test_records_are_not_called_units_of_many(words_for: Callable[..., Check]) -> None:
    found = words_for(NonPrivate(reason="test"), data={"units_are_records": False})
    assert "data.units_are_records: the certificate says False" in found.detail


@pytest.mark.parametrize(("l2", "contribution"), [(1.0, 1.0), (2.0, 0.5), (1.0, None)])
def test_clipping_to_a_bound_lets_records_differ_by_twice_that(
    words_for: Callable[..., Check], l2: float, contribution: float | None
) -> None:
    found = words_for(Repeated(count=50, event=release(Adjacency.REPLACE_ONE, l2, contribution)))
    assert "clipping.bound: the certificate says 1.0, the event's sensitivity is for 0.5" in found.detail


# Read aloud


def test_text_tells_sizes_and_groups(predicate: PrivacyCertificate) -> None:
    event = Composed(events=(EVENTS["fixed size"], Repeated(count=7, event=release())))
    grouped = Grouped(size=20, unit="patient", event=event)
    text = describe(PrivacyCertificate.model_validate({**dict(predicate), "releases": releases_of(grouped), "event": grouped}))
    assert (
        "50 releases with gaussian noise of standard deviation 3.0 on each real component, on samples of exactly 10 of 100 records" in text
    )
    assert "on all of the data, where one protected unit holds at most 20 of the unit 'record'" in text
