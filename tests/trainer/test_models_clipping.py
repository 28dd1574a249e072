r"""The engine on the papers' networks: what it clips and sums is what a loop over records gives."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.selection import thinned
from tests.trainer.made_up import PAPERS, built, records, targets
from zetadp.trainer.data.base import DataSetFacts
from zetadp.trainer.engine.gradients.clipping import CLIP_MARGIN, ClippedGradients
from zetadp.trainer.engine.gradients.problem import Losses, Problem
from zetadp.trainer.layers.flat_parameters import ParameterLayout
from zetadp.trainer.models import losses_for
from zetadp.trainer.specs.execution_plan import FlatClipping
from zetadp.trainer.specs.models.named_networks import ModelSpec

BOUND = 0.1
"""Below every record's norm here, so that all of them are clipped."""


def looped(network: nn.Module, losses: Losses, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    layout = ParameterLayout.of(network)
    total = torch.zeros(layout.coordinates, dtype=torch.float64)
    for n in range(len(features)):
        network.zero_grad()
        losses(network(features[n : n + 1]), labels[n : n + 1]).sum().backward()
        named = {name: p.grad.resolve_conj() for name, p in network.named_parameters() if p.grad is not None}
        gradient = layout.flatten(named).double()
        norm = float(gradient.norm())
        assert norm > BOUND
        total += gradient * (BOUND * (1.0 - CLIP_MARGIN) / norm)
    return total


@pytest.mark.parametrize(("model", "facts", "size"), thinned(PAPERS, every=3))
def test_a_papers_clipped_sum_is_that_of_a_loop(model: ModelSpec, facts: DataSetFacts, size: int) -> None:
    network, losses = built(model, facts), losses_for(facts)
    features, labels = records(facts, 4), targets(facts, 4)
    problem = Problem(network=network, losses=losses, features=features, targets=labels, members=None)
    clipped = ClippedGradients(problem, FlatClipping(bound=BOUND), microbatch_size=4)
    parameters = {name: p.detach() for name, p in network.named_parameters()}
    found = clipped.sum(parameters, torch.arange(4), BOUND).total.double()
    expected = looped(network, losses, features, labels)
    # 1e-5 is what the engine promises for every layer.
    assert float((found - expected).norm()) <= 1e-5 * float(expected.norm())
