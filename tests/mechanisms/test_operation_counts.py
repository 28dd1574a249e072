from __future__ import annotations

import pytest

from zetadp.mechanisms.analysis.operation_counts import OperationCosts, coefficient_perturbation, gradient_perturbation, total
from zetadp.mechanisms.published import spof_operations as published

_PAPER = OperationCosts()


def test_the_papers_network_costs_what_is_printed():
    assert total(coefficient_perturbation(14, 7, _PAPER)) == 364
    assert total(gradient_perturbation(14, _PAPER)) == 1403


@pytest.mark.parametrize("features", [1, 14, 784, 10**12])
@pytest.mark.parametrize("units", [1, 7, 10**12])
def test_closed_forms_are_the_sums_of_the_terms(features, units):
    assert total(coefficient_perturbation(features, units, _PAPER)) == published.spof_count(features, units)
    assert total(gradient_perturbation(features, _PAPER)) == published.dp_sgd_count(features)


def test_the_papers_unit_costs_give_its_composite_costs():
    assert (_PAPER.noise, _PAPER.gradient) == (6, 34)


def test_a_square_as_one_multiplication_makes_the_other_count_smaller():
    costs = OperationCosts(multiplications_per_square=1)
    assert total(gradient_perturbation(14, costs)) == 77 * 14 + 283


@pytest.mark.parametrize("name", list(OperationCosts.model_fields))
def test_every_cost_is_counted_somewhere(name):
    dearer = OperationCosts.model_validate({**_PAPER.model_dump(), name: _PAPER.model_dump()[name] + 1})
    counts = [total(coefficient_perturbation(3, 2, costs)) + total(gradient_perturbation(3, costs)) for costs in (_PAPER, dearer)]
    assert counts[0] < counts[1]
