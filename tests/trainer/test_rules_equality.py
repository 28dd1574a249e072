r"""The clipped sum of every layer type is the naive loop's: one record, one ordinary backward pass, at a time, in double precision."""

from __future__ import annotations

import pytest

from tests.selection import thinned
from tests.trainer.layer_cases import CASES, MEMBERS, Tied, problem_of, relative_error
from zetadp.trainer.engine.gradients.per_unit import TapedRoute, WholeNetworkRoute, layers_of
from zetadp.trainer.engine.gradients.routes import plan_route
from zetadp.trainer.layers.rules import RULES

WORST = 1e-5
"""Asked for by users of the engine; float32 alone gives 3e-7, and 3e-6 where a norm layer divides by a small spread."""


@pytest.mark.parametrize("name", CASES)
def test_clipped_sum_over_records_is_the_loops(name: str) -> None:
    assert relative_error(CASES[name], None, per_layer=False) <= WORST


@pytest.mark.parametrize("name", thinned(CASES, every=2))
def test_clipped_sum_over_users_is_the_loops(name: str) -> None:
    assert relative_error(CASES[name], MEMBERS, per_layer=False) <= WORST


# With one layer it is flat clipping.
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if len(layers_of(problem_of(case, None).network)) > 1])
def test_sum_clipped_layer_by_layer_is_the_loops(name: str) -> None:
    assert relative_error(CASES[name], None, per_layer=True) <= WORST


@pytest.mark.parametrize("name", CASES)
def test_only_networks_that_need_it_hold_every_gradient(name: str) -> None:
    _, route = plan_route(problem_of(CASES[name], None))
    assert isinstance(route, TapedRoute if CASES[name].taped else WholeNetworkRoute)


def test_every_rule_has_a_case() -> None:
    covered = {type(module) for case in CASES.values() for module in problem_of(case, None).network.modules()}
    assert set(RULES) <= covered


def test_a_parameter_of_two_modules_is_one_parameter() -> None:
    names = [full for layer in layers_of(Tied()) for full in layer.names.values()]
    assert sorted(names) == ["first.bias", "first.weight", "second.bias"]
