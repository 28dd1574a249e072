r"""Plans of private selections: one event for all candidates, noise for the whole, and what isn't a selection."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tests.trainer.selection_documents import candidate, document
from zetadp import accountants
from zetadp.accountants.events import Composed, RepeatedAndSelected
from zetadp.mechanisms.declared.runs import PoissonRuns
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.specs.algorithms.private_selection import PrivateSelection
from zetadp.trainer.specs.algorithms.selection_plan import SelectionPlan


def _planned(*candidates: dict[str, Any], **changes: Any) -> SelectionPlan:
    named = [{"name": f"number-{n}", "spec": spec} for n, spec in enumerate(candidates)]
    return PrivateSelection.model_validate(document(candidates=named, **changes)).plan()


def _noise(multiplier: float) -> dict[str, Any]:
    return {"privacy": {"adjacency": "add_remove", "unit": "record", "delta": 1e-5, "noise_multiplier": multiplier}}


def test_the_event_is_the_selection_of_a_run_with_the_least_noise() -> None:
    quiet, loud = candidate(clipping_bound=0.25, **_noise(1.5)), candidate(clipping_bound=3.0, **_noise(2.5))
    plans = _planned(quiet, loud), _planned(loud, quiet)
    alone = _planned(quiet).one_run
    for plan in plans:
        assert plan.event == RepeatedAndSelected(runs=PoissonRuns(mean=2.0), event=alone.event)
    upper = accountants.profile(plans[0].event).epsilon_upper(1e-5)
    assert accountants.profile(alone.event).epsilon_upper(1e-5) < upper
    assert upper > accountants.profile(RepeatedAndSelected(runs=PoissonRuns(mean=2.0), event=_planned(loud).one_run.event)).epsilon_upper(
        1e-5
    )


def _asking(epsilon: float) -> dict[str, Any]:
    return {"privacy": {"adjacency": "add_remove", "unit": "record", "delta": 1e-5, "epsilon": epsilon}}


@pytest.mark.parametrize("counted", [{}, {"evaluation": {"kind": "private_accuracy", "noise_std": 20.0, "every_steps": 3}}])
def test_an_epsilon_is_that_of_the_whole_selection(counted: dict[str, Any]) -> None:
    plan = _planned(candidate(clipping_bound=0.25, **_asking(2.0), **counted), candidate(clipping_bound=3.0, **_asking(2.0), **counted))
    assert 1.999 < accountants.profile(plan.event).epsilon_upper(1e-5) <= 2.0
    assert accountants.profile(plan.one_run.event).epsilon_upper(1e-5) < 1.9
    multipliers = [candidate.plan.noise_std / candidate.plan.clipping.sensitivity for candidate in plan.candidates]
    assert multipliers[0] == pytest.approx(multipliers[1], rel=1e-12)
    assert all(candidate.plan.evaluation == plan.candidates[0].plan.evaluation for candidate in plan.candidates)
    if counted:
        assert plan.counts is not None
        assert plan.counts.mechanism.std == 20.0


def test_candidates_ask_for_one_epsilon() -> None:
    with pytest.raises(ValidationError, match=r"candidates\[1\].spec.privacy.*epsilon 2 as in the first candidate"):
        _planned(candidate(**_asking(2.0)), candidate(**_asking(3.0)))
    with pytest.raises(ValidationError, match="no epsilon as in the first candidate"):
        _planned(candidate(**_noise(2.0)), candidate(**_asking(3.0)))


def test_counts_that_score_the_runs_are_in_each_runs_event() -> None:
    counted = {"evaluation": {"kind": "private_accuracy", "noise_std": 20.0, "every_steps": 3}}
    plan = _planned(candidate(**_noise(2.0), **counted))
    assert isinstance(plan.event, RepeatedAndSelected)
    assert isinstance(plan.event.event, Composed)
    assert plan.event.event.events[1].count == 2
    plain = _planned(candidate(**_noise(2.0)))
    assert accountants.profile(plan.event).epsilon_upper(1e-5) > accountants.profile(plain.event).epsilon_upper(1e-5)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"steps": 7}, "candidates.number-1.steps must be that of number-0"),
        ({"expected_batch_size": 100}, "candidates.number-1.sampling must be that of number-0"),
        ({"evaluation": {"kind": "none"}}, r"candidates\[1\].spec.evaluation must be private_accuracy, or public_held_out"),
        ({"reproducible": True, "seed": 1}, r"candidates\[1\].spec.reproducible must be false"),
        ({"audit": {"kind": "canaries", "canaries": 100}}, r"candidates\[1\].spec.audit must be absent"),
        ({"data": {"kind": "digits_phase_pairs", "split_seed": 1, "test_fraction": 0.2}}, "must be the selection's own data set"),
        ({"evaluation": {"kind": "private_accuracy", "noise_std": 9.0, "every_steps": 3}}, "must be that of the first candidate"),
    ],
)
def test_candidates_that_one_event_does_not_bound_are_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises((ValidationError, InvalidParameter), match=told):
        _planned(candidate(**_noise(2.0)), candidate(**_noise(2.0)) | changes)


@pytest.mark.parametrize(
    ("runs", "told"),
    [
        ({"kind": "poisson", "mean": 1e4}, "runs.mean must be at most 1000"),
        ({"kind": "truncated_negative_binomial", "mean": 50.0, "shape": -0.9}, "gamma is below 1e-05"),
    ],
)
def test_laws_by_which_no_training_would_end_are_refused(runs: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        PrivateSelection.model_validate(document(runs=runs))


def test_a_selection_is_no_candidate_of_another() -> None:
    with pytest.raises(ValidationError, match="private_selection"):
        PrivateSelection.model_validate(document(candidates=[{"name": "inner", "spec": document()}]))
