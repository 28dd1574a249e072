from __future__ import annotations

import subprocess
import sys

import pytest
from dp_accounting import dp_event as library
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from dp_accounting.privacy_accountant import NeighboringRelation
from dp_accounting.rdp.rdp_privacy_accountant import RdpAccountant

from tests.accountants.events import complex_gaussian, fixed_size, gaussian, laplace, replace_one_gaussian, training
from tests.selection import chosen, thinned
from zetadp.accountants import Composed, Grouped, NonPrivate, PoissonSampled, Release, Repeated, leaves, profile
from zetadp.accountants.dominating import pair_of
from zetadp.accountants.dp_accounting_events import _ONLY_THERE, from_dp_accounting, to_dp_accounting
from zetadp.mechanisms import ComplexGaussian, Gaussian, GdpGuarantee, InvalidParameter, PureGuarantee, Sensitivity

RELATIONS = {
    "add_remove": NeighboringRelation.ADD_OR_REMOVE_ONE,
    "zero_out": NeighboringRelation.REPLACE_SPECIAL,
    "replace_one": NeighboringRelation.REPLACE_ONE,
}
THEIRS = [
    library.GaussianDpEvent(1.3),
    library.LaplaceDpEvent(0.7),
    library.NonPrivateDpEvent(),
    library.PoissonSampledDpEvent(0.01, library.GaussianDpEvent(1.1)),
    library.PoissonSampledDpEvent(0.2, library.LaplaceDpEvent(3.0)),
    library.SampledWithoutReplacementDpEvent(1000, 16, library.GaussianDpEvent(1.1)),
    library.SelfComposedDpEvent(library.PoissonSampledDpEvent(0.01, library.GaussianDpEvent(1.1)), 100),
    library.RepeatAndSelectDpEvent(library.GaussianDpEvent(1.3), 10.0, float("inf")),
    library.RepeatAndSelectDpEvent(library.SelfComposedDpEvent(library.LaplaceDpEvent(9.0), 3), 10.0, 0.0),
    library.ComposedDpEvent([library.RepeatAndSelectDpEvent(library.GaussianDpEvent(1.3), 2.0, 1.0), library.LaplaceDpEvent(9.0)]),
    library.RepeatAndSelectDpEvent(library.GaussianDpEvent(1.3), 10.0, 0.5),
    library.ComposedDpEvent([library.GaussianDpEvent(2.0), library.SelfComposedDpEvent(library.LaplaceDpEvent(9.0), 3)]),
]


def _read(event, adjacency="add_remove"):
    return from_dp_accounting(event, adjacency=adjacency, unit="record")


@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize("event", thinned(THEIRS, every=4), ids=str)
def test_events_come_back_as_they_were(event, adjacency):
    assert to_dp_accounting(_read(event, adjacency)) == event


OURS = {
    "gaussian": gaussian(1.7),
    "complex": Repeated(count=3, event=complex_gaussian(1.5, 0.4)),
    "laplace": laplace(2.0),
    "training": training(0.02, 0.9, 200),
    "replaced": Repeated(count=5, event=PoissonSampled(probability=0.1, event=replace_one_gaussian(1.5, 0.8))),
    "difference only": gaussian(1.7, adjacency="replace_one"),
    "zeroed": training(0.1, 2.0, 20, adjacency="zero_out"),
    "fixed size": fixed_size(3, 100, 0.9, 7),
    "fixed size replaced": fixed_size(3, 100, 0.9, 7, adjacency="replace_one"),
    "nested": PoissonSampled(probability=0.5, event=PoissonSampled(probability=0.5, event=gaussian())),
    "group": Grouped(size=3, unit="user", event=Repeated(count=2, event=gaussian(2.0))),
    "group of laplace": Grouped(size=3, unit="user", event=laplace(5.0)),
    "declared gdp": Release(mechanism=GdpGuarantee(mu=0.7, adjacency="add_remove", unit="record")),
    "declared gdp, replaced": Release(mechanism=GdpGuarantee(mu=0.7, adjacency="replace_one", unit="record")),
    "shared sample": PoissonSampled(probability=0.1, event=Composed(events=(gaussian(3.0), Repeated(count=4, event=gaussian(2.0))))),
    "whole, as a sample": PoissonSampled(probability=1.0, event=Composed(events=(gaussian(3.0), laplace(2.0)))),
    "mixture": Composed(events=(gaussian(3.0), laplace(5.0), training(0.1, 2.0, 20), NonPrivate(reason="test"))),
}


def _pairs(event):
    found = {}
    for leaf, count in leaves(event).items():
        pair = pair_of(leaf)
        key = pair.family, tuple(round(s, 12) for s in (*pair.upper.shifts, *pair.lower.shifts)), pair.upper.weights, pair.worst_of_both
        found[key] = found.get(key, 0) + count
    return found


@pytest.mark.parametrize("name", thinned(OURS, every=5))
def test_the_dominating_pairs_survive_the_way_there_and_back(name):
    event = OURS[name]
    adjacency = next(iter(leaves(event))).mechanism.neighbours[0]
    assert _pairs(_read(to_dp_accounting(event), adjacency)) == _pairs(event)


def test_complex_noise_sampled_under_replace_one_is_written_with_what_one_unit_contributes():
    sensitivity = Sensitivity(l2=2.0, l2_contribution=1.0, adjacency="replace_one", unit="record")
    event = PoissonSampled(probability=0.25, event=Release(mechanism=ComplexGaussian(std=3.0, sensitivity=sensitivity)))
    written = to_dp_accounting(event)
    assert written.sampling_probability == 0.25
    assert written.event.noise_multiplier == pytest.approx(3.0, rel=1e-14)


@pytest.mark.parametrize("adjacency", thinned(RELATIONS, every=2))
@pytest.mark.parametrize(
    "event",
    thinned(
        [
            library.GaussianDpEvent(1.3),
            library.SelfComposedDpEvent(library.PoissonSampledDpEvent(0.05, library.GaussianDpEvent(1.1)), 200),
            library.SelfComposedDpEvent(library.GaussianDpEvent(4.0), 10),
        ],
        every=2,
    ),
    ids=str,
)
def test_epsilon_is_bounded_as_the_librarys_own_under_every_neighbouring_relation(event, adjacency):
    peer = PLDAccountant(RELATIONS[adjacency], value_discretization_interval=1e-3).compose(event).get_epsilon(1e-4)
    ours = profile(_read(event, adjacency), "rdp").epsilon(1e-4).upper
    # The Renyi bound is an upper one, and loose by a known share.
    assert peer * (1 - 1e-3) <= ours <= 1.4 * peer + 0.05


def test_releases_of_one_sample_cost_what_the_librarys_renyi_accountant_says():
    several = library.ComposedDpEvent([library.GaussianDpEvent(2.0), library.SelfComposedDpEvent(library.GaussianDpEvent(3.0), 4)])
    event = library.SelfComposedDpEvent(library.PoissonSampledDpEvent(0.05, several), 200)
    peer = RdpAccountant().compose(event).get_epsilon(1e-5)
    ours = _read(event)
    assert 0.85 * peer <= profile(ours).epsilon(1e-5).upper <= profile(ours, "rdp").epsilon(1e-5).upper <= peer * (1.0 + 1e-9)


def test_the_librarys_renyi_accountant_halves_replace_one_and_ours_does_not():
    # Seen in 0.6.0: it reads a bound on one unit's values as one on the difference of two.
    event = library.GaussianDpEvent(1.3)
    truth = PLDAccountant(RELATIONS["replace_one"], value_discretization_interval=1e-3).compose(event).get_epsilon(1e-4)
    peer = RdpAccountant(neighboring_relation=RELATIONS["replace_one"]).compose(event).get_epsilon(1e-4)
    assert peer < 0.5 * truth < truth * (1 - 1e-3) <= profile(_read(event, "replace_one")).epsilon(1e-4).upper


def test_laplace_epsilon_agrees_with_the_librarys():
    event = library.SelfComposedDpEvent(library.LaplaceDpEvent(100.0), 1000)
    peer = PLDAccountant(RELATIONS["add_remove"], value_discretization_interval=1e-3).compose(event).get_epsilon(1e-6)
    assert peer * 0.99 <= profile(_read(event), "rdp").epsilon(1e-6).upper <= 1.1 * peer


def test_a_group_of_sampled_records_is_written_as_a_mixture_with_the_same_weights():
    event = Grouped(size=2, unit="user", event=PoissonSampled(probability=0.25, event=gaussian(2.0)))
    written = to_dp_accounting(event)
    assert isinstance(written, library.MixtureOfGaussiansDpEvent)
    assert (written.standard_deviation, list(written.sensitivities)) == (1.0, [0.0, 0.5, 1.0])
    assert list(written.sampling_probs) == pytest.approx([9 / 16, 6 / 16, 1 / 16], rel=1e-15)


def test_a_mixture_of_two_gaussians_is_a_poisson_sample():
    found = _read(library.MixtureOfGaussiansDpEvent(3.0, [0.0, 2.0], [0.9, 0.1]))
    assert _pairs(found) == _pairs(PoissonSampled(probability=0.1, event=gaussian(1.5)))


def test_a_mixture_under_replace_one_is_a_sample_of_what_one_unit_contributes_and_costs_more_than_either_order_of_its_own_pair():
    event = library.MixtureOfGaussiansDpEvent(3.0, [0.0, 2.0], [0.9, 0.1])
    found = _read(event, "replace_one")
    assert _pairs(found) == _pairs(PoissonSampled(probability=0.1, event=replace_one_gaussian(1.5)))
    one_more_or_less = profile(_read(event))
    for epsilon in (0.0, 0.3, 1.0):
        assert profile(found).delta(epsilon).lower > one_more_or_less.delta(epsilon).upper


def test_a_mixture_under_replace_one_that_takes_everybody_is_a_whole_release_of_twice_the_contribution():
    found = _read(library.MixtureOfGaussiansDpEvent(3.0, [2.0], [1.0]), "replace_one")
    assert profile(found).gdp_mu == pytest.approx(4.0 / 3.0, rel=1e-15)


@pytest.mark.parametrize(
    "event",
    [
        library.SelfComposedDpEvent(library.GaussianDpEvent(1.0), 0),
        library.PoissonSampledDpEvent(0.0, library.GaussianDpEvent(1.0)),
        library.SampledWithoutReplacementDpEvent(10, 0, library.GaussianDpEvent(1.0)),
        library.ComposedDpEvent([]),
        library.NoOpDpEvent(),
    ],
    ids=str,
)
def test_what_does_nothing_is_left_out_and_alone_is_refused(event):
    assert _read(library.ComposedDpEvent([library.GaussianDpEvent(2.0), event])) == _read(
        library.ComposedDpEvent([library.GaussianDpEvent(2.0)])
    )
    with pytest.raises(InvalidParameter, match="it does nothing, and there is no event here that does nothing"):
        _read(event)


def test_no_noise_is_no_privacy():
    assert profile(_read(library.PoissonSampledDpEvent(0.1, library.GaussianDpEvent(0.0)))).epsilon(1e-5).upper == float("inf")


@pytest.mark.parametrize(
    ("event", "name"),
    [
        (library.RandomizedResponseDpEvent(0.5, 2), "RandomizedResponseDpEvent"),
        (library.SampledWithReplacementDpEvent(10, 2, library.GaussianDpEvent(1.0)), "SampledWithReplacementDpEvent"),
        (library.SingleEpochTreeAggregationDpEvent(1.0, 3), "SingleEpochTreeAggregationDpEvent under add_remove"),
        (library.ZCDpEvent(0.1, 0.2), "ZCDpEvent with xi = 0.2"),
        (library.UnsupportedDpEvent(), "UnsupportedDpEvent"),
        (
            library.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0, -2.0], [0.8, 0.1, 0.1]),
            "MixtureOfGaussiansDpEvent with a sensitivity below 0",
        ),
        (
            library.PoissonSampledDpEvent(0.1, library.ComposedDpEvent([library.GaussianDpEvent(1.0), library.ZCDpEvent(1.0, 0.0)])),
            "PoissonSampledDpEvent of ComposedDpEvent",
        ),
        (
            library.PoissonSampledDpEvent(0.1, library.SampledWithoutReplacementDpEvent(10, 2, library.GaussianDpEvent(1.0))),
            "PoissonSampledDpEvent of SampledWithoutReplacementDpEvent",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_exists_only_there_is_refused_by_its_name_wherever_it_stands(event, name):
    inside = library.ComposedDpEvent([library.GaussianDpEvent(2.0), library.SelfComposedDpEvent(event, 2)])
    with pytest.raises(InvalidParameter, match=f"one that exists here and in dp-accounting, got .{name}"):
        _read(inside)


@pytest.mark.parametrize(
    ("event", "text"),
    thinned(
        [
            (library.GaussianDpEvent(-1.0), "GaussianDpEvent.noise_multiplier must be >= 0, got -1.0"),
            (library.PoissonSampledDpEvent(1.5, library.GaussianDpEvent(1.0)), "sampling_probability must be in [0, 1], got 1.5"),
            (
                library.SampledWithoutReplacementDpEvent(10, 11, library.GaussianDpEvent(1.0)),
                "sample_size must be at most population_size = 10",
            ),
            (
                library.SelfComposedDpEvent(library.GaussianDpEvent(1.0), 2.7),
                "SelfComposedDpEvent.count must be a whole number >= 0, got 2.7",
            ),
            (
                library.SelfComposedDpEvent(library.GaussianDpEvent(1.0), float("inf")),
                "SelfComposedDpEvent.count must be a whole number >= 0, got inf",
            ),
            (
                library.SelfComposedDpEvent(library.GaussianDpEvent(1.0), -1),
                "SelfComposedDpEvent.count must be a whole number >= 0, got -1",
            ),
            (
                library.SampledWithoutReplacementDpEvent(10, 1.5, library.GaussianDpEvent(1.0)),
                "SampledWithoutReplacementDpEvent.sample_size must be a whole number >= 0, got 1.5",
            ),
        ],
        every=3,
    ),
    ids=str,
)
def test_numbers_out_of_range_are_named(event, text):
    with pytest.raises(ValueError, match="must be") as caught:
        _read(event)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (Grouped(size=2, unit="user", event=fixed_size(1, 10, 1.0, 2)), "a group with a sample of a fixed size"),
        (
            Grouped(size=2, unit="user", event=PoissonSampled(probability=0.1, event=laplace())),
            "a group with Poisson-sampled Laplace noise",
        ),
        (
            Grouped(size=2, unit="user", event=PoissonSampled(probability=0.1, event=replace_one_gaussian(1.0))),
            "a group with Poisson samples, or random shares, under replace_one",
        ),
        (PoissonSampled(probability=0.1, event=Composed(events=(gaussian(), laplace()))), "Gaussian and Laplace noise of one sample"),
    ],
    ids=["fixed size", "laplace", "replaced", "both noises"],
)
def test_what_exists_only_here_is_refused(event, text):
    with pytest.raises(InvalidParameter, match=text):
        to_dp_accounting(event)


def test_the_multiplier_is_the_noise_over_the_contribution():
    sensitivity = Sensitivity(l2=0.5, adjacency="add_remove", unit="record")
    assert to_dp_accounting(Release(mechanism=Gaussian(std=0.35, sensitivity=sensitivity))) == library.GaussianDpEvent(0.35 / 0.5)


def test_the_library_is_loaded_only_when_it_is_needed():
    code = "import sys, zetadp.accountants, zetadp.accountants.dp_accounting_events; sys.exit('dp_accounting' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


READ = {
    "RepeatAndSelectDpEvent",
    "DiscreteLaplaceDpEvent",
    "ZCDpEvent",
    "NoOpDpEvent",
    "NonPrivateDpEvent",
    "GaussianDpEvent",
    "LaplaceDpEvent",
    "SelfComposedDpEvent",
    "ComposedDpEvent",
    "PoissonSampledDpEvent",
    "SampledWithoutReplacementDpEvent",
    "MixtureOfGaussiansDpEvent",
    "SingleEpochTreeAggregationDpEvent",
    "TruncatedSubsampledGaussianDpEvent",
}


def test_every_event_of_the_library_is_read_or_refused_with_a_reason():
    there = {name for name, kind in vars(library).items() if isinstance(kind, type) and issubclass(kind, library.DpEvent)}
    assert there - {"DpEvent"} == READ | set(_ONLY_THERE)
    assert not READ & set(_ONLY_THERE)


def test_zcdp_is_a_declared_guarantee_there_and_back():
    event = library.ComposedDpEvent([library.GaussianDpEvent(2.0), library.ZCDpEvent(0.1)])
    found = _read(event)
    assert profile(found).rdp(4.0) == pytest.approx(4.0 * (0.1 + 1 / 8), rel=1e-9)
    assert to_dp_accounting(found) == event
    assert to_dp_accounting(Grouped(size=2, unit="user", event=_read(library.ZCDpEvent(0.1)))) == library.ZCDpEvent(0.4)
    with pytest.raises(InvalidParameter, match="pure_dp, which is only declared"):
        to_dp_accounting(Release(mechanism=PureGuarantee(epsilon=0.1, adjacency="add_remove", unit="record")))


@pytest.mark.parametrize("noise", chosen([0.5, 0.3, 1.0], [1.0]))
def test_discrete_laplace_noise_there_and_back(noise):
    event = library.DiscreteLaplaceDpEvent(noise, 2)
    found = _read(event)
    assert (found.mechanism.moves, found.mechanism.scale) == (2, pytest.approx(1.0 / noise, rel=1e-15))
    assert found.mechanism.scale * noise <= 1.0
    back = to_dp_accounting(found)
    assert (back.noise_parameter, back.sensitivity) == (pytest.approx(noise, rel=1e-15), 2)
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
    theirs = accountant.compose(event, 3).get_epsilon(1e-5)
    ours = profile(Repeated(count=3, event=found)).epsilon(1e-5)
    assert ours.lower <= theirs <= 1.001 * ours.upper
    assert _read(library.DiscreteLaplaceDpEvent(0.0, 1)).kind == "non_private"
    with pytest.raises(InvalidParameter, match="under replace_one"):
        _read(event, "replace_one")


def test_an_event_that_nobody_knows_is_refused_by_its_name():
    class NewDpEvent(library.DpEvent):
        pass

    with pytest.raises(InvalidParameter, match="NewDpEvent: it is unknown here"):
        _read(NewDpEvent())


@pytest.mark.parametrize(("steps", "nodes"), thinned([(1, 1), (2, 2), (3, 2), (4, 3), (7, 3), (8, 4), ([3, 8, 1], 4), (1000, 10)], every=3))
def test_a_record_is_in_the_nodes_above_its_leaf(steps, nodes):
    found = _read(library.SingleEpochTreeAggregationDpEvent(6.0, steps), "zero_out")
    assert [(leaf.mechanism.noise_scale, count) for leaf, count in leaves(found).items()] == [(6.0, nodes)]


@pytest.mark.parametrize("steps", thinned(range(1, 70), every=5))
def test_no_leaf_of_a_tree_has_more_nodes_above_it_than_are_counted_and_one_has_as_many(steps):
    # A node of level h is summed up once its 2^h leaves are there.
    above = [sum(1 for h in range(8) if (leaf // 2**h + 1) * 2**h <= steps) for leaf in range(steps)]
    found = _read(library.SingleEpochTreeAggregationDpEvent(6.0, steps), "zero_out")
    assert sum(leaves(found).values()) == max(above)


def test_epsilon_of_trees_is_at_most_that_of_the_librarys_renyi_accountant():
    event = library.SelfComposedDpEvent(library.SingleEpochTreeAggregationDpEvent(6.0, [100, 30]), 3)
    peer = RdpAccountant(neighboring_relation=RELATIONS["zero_out"]).compose(event).get_epsilon(1e-5)
    ours = profile(_read(event, "zero_out"))
    assert 0.9 * peer <= ours.epsilon(1e-5).upper <= peer
    assert ours.gdp_mu == pytest.approx((3 * 7) ** 0.5 / 6.0)


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_trees_are_refused_where_a_record_may_move_others(adjacency):
    with pytest.raises(InvalidParameter, match=f"SingleEpochTreeAggregationDpEvent under {adjacency}: a record more or less"):
        _read(library.SingleEpochTreeAggregationDpEvent(6.0, 8), adjacency)


def test_a_sampled_tree_is_refused():
    tree = library.SingleEpochTreeAggregationDpEvent(6.0, 8)
    for inside in (tree, library.ComposedDpEvent([library.GaussianDpEvent(1.0), library.SelfComposedDpEvent(tree, 2)])):
        with pytest.raises(InvalidParameter, match="PoissonSampledDpEvent of SingleEpochTreeAggregationDpEvent"):
            _read(library.PoissonSampledDpEvent(0.1, inside), "zero_out")


def test_trees_of_no_step_do_nothing_and_without_noise_have_no_guarantee():
    with pytest.raises(InvalidParameter, match="it does nothing"):
        _read(library.SingleEpochTreeAggregationDpEvent(6.0, []), "zero_out")
    assert isinstance(_read(library.SingleEpochTreeAggregationDpEvent(0.0, 8), "zero_out"), NonPrivate)


def test_an_unknown_adjacency_is_refused():
    with pytest.raises(ValueError, match="'replace_two' is not a valid Adjacency"):
        _read(library.GaussianDpEvent(1.0), "replace_two")
