"""Lies that a holder of the key could sign: each is caught, with both sides of it told, for every kind of training."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.app.certificates_harness import ABSENT, CANARIES, details, lied
from tests.selection import thinned
from zetadp.app.certificates.signing.keys import PublicKeySet
from zetadp.app.certificates.verification.verify import read, verify
from zetadp.app.kit.settings import Settings

Changes = dict[str, object]
Issued = Callable[[str], bytes]

TOO_SMALL = "epsilon is {}, but by"
TOO_LARGE = "epsilon_lower is {}, but by"
"""What accountants say of figures that don't follow from the plan."""
FIGURES = {"kind": "approximate_dp", "epsilon": "1", "delta": "1e-05", "epsilon_lower": "1", "route": "contour"}
ATTACKS = {
    "victims": 1,
    "public_records": 1,
    "coordinates": 1,
    "attackers": {},
    "figures": [
        {"attack": "label_with_key", "measure": "accuracy", "value": "0.1", "lower": "0.1", "upper": "0.1", "chance": "0.1", "trials": 1}
    ],
}
COUNT = {
    "mechanism": {"kind": "gaussian", "std": 20.0, "sensitivity": {"l2": 1.0, "adjacency": "add_remove", "unit": "record"}},
    "units": 181,
    "every_steps": 10,
}
"""A private evaluation, for a plan that has none."""

POISSON = {"kind": "poisson", "records": 710, "expected_batch_size": 40}
BANDED = {"kind": "banded_toeplitz", "coefficients": [0.75, 0.5]}
FIXED_SIZE = {"kind": "fixed_size", "records": 710, "expected_batch_size": 40}


@pytest.mark.parametrize(
    ("name", "changes", "check", "told"),
    thinned(
        [
            # Noise, steps and units: what the run did tells, or the figures, from above or from below
            ("plain", {"plan.mechanism.std": 0.5}, "recomputation", "epsilon is 0.8008127, but recomputed from the event it is"),
            ("plain", {"plan.mechanism.std": 2.0}, "accountants", TOO_LARGE.format("0.8008125")),
            ("plain", {"plan.steps": 80}, "plan", "run.steps_released: the certificate says 40, its plan has 80"),
            ("plain", {"plan.steps": 80, "run.steps_released": 80}, "recomputation", "epsilon is 0.8008127, but"),
            ("plain", {"run.steps_released": 39}, "plan", "run.steps_released: the certificate says 39, its plan has 40"),
            ("plain", {"plan.delta": 1e-6}, "parts", "delta: the certificate says 1e-05, its plan 1e-06"),
            ("plain", {"plan.clipping.bound": 0.25}, "statement", "must be the clipping bound 0.25"),
            ("plain", {"data.training_records": 711}, "plan", "data.training_records: the certificate says 711, its plan is for 710 units"),
            ("plain", {"plan.sampling.records": 1420, "plan.sampling.expected_batch_size": 80}, "plan", "its plan is for 1420 units"),
            ("plain", {"data.training_records": ABSENT}, "plan", "must be stated if and only if the plan's number of units was counted"),
            ("declared", {"data.training_records": 1000}, "plan", "must be stated if and only if the plan's number of units was counted"),
            (
                "declared",
                {"plan.sampling.is_declared": False},
                "plan",
                "must be stated if and only if the plan's number of units was counted",
            ),
            ("declared", {"plan.sampling.records": 999}, "accountants", TOO_SMALL.format("0.5531887")),
            ("patients", {"data.records_per_unit": ABSENT}, "plan", "the certificate says 160, its plan is for 40 units"),
            ("patients", {"data.training_records": 30}, "plan", "the certificate says 30, its plan is for 40 units"),
            ("patients", {"plan.sampling.records": 160}, "accountants", TOO_LARGE.format("1.076356")),
            ("baseline", {"plan.units": 3}, "plan", "its plan is for 3 units"),
            ("federated", {"plan.sampling.nodes": 3}, "accountants", TOO_LARGE.format("2.601264")),
            ("federated_patients", {"plan.sampling.nodes": 5}, "accountants", TOO_SMALL.format("2.435917")),
            (
                "federated",
                {"plan.sampling": {"kind": "poisson", "records": 710, "expected_batch_size": 120}},
                "plan",
                "algorithm of plan: federated_zeta_dp_sgd has no such plan",
            ),
            (
                "federated_banded",
                {"plan.sampling": {"kind": "cyclic_poisson", "records": 710, "expected_batch_size": 30, "groups": 3, "seed": 1}},
                "plan",
                "algorithm of plan: federated_zeta_dp_sgd has no such plan",
            ),
            ("federated_banded", {"plan.sampling.nodes": 2}, "accountants", TOO_LARGE.format("4.774904")),
            ("federated_banded", {"plan.sampling.kind": "federated_poisson"}, "statement", "groups: Extra inputs"),
            # Who is in a sample
            (
                "truncated",
                {"plan.sampling.population_size": 710},
                "statement",
                "population_size must be 711 under add_remove, got 710",
            ),
            ("truncated", {"plan.sampling.largest_batch": 600}, "accountants", TOO_LARGE.format("0.8500672")),
            ("truncated", {"plan.sampling.largest_batch": 39}, "statement", "sampling.largest_batch must be >= the 40 units expected"),
            ("truncated", {"plan.sampling": POISSON}, "accountants", TOO_LARGE.format("0.8500672")),
            ("plain", {"plan.sampling": FIXED_SIZE}, "accountants", TOO_SMALL.format("0.8008127")),
            ("cyclic", {"plan.sampling.groups": 6}, "accountants", TOO_SMALL.format("1.583374")),
            ("cyclic", {"plan.sampling.seed": ABSENT}, "statement", "sampling.cyclic_poisson.seed: Field required"),
            # Bands
            ("banded", {"plan.strategy": ABSENT}, "plan", "run.arithmetic: the certificate says"),
            ("cyclic", {"plan.strategy": BANDED}, "plan", "run.arithmetic: the certificate says"),
            (
                "plain",
                {"plan.strategy": BANDED},
                "statement",
                "of a minimum separation, cyclic_poisson or cyclic_allocation with at least 2 groups, got 'poisson'",
            ),
            ("banded", {"plan.strategy.coefficients": [0.5, 0.5, 0.25, 0.125]}, "statement", "at least 4 groups"),
            ("banded", {"plan.strategy.coefficients": [1.0, 0.125]}, "statement", "such that their squares add up to at most 1"),
            ("banded", {"plan.strategy.coefficients": [0.8, 0.1]}, "statement", "strategy.coefficients must be multiples of 2^-10"),
            ("buffered", {"plan.strategy.weight": 0.625}, "statement", "strategy.weight must be at most 1 over the strategy's sensitivity"),
            ("buffered", {"plan.strategy.buffers.0.decay": 0.75}, "statement", "strategy.weight must be at most 1 over the strategy's"),
            ("buffered", {"plan.sampling.groups": 16}, "statement", "strategy.weight must be at most 1 over the strategy's sensitivity"),
            ("inverse", {"plan.strategy.weight": 0.625}, "statement", "strategy.weight must be at most 1 over the strategy's sensitivity"),
            ("inverse", {"plan.strategy.coefficients": [0.5, 0.25]}, "statement", "strategy.weight must be at most 1 over the strategy's"),
            ("inverse", {"plan.strategy.coefficients": [0.25, 0.5]}, "statement", "no column of the strategy matrix rises"),
            ("inverse", {"plan.sampling.groups": 16}, "statement", "strategy.weight must be at most 1 over the strategy's sensitivity"),
            ("buffered", {"plan.strategy": BANDED}, "accountants", TOO_SMALL.format("1.993092")),
            # Clipping and filters
            ("spectral", {"plan.clipping.layers.0.bound": 0.1}, "statement", "must be the clipping bound 1.2688"),
            (
                "spectral",
                {"plan.clipping.layers.0.bound": 0.0},
                "statement",
                "clipping.layer_bounds.layers.0.bound: Input should be greater",
            ),
            (
                "spectral",
                {"plan.clipping.layers.1.layer": "1_convolution"},
                "statement",
                "clipping.layers must be a list that names each layer once",
            ),
            ("spectral", {"plan.clipping.kind": "flat"}, "statement", "clipping.flat"),
            (
                "spectral",
                {"plan.projection.layers.1.layer": "1_convolution"},
                "statement",
                "projection.layers must be a list that names each layer once",
            ),
            ("spectral", {"plan.projection.layers.1.layer": "9_linear"}, "statement", "among the layers that have a bound"),
            ("spectral", {"plan.projection.layers.1.kept": [9]}, "statement", "kept must be at most [5] frequencies"),
            ("spectral", {"plan.projection": ABSENT}, "plan", "algorithm of plan: spectral_dp has no such plan"),
            ("laplace", {"plan.clipping.bound": 10.0}, "statement", "must be the clipping bound"),
            ("laplace", {"plan.clipping.kind": "flat"}, "statement", "laplace if and only if the clipping norm is l1"),
            ("per_layer", {"plan.clipping.quantile": 0.5}, "statement", "clipping.per_layer.quantile"),
            ("per_layer", {"plan.clipping.kind": "adaptive"}, "statement", "clipping.adaptive"),
            ("scheduled", {"plan.clipping.kind": "flat"}, "statement", "clipping.flat"),
            ("scheduled", {"plan.clipping.steps": 39}, "statement", "steps must be <= 39, those of the bound's schedule, got 40"),
            ("adaptive", {"plan.clipping.count_share": 1.5}, "statement", "count_share"),
            ("adaptive", {"plan.clipping.quantile": ABSENT}, "statement", "quantile"),
            # Held-out records
            ("private", {"run.held_out": "public"}, "plan", "it is 'private' if and only if the plan has counts"),
            ("private", {"plan.evaluation": ABSENT}, "plan", "it is 'private' if and only if the plan has counts"),
            ("private", {"data.test_records": 180}, "plan", "plan.evaluation.units: 181, but 180 records were held out"),
            ("private", {"plan.evaluation.every_steps": 40}, "accountants", TOO_LARGE.format("0.8596561")),
            ("private", {"plan.evaluation.mechanism.std": 30.0}, "accountants", TOO_LARGE.format("0.8596561")),
            ("private", {"plan.evaluation.mechanism.sensitivity.l2": 2.0}, "statement", "one unit changes a count by 1"),
            ("private", {"run.metrics": {"roc_auc": "0.9"}}, "plan", "run.metrics.roc_auc: counts of correct answers give an accuracy"),
            ("private", {"run.metrics.accuracy": "1.5"}, "plan", "run.metrics.accuracy must be in [0, 1], got 1.5"),
            ("plain", {"run.metrics.accuracy": "-0.5"}, "plan", "run.metrics.accuracy must be in [0, 1], got -0.5"),
            ("plain", {"run.metrics": ABSENT}, "plan", "run.metrics: must be stated if and only if something was measured"),
            ("plain", {"run.held_out": "private"}, "plan", "it is 'private' if and only if the plan has counts"),
            ("plain", {"run.held_out": "encoded", "run.metrics": ABSENT}, "plan", "it is 'encoded' if and only if the plan has features"),
            ("plain", {"plan.evaluation": COUNT}, "plan", "it is 'private' if and only if the plan has counts"),
            (
                "unmeasured",
                {"run.metrics": {"accuracy": "0.9"}},
                "plan",
                "run.metrics: must be stated if and only if something was measured",
            ),
            ("unmeasured", {"run.held_out": "public"}, "plan", "run.metrics: must be stated if and only if something was measured"),
            ("noisy_rotation", {"run.held_out": "none"}, "plan", "it is 'encoded' if and only if the plan has features"),
            ("comparison", {"run.held_out": "private"}, "plan", "it is 'private' if and only if the plan has counts"),
            ("comparison", {"plan.parts.0.plan.evaluation": COUNT}, "plan", "it is 'private' if and only if the plan has counts"),
            # Records, sums and features that are released once
            ("spof", {"plan.records": 1}, "plan", "plan.records: 1, but there are 95 training records"),
            ("spof", {"data.records_per_unit": 1}, "plan", "data.records_per_unit: must be stated if and only if a unit isn't one row"),
            ("spof_users", {"data.records_per_unit": 5}, "plan", "plan.records_per_unit: 3, but at most 5 of a unit are used"),
            ("spof_users", {"plan.records_per_unit": 1}, "plan", "plan.records_per_unit: 1, but at most 3 of a unit"),
            ("spof_users", {"plan.records_per_unit": 10**7}, "statement", "less than or equal to 1000000"),
            (
                "spof_users",
                {"plan.records_per_unit": 6, "data.records_per_unit": 6},
                "other_figures",
                "pure_epsilon is 1.5, but recomputed it is 3.0",
            ),
            ("sums", {"guarantee.pure_epsilon": "1"}, "other_figures", "pure_epsilon is 1, but recomputed it is 2.0"),
            ("sums_gaussian", {"guarantee.pure_epsilon": "2"}, "other_figures", "pure_epsilon is stated as 2, but this event has none"),
            ("noisy_rotation", {"plan.queries": 1}, "accountants", TOO_LARGE.format("4.377178")),
            ("noisy_rotation", {"plan.queries": 16}, "other_figures", "gdp_mu is"),
            ("noisy_rotation", {"plan.clipping_norm": 1.0}, "statement", "2 C = 2.0"),
            ("noisy_rotation", {"plan.records": 3}, "plan", "data.test_records: the certificate says 363, its plan is for 3 units"),
            ("noisy_rotation", {"data.records_per_unit": 5}, "plan", "data.records_per_unit: stated, but each feature is of one record"),
            # Nothing protected
            ("baseline", {"plan.reason": "because"}, "parts", "the guarantee's reason isn't the event's: because"),
            ("baseline", {"guarantee.reason": "none was asked for"}, "parts", "the guarantee's reason isn't the event's"),
            (
                "baseline",
                {"guarantee": FIGURES | {"delta_curve": [["1", "1e-05"]]}},
                "parts",
                "a guarantee is stated, but part of the event has none",
            ),
            # Comparisons
            (
                "comparison",
                {"parts.0.by_itself.epsilon": "0.01"},
                "parts_alone",
                "part spectral: by_itself.epsilon is 0.01, but it is at least",
            ),
            (
                "comparison",
                {"parts.0.by_itself.pure_epsilon": "0.01"},
                "parts_alone",
                "by_itself.pure_epsilon is 0.01, but its event has none",
            ),
            ("comparison", {"parts.0.by_itself.reason": "luck"}, "plan", "has either an epsilon or a reason why there is none"),
            ("comparison", {"parts.0.by_itself.delta": "0.5"}, "plan", "part spectral: by_itself.delta is 0.5, its plan's 1e-05"),
            ("comparison", {"parts.0.by_itself.delta": "2"}, "parts_alone", "its figures can't be recomputed from its event"),
            ("comparison", {"parts.0.name": "other"}, "statement", "parts must be those of the plan, ['spectral', 'clipped-first']"),
            ("comparison", {"parts.0.name": "clipped-first", "parts.1.name": "spectral"}, "statement", "parts must be those of the plan"),
            ("comparison", {"parts": ABSENT}, "statement", "parts must be those of the plan"),
            ("comparison", {"parts.0": ABSENT, "plan.parts.0": ABSENT}, "accountants", TOO_LARGE.format("0.8872907")),
            ("comparison", {"plan.parts.0.plan.steps": 60}, "parts_alone", "part spectral: by_itself.epsilon is 0.6263935, but it is"),
            ("comparison", {"plan.parts.0.plan.clipping": {"kind": "flat", "bound": 1.0}}, "statement", "must be the clipping bound 1.0"),
            ("comparison", {"plan.parts.0.name": "clipped-first"}, "statement", "parts must be trainings with different names"),
            ("comparison", {"parts.0.algorithm": "non_private"}, "plan", "algorithm of plan.parts.spectral: non_private has no such plan"),
            (
                "with_baseline",
                {"parts.1.by_itself": {"epsilon": "1", "delta": "1e-05"}},
                "parts_alone",
                "part baseline: by_itself.epsilon is 1, but there is none",
            ),
            ("with_baseline", {"parts.1.by_itself.reason": "luck"}, "plan", "part baseline: by_itself.reason isn't that of its event"),
            ("with_baseline", {"parts.1.algorithm": "spectral_dp"}, "plan", "spectral_dp has no such plan"),
            (
                "seeded_comparison",
                {"parts.0.by_itself": {"epsilon": "1", "delta": "1e-05"}},
                "parts_alone",
                "there is none: not private against",
            ),
            # Whose algorithm, which errata, how it computed
            ("plain", {"job.algorithm": "federated_zeta_dp_sgd"}, "plan", "federated_zeta_dp_sgd has no such plan"),
            ("plain", {"job.algorithm": "non_private"}, "plan", "algorithm of plan: non_private has no such plan"),
            ("baseline", {"job.algorithm": "zeta_dp_sgd"}, "plan", "algorithm of plan: zeta_dp_sgd has no such plan"),
            ("plain", {"job.algorithm": "magic"}, "statement", "expected an algorithm that this version knows"),
            ("selection", {"plan.candidates.1.plan.steps": 60}, "statement", "candidates.fast.steps must be that of slow"),
            ("selection", {"plan.candidates.1.plan.mechanism.std": 3.0}, "accountants", TOO_SMALL.format("0.84713")),
            ("selection", {"plan.runs.mean": 300.0}, "recomputation", "no accountant's bracket reproduces epsilon 0.84713"),
            ("selection", {"plan.runs": {"kind": "poisson", "mean": 2000.0}}, "statement", "runs.mean must be at most 1000"),
            ("selection", {"run.selected.candidate": "other"}, "plan", "run.selected: other isn't among the plan's candidates"),
            ("selection", {"run.selected": ABSENT}, "plan", "stated if and only if the plan is a private selection"),
            ("plain", {"run.selected": {"candidate": "slow"}}, "plan", "stated if and only if the plan is a private selection"),
            ("selection", {"run.selected": {}}, "plan", "must be stated if and only if something was measured"),
            ("selection", {"run.parameters": 0}, "plan", "it is 0 if and only if no model came out"),
            ("selection", {"run.noise_numbers": 5}, "plan", "nothing is stated of a private selection's runs"),
            ("selection", {"job.started": "2026-01-02T03:04:05Z"}, "plan", "nothing is stated of a private selection's runs"),
            ("comparison", {"parts.0.algorithm": "magic"}, "statement", "expected an algorithm that this version knows"),
            ("plain", {"errata.0": "Z999"}, "statement", "expected a row of the errata that this version knows, got 'Z999'"),
            ("comparison", {"parts.0.errata.0": "Z999"}, "statement", "expected a row of the errata that this version knows"),
            (
                "plain",
                {"run.arithmetic": ["probed_gradient_sums"]},
                "plan",
                "such a plan computes by ['probed_gradient_sums', 'exact_normal']",
            ),
            ("plain", {"run.arithmetic": ["exact_normal", "probed_gradient_sums"]}, "plan", "run.arithmetic: the certificate says"),
            (
                "private",
                {"run.arithmetic": ["probed_gradient_sums", "exact_normal"]},
                "plan",
                "such a plan computes by ['probed_gradient_sums', 'probed_counts', 'exact_normal']",
            ),
            (
                "spof_duchi",
                {"run.arithmetic": ["float64_boxes", "compared_signs", "exact_normal"]},
                "plan",
                "run.arithmetic: the certificate says",
            ),
            ("baseline", {"run.arithmetic": ["exact_normal"]}, "plan", "such a plan computes by ['unclaimed']"),
            ("plain", {"run.arithmetic": ["by_hand"]}, "statement", "run.arithmetic"),
            ("spof", {"environment.precision": "bfloat16"}, "plan", "such a plan is computed in float32 or better"),
            # Randomness, history, what was tried on the run
            ("seeded", {"run.random_origin": "operating_system"}, "parts", "if_seed_stays_secret is given for a run that had no seed"),
            (
                "plain",
                {"run.random_origin": "user_seed"},
                "parts",
                "yet the guarantee doesn't say 'not private against someone who knows the seed'",
            ),
            ("seeded", {"run.generator": "AES-256-CTR; keyed by the operating system"}, "plan", "which run.random_origin alone does"),
            ("patients", {"job.resumptions": 2}, "parts", "job: 2 attempts can't have continued from a checkpoint 2 times"),
            ("patients", {"job.attempts": 1}, "parts", "job: 1 attempts can't have continued from a checkpoint 1 times"),
            ("patients", {"job.finished": "2025-01-01T00:00:00Z"}, "parts", "job: it finished before it started"),
            ("baseline", {"run.noise_numbers": 5}, "plan", "run.noise_numbers: stated, but the plan claims no noise"),
            ("spof", {"run.samples": 5}, "plan", "run.samples: stated, but only noisy sums are of samples"),
            ("spof", {"run.averaged": True}, "plan", "run.averaged: stated, but only models of noisy sums are running means"),
            ("baseline", {"run.canaries": CANARIES}, "plan", "run.canaries: stated, but only noisy sums have canaries"),
            ("comparison", {"run.canaries": CANARIES}, "plan", "run.canaries: stated, but only noisy sums have canaries"),
            ("plain", {"run.attacks": ATTACKS}, "plan", "run.attacks: stated, but zeta_dp_sgd sends no features"),
            ("noisy_rotation", {"run.attacks.figures.1.lower": "1.5"}, "parts", "1.0 isn't within 1.5 to 1.0"),
            ("noisy_rotation", {"run.attacks.figures.1.upper": "1.5"}, "parts", "a share must be in [0, 1]"),
            ("noisy_rotation", {"run.attacks.figures.0.chance": "0.0215"}, "parts", "guessing has 1.571, got 0.0215"),
            ("noisy_rotation", {"run.attacks.curve.1.mu": "0.1"}, "parts", "run.attacks.curve[1].mu: one query with noise multiplier 2.0"),
            (
                "noisy_rotation",
                {"run.attacks.curve.0.std": "30.0"},
                "parts",
                "run.attacks.curve[0].std: a multiplier of 0.5 and C 3.0 make another",
            ),
            (
                "noisy_rotation",
                {"run.attacks.curve.0.noise_multiplier": "5.0"},
                "parts",
                "run.attacks.curve: noise multipliers must ascend",
            ),
            (
                "rotated",
                {"run.attacks.curve": [{"noise_multiplier": "1", "std": "1", "mu": "1", "figures": ATTACKS["figures"]}]},
                "parts",
                "run.attacks.curve: a noise of a stated scale belongs to clipped features, and the plan has none",
            ),
        ],
        every=4,
    ),
)
def test_a_lie_is_told_with_both_sides_of_it(
    name: str, changes: Changes, check: str, told: str, issued: Issued, settings: Settings, keys: PublicKeySet
) -> None:
    report = verify(lied(issued(name), settings, changes), keys, None)
    assert report.verdict == "invalid"
    assert told in details(report, check)


def test_an_event_beside_the_plan_is_refused(issued: Issued, settings: Settings, keys: PublicKeySet) -> None:
    # Two statements of what was released could differ: the plan alone says it, and the event follows.
    event = read(issued("plain")).event.model_dump(mode="json")
    report = verify(lied(issued("plain"), settings, {"event": event}), keys, None)
    assert "predicate.event: Extra inputs are not permitted" in details(report, "statement")
    assert report.verdict == "invalid"
