r"""The clipped sum of every layer type is the naive loop's: one record, one ordinary backward pass, at a time, in double precision."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.selection import thinned
from tests.trainer.layer_cases import CASES, MEMBERS, Tied, problem_of, relative_error
from zetadp.trainer.engine.gradients.clipping import ClippedGradients
from zetadp.trainer.engine.gradients.per_unit import TapedRoute, WholeNetworkRoute, layers_of
from zetadp.trainer.engine.gradients.problem import Problem
from zetadp.trainer.engine.gradients.routes import plan_route
from zetadp.trainer.layers.rules import RULES
from zetadp.trainer.specs.execution_plan import FlatClipping

WORST = 1e-5
"""Asked for by users of the engine; float32 alone gives 3e-7, and 3e-6 where a norm layer divides by a small spread."""


@pytest.mark.parametrize("name", thinned(CASES, every=2))
def test_clipped_sum_over_records_is_the_loops(name: str) -> None:
    assert relative_error(CASES[name], None, per_layer=False) <= WORST


@pytest.mark.parametrize("name", thinned(CASES, every=4))
def test_clipped_sum_over_users_is_the_loops(name: str) -> None:
    assert relative_error(CASES[name], MEMBERS, per_layer=False) <= WORST


# With one layer it is flat clipping.
@pytest.mark.parametrize(
    "name", thinned([name for name, case in CASES.items() if len(layers_of(problem_of(case, None).network)) > 1], every=3)
)
def test_sum_clipped_layer_by_layer_is_the_loops(name: str) -> None:
    assert relative_error(CASES[name], None, per_layer=True) <= WORST


@pytest.mark.parametrize("name", thinned(CASES, every=3))
def test_only_networks_that_need_it_hold_every_gradient(name: str) -> None:
    _, route = plan_route(problem_of(CASES[name], None))
    assert isinstance(route, TapedRoute if CASES[name].taped else WholeNetworkRoute)


def test_every_rule_has_a_case() -> None:
    covered = {type(module) for case in CASES.values() for module in problem_of(case, None).network.modules()}
    assert set(RULES) <= covered


def test_a_parameter_of_two_modules_is_one_parameter() -> None:
    names = [full for layer in layers_of(Tied()) for full in layer.names.values()]
    assert sorted(names) == ["first.bias", "first.weight", "second.bias"]


class Viewed(nn.Module):
    """Needs its images in torch's usual order."""

    def forward(self, x: Tensor) -> Tensor:
        return x.view(len(x), -1)


def convolutions(flat: nn.Module, several: bool) -> Problem:
    """On images of one channel, which count as being in either order."""
    torch.manual_seed(1)
    second = (nn.Conv2d(4, 4, 3, padding=1), nn.ReLU()) if several else ()
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), *second, flat, nn.Linear(4 * 36, 2))
    return Problem(network, lambda outputs, _: outputs.square().sum(dim=1), torch.randn(6, 1, 8, 8), torch.zeros(6), None)


@pytest.mark.parametrize(("flat", "several", "in_order"), [(nn.Flatten, True, True), (nn.Flatten, False, False), (Viewed, True, False)])
def test_several_convolutions_run_with_channels_last_where_the_network_allows_it(flat, several: bool, in_order: bool) -> None:
    problem, seen = convolutions(flat(), several), []
    clipped = ClippedGradients(problem, FlatClipping(bound=1.0), 6)
    for module in problem.network:
        if isinstance(module, nn.Conv2d | nn.ReLU):
            module.register_forward_hook(lambda _module, _inputs, output: seen.append(output))
    parameters = {name: value.detach() for name, value in problem.network.named_parameters()}
    total = clipped.sum(parameters, torch.arange(6), 1e9).total
    assert isinstance(clipped.route, TapedRoute)
    assert seen
    assert all(output.is_contiguous(memory_format=torch.channels_last) == in_order for output in seen)
    loss = problem.losses(problem.network(problem.features), problem.targets).sum()
    expected = torch.autograd.grad(loss, list(problem.network.parameters()))
    as_one = clipped.layout.flatten(dict(zip(parameters, expected, strict=True)))
    torch.testing.assert_close(total.float(), as_one, rtol=1e-4, atol=1e-4)
