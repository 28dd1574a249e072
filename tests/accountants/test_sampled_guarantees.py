"""Samples of what only a guarantee is declared of: against noise, closed forms, and mechanisms on few outcomes. proofs/pairs.md, row 10"""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest

from zetadp.accountants import (
    FixedSizeSampled,
    Grouped,
    PoissonSampled,
    RandomlyAllocated,
    Release,
    Repeated,
    Shuffled,
    TruncatedPoissonSampled,
    profile,
)
from zetadp.accountants.dominating import pair_of, statement
from zetadp.accountants.dp_accounting_events import to_dp_accounting
from zetadp.accountants.events import leaves
from zetadp.mechanisms import (
    ApproximateGuarantee,
    Gaussian,
    GdpGuarantee,
    InvalidParameter,
    NoisyMax,
    PureGuarantee,
    RangeGuarantee,
    Sensitivity,
    SparseVector,
    UnsupportedEvent,
    ZcdpGuarantee,
)

Q = 0.02
SHAPES = {
    "poisson": lambda event: PoissonSampled(probability=Q, event=event),
    "fixed size": lambda event: FixedSizeSampled(sample_size=20, population_size=1000, event=event),
    "cut": lambda event: TruncatedPoissonSampled(probability=Q, largest_batch=30, population_size=1000, event=event),
    "allocated": lambda event: RandomlyAllocated(steps=10, event=event),
    "shuffled": lambda event: Shuffled(steps=10, event=event),
}


def who(adjacency="add_remove"):
    return {"adjacency": adjacency, "unit": "record"}


def pair(event, size=1):
    (leaf,) = leaves(Grouped(size=size, unit="user", event=event) if size > 1 else event)
    return pair_of(leaf)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize(
    ("shape", "adjacency"),
    [
        *((shape, "add_remove") for shape in ("poisson", "fixed size", "cut", "allocated")),
        *(("fixed size", adjacency) for adjacency in ("replace_one", "zero_out")),
        *(("shuffled", adjacency) for adjacency in ("replace_one", "zero_out")),
    ],
)
def test_a_sample_of_gdp_has_the_pair_of_a_sample_of_gaussian_noise(shape, adjacency, size):
    declared = SHAPES[shape](Release(mechanism=GdpGuarantee(mu=0.5, **who(adjacency))))
    noise = SHAPES[shape](Release(mechanism=Gaussian(std=2.0, sensitivity=Sensitivity(l2=1.0, **who(adjacency)))))
    assert pair(declared, size) == pair(noise, size)


PURE = [
    PureGuarantee(epsilon=1.5, **who()),
    RangeGuarantee(eta=1.5, **who()),
    NoisyMax(noise="gumbel", scale=2.0, score_sensitivity=1.5, **who()),
    SparseVector(threshold_scale=2.0, query_scale=4.0, query_sensitivity=1.5, most_above=1, **who()),
]


@pytest.mark.parametrize("mechanism", PURE, ids=lambda one: one.kind)
@pytest.mark.parametrize("size", [1, 3])
def test_a_poisson_sample_of_pure_privacy_is_amplified(mechanism, size):
    expected = size * math.log1p(Q * math.expm1(1.5))
    event = SHAPES["poisson"](Release(mechanism=mechanism))
    assert pair(event, size).distance == pytest.approx(expected, rel=1e-14)
    assert profile(event).epsilon(1e-300).upper == pytest.approx(expected / size, rel=1e-12)
    # Each release's own epsilon bounds a composition.
    assert profile(Repeated(count=5, event=event)).epsilon(1e-12).upper <= 5 * expected / size * (1 + 1e-12)


@pytest.mark.parametrize(("adjacency", "factor"), [("add_remove", 2.0), ("replace_one", 1.0), ("zero_out", 2.0)])
def test_records_that_displace_others_count_twice(adjacency, factor):
    def event(size):
        release = Release(mechanism=PureGuarantee(epsilon=0.7, **who(adjacency)))
        return FixedSizeSampled(sample_size=size, population_size=1000, event=release)

    assert pair(event(20)).distance == pytest.approx(math.log1p(Q * math.expm1(0.7 * factor)), rel=1e-14)
    # Where all are in the sample, one displaces another only if neighbours differ in size.
    assert pair(event(1000)).distance == pytest.approx(1.4 if adjacency == "add_remove" else 0.7, rel=1e-14)


def test_huge_epsilons_neither_overflow_nor_lose_digits():
    for epsilon, expected in ((1e4, 1e4 + math.log(Q)), (699.0, 699.0 + math.log(Q)), (1e-30, 2e-32)):
        event = SHAPES["poisson"](Release(mechanism=PureGuarantee(epsilon=epsilon, **who())))
        assert pair(event).distance == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(
    ("mechanism", "shapes", "reason"),
    [
        (PureGuarantee(epsilon=0.5, **who("replace_one")), ["poisson", "cut"], "says nothing of data without it"),
        (GdpGuarantee(mu=0.5, **who("zero_out")), ["poisson", "cut", "allocated"], "says nothing of data without it"),
        (PureGuarantee(epsilon=0.5, **who()), ["cut", "allocated"], "have no dominating pair that is proved here"),
        (ZcdpGuarantee(rho=0.1, **who()), SHAPES, "what a sample of zcdp guarantees isn't known here"),
        (ApproximateGuarantee(epsilon=0.5, delta=1e-6, **who()), SHAPES, "what a sample of approximate_dp guarantees isn't known here"),
    ],
    ids=["left out", "nulls", "cut", "zcdp", "may fail"],
)
def test_what_is_not_proved_is_refused_with_its_reason(mechanism, shapes, reason):
    for shape in shapes:
        with pytest.raises(UnsupportedEvent, match=reason):
            profile(SHAPES[shape](Release(mechanism=mechanism)))


def test_derivations_say_what_a_sample_is():
    (leaf,) = leaves(SHAPES["poisson"](Release(mechanism=PURE[0])))
    assert statement(leaf)[1] == "proofs/pairs.md, row 10"


# -- attacks ---------------------------------------------------------------------------------------------------------------------------


def laws(generator, subsets, neighbours, epsilon, outcomes=3):
    """A random law for every data set, with neighbours within epsilon of each other, often exactly."""
    logs = {one: np.array([generator.choice([0.0, 1.0, generator.random()]) for _ in range(outcomes)]) * epsilon for one in subsets}
    for _ in range(60):
        worst = 0.0
        found = {one: values - np.log(np.exp(values).sum()) for one, values in logs.items()}
        for one, other in neighbours:
            worst = max(worst, float(np.abs(found[one] - found[other]).max()))
        if worst <= epsilon:
            break
        logs = {one: values * min(epsilon / worst, 0.97) for one, values in logs.items()}
    scale = min(epsilon / worst, 1.0) if worst else 1.0
    assert scale > 0.9
    return {one: np.exp(values) for one, values in found.items()}, max(worst, 1e-300)


def loss(p, q):
    return float(np.abs(np.log(p) - np.log(q)).max())


@pytest.mark.parametrize("seed", range(20))
def test_mechanisms_on_few_records_are_within_the_bounds(seed):
    generator = random.Random(seed)
    q, records = generator.uniform(0.05, 0.95), range(4)
    subsets = [frozenset(one) for size in range(5) for one in itertools.combinations(records, size)]
    joined = [(one, one | {more}) for one in subsets for more in records if more not in one]
    law, epsilon = laws(generator, subsets, joined, generator.uniform(0.2, 3.0))

    def sampled(data):
        chosen = [(frozenset(one), q ** len(one) * (1 - q) ** (len(data) - len(one))) for one in subsets if one <= data]
        return sum(weight * law[one] for one, weight in chosen)

    def fixed(data, size):
        chosen = [frozenset(one) for one in itertools.combinations(sorted(data), size)]
        return sum(law[one] for one in chosen) / len(chosen)

    def bound(event, size=1):
        return pair(event, size).distance * (1 + 1e-9) + 1e-12

    release = Release(mechanism=PureGuarantee(epsilon=epsilon, **who()))
    poisson = PoissonSampled(probability=q, event=release)
    assert loss(sampled(frozenset({0, 1, 2})), sampled(frozenset({0, 1, 2, 3}))) <= bound(poisson)
    assert loss(sampled(frozenset({0})), sampled(frozenset({0, 1, 2, 3}))) <= bound(poisson, 3)
    one_of = FixedSizeSampled(sample_size=2, population_size=4, event=release)
    assert loss(fixed(frozenset({0, 1, 2}), 2), fixed(frozenset({0, 1, 2, 3}), 2)) <= bound(one_of)
    # Under replace_one: the last record is 2 or, in its place, 3.
    swapped = [(one, one - {2} | {3}) for one in subsets if 2 in one and 3 not in one]
    alike = [(one, other) for one, other in itertools.combinations(subsets, 2) if len(one) == len(other) and len(one ^ other) == 2]
    law, epsilon = laws(generator, subsets, [*swapped, *alike], generator.uniform(0.2, 3.0))
    replaced = FixedSizeSampled(
        sample_size=2, population_size=3, event=Release(mechanism=PureGuarantee(epsilon=epsilon, **who("replace_one")))
    )
    assert loss(fixed(frozenset({0, 1, 2}), 2), fixed(frozenset({0, 1, 3}), 2)) <= bound(replaced)


def test_the_bound_is_attained_by_one_release():
    # Randomized response on whether the record is there.
    epsilon, q = 1.3, 0.2
    without = np.array([1.0, math.exp(epsilon)]) / (1 + math.exp(epsilon))
    release = Release(mechanism=PureGuarantee(epsilon=epsilon, **who()))
    mixed = (1 - q) * without + q * without[::-1]
    assert loss(mixed, without) == pytest.approx(pair(PoissonSampled(probability=q, event=release)).distance, rel=1e-12)


@pytest.mark.parametrize("adjacency", ["replace_one", "zero_out"])
def test_refused_samples_arent_exported_either(adjacency):
    event = SHAPES["poisson"](Release(mechanism=GdpGuarantee(mu=0.5, **who(adjacency))))
    with pytest.raises(InvalidParameter, match="says nothing of data without it"):
        to_dp_accounting(event)
