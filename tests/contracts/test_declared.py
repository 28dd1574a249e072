"""What everything that is only declared promises, run over the registry."""

from __future__ import annotations

from importlib.resources import files

import pytest
from pydantic import TypeAdapter, ValidationError

from tests.accountants.events import gaussian
from zetadp.accountants import Repeated, RepeatedAndSelected, leaves, profile
from zetadp.accountants.calibration.scaling import scaled
from zetadp.accountants.events import Event, Grouped, Release
from zetadp.app.calculators.caveats import caveats_of
from zetadp.mechanisms.base import Assumption
from zetadp.mechanisms.declared import DECLARED, CorrelatedNoise, NoisyMax, SparseVector, TreeAggregation
from zetadp.mechanisms.declared.runs import GeometricRuns, LogarithmicRuns, PoissonRuns, TruncatedNegativeBinomialRuns

EXAMPLES = [pytest.param(kind.example(), id=kind.kind_name()) for kind in DECLARED]
LAWS = (GeometricRuns(mean=3.0), LogarithmicRuns(mean=3.0), PoissonRuns(mean=3.0), TruncatedNegativeBinomialRuns(mean=3.0, shape=-0.5))
EVENTS = [
    *(pytest.param(Release(mechanism=kind.example()), id=kind.kind_name()) for kind in DECLARED),
    *(pytest.param(RepeatedAndSelected(runs=law, event=gaussian(4.0)), id=law.kind) for law in LAWS),
]
ADAPTER: TypeAdapter[Event] = TypeAdapter(Event)


@pytest.mark.parametrize("one", EVENTS)
def test_an_event_with_it_comes_back_from_json_exactly(one):
    event = Repeated(count=3, event=scaled(one, 1 / 3))
    assert ADAPTER.validate_json(event.model_dump_json()) == event


@pytest.mark.parametrize("declared", EXAMPLES)
def test_it_is_a_frozen_value_without_other_fields(declared):
    with pytest.raises(ValidationError, match="frozen"):
        declared.unit = "user"
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        type(declared).model_validate({**declared.model_dump(exclude_none=True), "sigma": 1.0})


@pytest.mark.parametrize("declared", EXAMPLES)
def test_more_noise_is_more_private_and_a_bare_guarantee_has_none(declared):
    found = [profile(Release(mechanism=one)).epsilon(1e-4).upper for one in (declared, declared.scaled(2.0))]
    if declared.noise_scale is None:
        assert declared.scaled(2.0) == declared
    else:
        assert declared.scaled(2.0).noise_scale == 2.0 * declared.noise_scale
        assert found[1] < found[0]


@pytest.mark.parametrize("declared", EXAMPLES)
def test_it_composes_and_a_group_pays_more(declared):
    one = Release(mechanism=declared)
    found = [
        profile(event).epsilon(1e-4).upper for event in (one, Repeated(count=3, event=one), Grouped(size=3, unit="household", event=one))
    ]
    assert 0.0 < found[0] < found[1] <= found[2] * (1 + 1e-9)
    assert list(leaves(one).values()) == [1]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.kind)
def test_a_selection_composes_and_a_group_pays_more(law):
    one = RepeatedAndSelected(runs=law, event=gaussian(4.0))
    found = [
        profile(event, "rdp").epsilon(1e-4).upper
        for event in (one, Repeated(count=3, event=one), Grouped(size=3, unit="household", event=one))
    ]
    assert 0.0 < found[0] < found[1] < found[2]
    assert list(leaves(one).values()) == [1]


@pytest.mark.parametrize("one", EVENTS)
def test_every_answer_says_that_it_trusts_the_declaration(one):
    assert all(Assumption.AS_DECLARED in type(leaf.mechanism).FACTS.assumptions for leaf in leaves(one))
    declared = "what is declared, unchecked, holds for all neighbours and earlier releases"
    assert declared in caveats_of(one)


def test_what_has_to_be_independent_is_the_noise_and_not_what_is_correlated_or_shared():
    for kind in (CorrelatedNoise, TreeAggregation, NoisyMax, SparseVector):
        assert "noise is independent across coordinates and releases" not in caveats_of(Release(mechanism=kind.example()))
    correlated, tree = (caveats_of(Release(mechanism=kind.example())) for kind in (CorrelatedNoise, TreeAggregation))
    assert "the underlying noise is independent across coordinates and steps" in correlated
    assert "noise is independent across coordinates and blocks" in tree
    assert correlated[0] == tree[0]
    assert tree[0].endswith("keeps the stated effect, number and separation of steps")


@pytest.mark.parametrize("declared", EXAMPLES)
def test_it_has_a_proof_and_a_derivation_of_its_numbers(declared):
    text = files("zetadp.mechanisms").joinpath("proofs", type(declared).FACTS.proof).read_text(encoding="utf-8")
    assert f"`{declared.kind}`" in text
    assert profile(Release(mechanism=declared)).derivation()[0].source
