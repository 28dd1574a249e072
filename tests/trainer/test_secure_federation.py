r"""Training with secure aggregation: shares of noise for the same epsilon, and sums of what is left of the nodes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.federation_harness import DATA
from zetadp.mechanisms import ComplexGaussian
from zetadp.mechanisms.sampling.shares import most_sampled
from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer import load_train
from zetadp.trainer.engine.noise.shared import SharedNoise
from zetadp.trainer.engine.noise.torch_source import TorchSource
from zetadp.trainer.request import why_not_repeatable
from zetadp.trainer.specs.algorithms.federated import FederatedZetaDpSgd
from zetadp.trainer.specs.base import RuntimeSpec
from zetadp.trainer.specs.execution_plan import ExecutionPlan
from zetadp.trainer.specs.shares import share_grid

SECURE = {"kind": "secure", "dropouts": 2, "colluding": 1}
NODES = 11


def _spec(**changes: Any) -> FederatedZetaDpSgd:
    document = {
        "data": DATA,
        "model": {"kind": "complex_mlp", "hidden": [4], "activation": "cardioid", "head": "real_part"},
        "server": {"kind": "fed_adam", "learning_rate": 0.01},
        "privacy": {"adjacency": "add_remove", "unit": "record", "delta": 1e-5, "epsilon": 2.0},
        "clipping_bound": 1.0,
        "expected_batch_size": 10,
        "steps": 3,
        "nodes": NODES,
        "distribution_seed": 0,
        "evaluation": {"kind": "public_held_out"},
        "reproducible": True,
        "seed": 1,
    }
    return FederatedZetaDpSgd.model_validate(document | changes)


def _source(number: int) -> TorchSource:
    return TorchSource(RandomStream.from_seed(number, "shares"), torch.device("cpu"))


def _plan(**changes: Any) -> ExecutionPlan:
    return _spec(aggregation=SECURE, **changes).plan()


def test_shares_cost_what_whole_noise_costs() -> None:
    local, secure = _spec().plan(), _plan()
    assert (secure.event, secure.noise_std) == (local.event, local.noise_std)
    assert secure.aggregation is not None
    assert secure.aggregation.honest(NODES) == 8


def test_the_sum_has_the_queries_sum_and_the_noise_of_all_shares() -> None:
    plan, numbers = _plan(), 20_000
    shares = SharedNoise(plan, numbers)
    vectors = [torch.linspace(-1.0, 1.0, numbers) * site for site in range(NODES)]
    total = torch.stack([shares.integers(vector, _source(site)) for site, vector in enumerate(vectors)])
    found = shares.value(total.sum(0), NODES)
    assert found is not None
    noise = found - torch.stack(vectors).sum(0)
    # 11 shares, of which 8 are what is accounted for.
    expected = plan.noise_std * math.sqrt(NODES / 8) * shares.grid.widened
    assert noise.std().item() == pytest.approx(expected, rel=6.0 / math.sqrt(2 * numbers))
    assert abs(noise.mean().item()) < 6.0 * expected / math.sqrt(numbers)
    # What a sum modulo the modulus loses is put back.
    modulus = 2**shares.grid.width
    wrapped = shares.value(total.sum(0).remainder(modulus), NODES)
    assert wrapped is not None
    assert torch.equal(wrapped, found)
    # The plan with noise of a node's own alone would have sqrt(8) times as much in the sum.
    assert math.sqrt(NODES) * plan.noise_std / expected == pytest.approx(math.sqrt(8), rel=0.01)


def test_no_auditor_repeats_what_is_in_a_sum_alone() -> None:
    spec = _spec(aggregation=SECURE, reproducible=False, seed=None)
    why = why_not_repeatable(spec, RuntimeSpec(device="cpu", threads=1), spec.plan())
    assert why == "what a node adds to a secure sum isn't a release of its own, and isn't written down"


def test_a_sum_far_too_large_is_held() -> None:
    shares = SharedNoise(_plan(), 8)
    still = shares.integers(torch.zeros(8), _source(0))
    for sign in (1.0, -1.0):
        moved = shares.integers(torch.full((8,), sign * 1e30), _source(0)) - still
        assert set(moved.tolist()) == {sign * shares.grid.honest * shares.grid.held}


def test_a_grid_has_room_for_what_all_nodes_sample() -> None:
    plan = _plan()
    grid = share_grid(plan, 1000)
    # 10 units expected at each of 11 nodes, whose sums have a bound of 1 a unit.
    assert grid.held == math.ceil(grid.factor * most_sampled(10.0 * NODES)) + 1.0


def test_too_few_nodes_give_nothing() -> None:
    shares = SharedNoise(_plan(), 100)
    total = shares.integers(torch.zeros(100), _source(0))
    assert shares.value(total, NODES - 3) is None
    assert shares.value(total, NODES - 2) is not None


def test_a_run_with_shares_is_certified_as_one_with_whole_noise_and_its_noise_is_tested(tmp_path: Path) -> None:
    spec = _spec(aggregation=SECURE)
    report = load_train(spec)(
        spec, spec.plan(), RuntimeSpec(device="cpu", threads=1), tmp_path, report=lambda _event: None, should_stop=lambda: False
    )
    assert (report.event, report.noise_std) == (_spec().plan().event, spec.plan().noise_std)
    assert report.noise_test is not None
    assert (report.noise_test.status, report.noise_test.numbers > 0) == ("consistent", True)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"aggregation": SECURE | {"dropouts": 5}}, r"2 \* dropouts \+ colluding < 11"),
        ({"aggregation": {"kind": "secure", "dropouts": 2}}, "aggregation.colluding"),
        # A site that sees the sum knows its own share: with 0 its epsilon against the others would be too small.
        ({"aggregation": SECURE | {"colluding": 0}}, "aggregation.colluding\n.*greater than or equal to 1"),
        ({"aggregation": SECURE, "nodes": 65}, "nodes must be <= 64"),
        (
            {"aggregation": SECURE, "clipping": {"kind": "adaptive", "quantile": 0.5, "learning_rate": 0.2, "count_share": 0.1}},
            "clipping must be flat without a schedule, or per_layer, with secure aggregation, got 'adaptive'",
        ),
        ({"aggregation": SECURE, "clipping": {"kind": "flat", "schedule": {"kind": "cosine"}}}, "with secure aggregation, got 'scheduled'"),
        ({"aggregation": SECURE, "audit": {"kind": "canaries", "canaries": 100}}, "audit must be absent"),
    ],
)
def test_what_shares_are_not_proved_for_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        _spec(**changes)


def test_a_plan_of_shares_is_of_a_federation_and_of_equal_noise() -> None:
    plan = _plan()
    assert isinstance(plan.mechanism, ComplexGaussian)
    uneven = ComplexGaussian(std_real=1.0, std_imag=2.0, sensitivity=plan.mechanism.sensitivity)
    with pytest.raises(ValueError, match="circular complex_gaussian, with secure aggregation"):
        ExecutionPlan.model_validate(dict(plan) | {"mechanism": uneven})
