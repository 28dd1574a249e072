r"""What specs come to as plans, what plans cost, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from zetadp import accountants
from zetadp.accountants.events import Composed, PoissonSampled, Release, Repeated, non_private_reason
from zetadp.mechanisms import ComplexGaussian, Gaussian, InvalidParameter, Sensitivity
from zetadp.trainer import ALGORITHMS, AnyTrainingSpec, ExecutionPlan, FederatedZetaDpSgd, TrainingSpec, ZetaDpSgd
from zetadp.trainer.data import DataSetFacts
from zetadp.trainer.specs.execution_plan import (
    AdaptiveClipping,
    FlatClipping,
    PerLayerClipping,
    PrivateEvaluation,
    ScheduledClipping,
)
from zetadp.trainer.specs.plan_base import Plan
from zetadp.trainer.specs.sampling import FederatedSampling, PoissonSampling

SPEC: TypeAdapter[AnyTrainingSpec] = TypeAdapter(AnyTrainingSpec)
ADAPTIVE = {"kind": "adaptive", "quantile": 0.5, "learning_rate": 0.2, "count_share": 0.01}
COUNTS = {"kind": "private_accuracy", "noise_std": 10.0, "every_steps": 5}


def _facts(**changes: Any) -> DataSetFacts:
    document = {
        "training_records": 100, "test_records": 20, "shape": (64,), "is_complex": True, "task": "classification", "classes": 10,
        "unit": "image", "user_unit": "patient", "users": 30, "largest_user": 7, "sha256": "0" * 64, "description": "made up",
    }  # fmt: skip
    return DataSetFacts.model_validate(document | changes)


def _spec(spec_json: dict[str, Any], **changes: Any) -> ZetaDpSgd:
    return ZetaDpSgd.model_validate(spec_json | changes)


def _federated(spec_json: dict[str, Any], **changes: Any) -> FederatedZetaDpSgd:
    document = {name: value for name, value in spec_json.items() if name != "optimizer"}
    federation = {"algorithm": "federated_zeta_dp_sgd", "nodes": 4, "distribution_seed": 1, "server": {"kind": "sgd", "learning_rate": 0.1}}
    return FederatedZetaDpSgd.model_validate(document | federation | changes)


def _privacy(**changes: Any) -> dict[str, Any]:
    return {"adjacency": "add_remove", "unit": "record", "delta": 1e-4, "noise_multiplier": 2.0} | changes


def test_json_of_before_is_a_spec_with_flat_clipping_that_tells_nothing_of_held_out_records(spec_json: dict[str, Any]) -> None:
    spec = SPEC.validate_json(json.dumps(spec_json))
    assert (spec.clipping.kind, spec.evaluation.kind, spec.records_per_user) == ("flat", "none", None)


def test_a_plan_stored_before_evaluations_existed_keeps_its_bytes(spec_json: dict[str, Any]) -> None:
    stored = _spec(spec_json).plan().model_dump_json()
    assert "evaluation" not in stored
    assert ExecutionPlan.model_validate_json(stored).model_dump_json() == stored


@pytest.mark.parametrize("method", [{"kind": "flat"}, {"kind": "per_layer"}, ADAPTIVE], ids=lambda method: method["kind"])
def test_noise_is_the_multiplier_times_what_one_unit_moves(spec_json: dict[str, Any], method: dict[str, Any]) -> None:
    plan = _spec(spec_json, clipping=method, clipping_bound=0.25).plan()
    moved = 1.0 if method["kind"] == "adaptive" else 0.25
    assert (plan.clipping.sensitivity, plan.mechanism.sensitivity.l2, plan.mechanism.noise_scale) == (moved, moved, 2.0 * moved)


@pytest.mark.parametrize("method", [{"kind": "per_layer"}, ADAPTIVE], ids=lambda method: method["kind"])
def test_every_clipping_costs_what_flat_clipping_with_that_multiplier_costs(spec_json: dict[str, Any], method: dict[str, Any]) -> None:
    first, second = (accountants.profile(_spec(spec_json, **change).plan().event) for change in ({}, {"clipping": method}))
    assert first.epsilon_upper(1e-4) == second.epsilon_upper(1e-4)


def test_real_networks_get_real_noise(spec_json: dict[str, Any]) -> None:
    real = {"kind": "sequential", "numbers": "real_pairs", "layers": [{"kind": "linear", "outputs": 10}], "head": "none"}
    assert isinstance(_spec(spec_json, model=real).plan().mechanism, Gaussian)
    assert isinstance(_spec(spec_json).plan().mechanism, ComplexGaussian)


def test_a_federations_event_is_one_nodes(spec_json: dict[str, Any]) -> None:
    plan = _federated(spec_json, expected_batch_size=17).plan()
    assert plan.sampling == FederatedSampling(nodes=4, records=710, expected_batch_size=17)
    assert plan.event == Repeated(count=12, event=PoissonSampled(probability=17 * 4 / 710, event=Release(mechanism=plan.mechanism)))


@pytest.mark.parametrize("make", [_spec, _federated])
def test_a_plan_for_a_declared_number_doesnt_tell_how_many_there_are(spec_json: dict[str, Any], make: Callable[..., Any]) -> None:
    changes = {"privacy": _privacy(unit="image"), "expected_batch_size": 10}
    counted, declared = (
        [make(spec_json, **changes, **more).plan_with(_facts(training_records=count), 2.0) for count in (100, 101)]
        for more in ({}, {"declared_units": 90})
    )
    assert counted[0].sampling.probability != counted[1].sampling.probability
    assert declared[0] == declared[1]
    assert (declared[0].units, declared[0].sampling.is_declared) == (90, True)
    assert declared[0].sampling.probability == 10 * getattr(declared[0].sampling, "nodes", 1) / 90
    assert [plan.declared_units for plan in (counted[0], declared[0])] == [None, 90]


def test_a_lot_beyond_a_declared_number_is_refused(spec_json: dict[str, Any]) -> None:
    with pytest.raises((InvalidParameter, ValidationError), match="<= the 5 units that are declared, got 12"):
        _spec(spec_json, declared_units=5, expected_batch_size=12).plan()


def test_private_evaluations_are_composed_with_training(spec_json: dict[str, Any]) -> None:
    plan = _spec(spec_json, evaluation=COUNTS).plan()
    count = Release(mechanism=Gaussian(std=10.0, sensitivity=Sensitivity(l2=1.0, adjacency="add_remove", unit="record")))
    event = plan.event
    assert isinstance(event, Composed)
    # After steps 5, 10 and the twelfth, which is the last.
    assert event.events[1] == Repeated(count=3, event=count)
    assert event.events[0] == _spec(spec_json).plan().event


@pytest.mark.parametrize(("step", "counts"), [(4, 0), (5, 1), (9, 1), (10, 2), (11, 2), (12, 3)])
def test_evaluations_so_far_are_those_that_were_due(spec_json: dict[str, Any], step: int, counts: int) -> None:
    evaluation = _spec(spec_json, evaluation=COUNTS).plan().evaluation
    assert evaluation is not None
    assert evaluation.releases(step, 12) == counts == sum(evaluation.is_due(number, 12) for number in range(1, step + 1))


def test_the_whole_run_meets_its_epsilon_with_private_evaluations(spec_json: dict[str, Any]) -> None:
    privacy = {"adjacency": "add_remove", "unit": "record", "delta": 1e-4, "epsilon": 2.0}
    alone, plan = (_spec(spec_json, privacy=privacy, **more).plan() for more in ({}, {"evaluation": COUNTS}))
    epsilon = accountants.profile(plan.event).epsilon_upper(1e-4)
    assert 0.99 * 2.0 < epsilon <= 2.0
    assert plan.evaluation is not None
    assert plan.evaluation.mechanism.std == 10.0
    assert plan.mechanism.noise_scale > alone.mechanism.noise_scale


def _mechanism(l2: float, unit: str = "record") -> ComplexGaussian:
    return ComplexGaussian(std=1.0, sensitivity=Sensitivity(l2=l2, adjacency="add_remove", unit=unit))


ADAPTED = AdaptiveClipping(initial_bound=0.3, quantile=0.5, learning_rate=0.2, count_share=0.1)


@pytest.mark.parametrize(
    ("clipping", "l2", "message"),
    [
        (FlatClipping(bound=0.3), 0.2, r"mechanism\.sensitivity\.l2 must be the clipping bound 0\.3, got 0\.2"),
        (PerLayerClipping(bound=0.3), 0.2, r"mechanism\.sensitivity\.l2 must be the clipping bound 0\.3, got 0\.2"),
        (ADAPTED, 0.3, r"mechanism\.sensitivity\.l2 must be the sensitivity in units of the step's bound, 1\.0, got 0\.3"),
    ],
    ids=["flat", "per layer", "adaptive"],
)
def test_a_mechanism_for_another_bound_is_refused(clipping: FlatClipping, l2: float, message: str) -> None:
    sampling = PoissonSampling(records=10, expected_batch_size=1)
    with pytest.raises(ValidationError, match=message):
        ExecutionPlan(sampling=sampling, clipping=clipping, mechanism=_mechanism(l2), steps=1, delta=1e-5)


SCHEDULED = {"kind": "flat", "schedule": {"kind": "cosine", "final_share": 0.1}}


def test_a_scheduled_bound_costs_what_a_constant_one_does_and_its_noise_is_in_units_of_it(spec_json: dict[str, Any]) -> None:
    constant, plan = _spec(spec_json, steps=12).plan(), _spec(spec_json, steps=12, clipping=SCHEDULED).plan()
    assert isinstance(plan.clipping, ScheduledClipping)
    assert (plan.clipping.bound, plan.clipping.steps, plan.mechanism.sensitivity.l2) == (constant.clipping.bound, 12, 1.0)
    assert plan.noise_std == pytest.approx(constant.noise_std / constant.clipping.bound, rel=1e-12)
    assert accountants.profile(plan.event).epsilon_upper(1e-4) == pytest.approx(
        accountants.profile(constant.event).epsilon_upper(1e-4), rel=1e-9
    )
    # A run that ends early keeps the schedule of the planned one.
    assert plan.cut_to(5).clipping == plan.clipping


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"schedule": {"kind": "steps", "after": [5, 3]}}, "schedule.after must be ascending step numbers"),
        ({"schedule": {"kind": "constant"}}, "'cosine', 'steps'"),
        ({"schedule": {"kind": "steps", "after": [2], "gamma": 1e-12}}, "clipping.schedule must be one whose bounds are at least 1e-10"),
    ],
)
def test_a_schedule_without_a_bound_for_every_step_is_refused_when_it_is_asked(
    changes: dict[str, Any], told: str, spec_json: dict[str, Any]
) -> None:
    with pytest.raises((InvalidParameter, ValidationError), match=told):
        _spec(spec_json, clipping={"kind": "flat"} | changes).check_request()


def test_a_plan_of_more_steps_than_its_schedule_is_refused(spec_json: dict[str, Any]) -> None:
    plan = _spec(spec_json, steps=12, clipping=SCHEDULED).plan()
    with pytest.raises(ValidationError, match="steps must be <= 12, those of the bound's schedule, got 13"):
        plan.cut_to(13)


def test_an_evaluation_for_another_unit_is_refused() -> None:
    noise = Gaussian(std=1.0, sensitivity=Sensitivity(l2=1.0, adjacency="add_remove", unit="user"))
    sampling, evaluation = PoissonSampling(records=10, expected_batch_size=1), PrivateEvaluation(mechanism=noise, units=5, every_steps=1)
    with pytest.raises(ValueError, match="unit"):
        ExecutionPlan(
            sampling=sampling, clipping=FlatClipping(bound=1.0), mechanism=_mechanism(1.0), steps=1, delta=1e-5, evaluation=evaluation
        )


def test_an_evaluation_with_another_sensitivity_than_a_counts_is_refused() -> None:
    noise = Gaussian(std=1.0, sensitivity=Sensitivity(l2=0.5, adjacency="add_remove", unit="record"))
    with pytest.raises(ValidationError, match=r"1\.0 \(one unit changes a count by 1\), got 0\.5"):
        PrivateEvaluation(mechanism=noise, units=5, every_steps=1)


def test_users_are_sampled_where_they_are_the_unit(spec_json: dict[str, Any]) -> None:
    spec = _spec(spec_json, privacy=_privacy(unit="patient"), records_per_user=5, expected_batch_size=6)
    plan = spec.plan_with(_facts(), 2.0)
    assert plan.sampling == PoissonSampling(records=30, expected_batch_size=6)
    assert plan.mechanism.sensitivity.unit == "patient"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"privacy": _privacy(unit="user")}, r"privacy\.unit must be 'image' \(one row of this data set\) or 'patient' \(whose"),
        (
            {"privacy": _privacy(unit="patient")},
            r"records_per_user must be given where the unit is 'patient', who may have several records",
        ),
        ({"privacy": _privacy(unit="image"), "records_per_user": 2}, r"records_per_user must be absent where the unit is one row"),
        ({"privacy": _privacy(unit="image"), "expected_batch_size": 101}, r"expected_batch_size must be <= the 100 training records"),
        (
            {"privacy": _privacy(unit="patient"), "records_per_user": 2, "expected_batch_size": 31},
            r"expected_batch_size must be <= the 30 units of privacy \('patient'\), got 31",
        ),
        (
            {"privacy": _privacy(unit="patient"), "records_per_user": 2, "expected_batch_size": 3, "evaluation": COUNTS},
            r"evaluation must be none or public_held_out where the unit is 'patient'",
        ),
    ],
    ids=["unknown unit", "no records per user", "records per user of records", "lot", "lot of users", "count of users' records"],
)
def test_a_spec_that_does_not_fit_its_data_is_refused(spec_json: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises((InvalidParameter, ValidationError), match=message):
        _spec(spec_json, **changes).plan_with(_facts(), 2.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes": 711}, r"nodes must be <= the 710 units of privacy"),
        ({"expected_batch_size": 178}, r"expected_batch_size must be <= 177, one node's share of 710 units, got 178"),
    ],
    ids=["nodes", "lot"],
)
def test_a_federation_that_does_not_fit_its_data_is_refused(spec_json: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises((InvalidParameter, ValidationError), match=message):
        _federated(spec_json, **changes).plan()


@pytest.mark.parametrize(
    ("method", "field"),
    [
        (ADAPTIVE | {"quantile": 1.0}, "quantile"),
        (ADAPTIVE | {"count_share": 0.0}, "count_share"),
        (ADAPTIVE | {"learning_rate": math.inf}, "learning_rate"),
        (ADAPTIVE | {"learning_rate": -0.2}, "learning_rate"),
    ],
)
def test_nonsense_in_adaptive_clipping_is_refused(spec_json: dict[str, Any], method: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError, match=f"clipping.adaptive.{field}"):
        _spec(spec_json, clipping=method)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: algorithm.__name__)
def test_every_algorithm_says_who_is_trusted(algorithm: type[TrainingSpec]) -> None:
    assert "trusted" in algorithm.TRUST


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda known: known.algorithm_name())
def test_every_plan_says_what_plans_say(algorithm: type[TrainingSpec]) -> None:
    plan = algorithm.example().plan()
    assert isinstance(plan, Plan)
    assert plan.event_after(plan.steps) == plan.event
    assert plan.is_protected == (non_private_reason(plan.event) is None)
    assert plan.is_protected == bool(plan.mechanisms)
    assert bool(plan.compared) == (plan.kind == "comparison")
    assert plan.protects_held_out == (plan.kind == "feature_release")
    assert (plan.initial_bound is None) == (plan.sampling_probability is None) == (plan.kind != "noisy_sums")
