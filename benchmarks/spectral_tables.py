r"""``python -m benchmarks.spectral_tables``: the Spectral-DP paper's Table 4 (MNIST: blocks, ratios, budgets) beside ours, accuracies on
 the test images. Minutes to hours, by what is asked for: not in ``make bench``.

Ours are the service's own steps from fresh randomness, one run for each cell, with calibrated noise. ``scatter_circulant`` is the recipe
``spectral_mnist_scatter_circulant``, whose first layer is filtered; its last one, of the class scores, is whole. ``model_1`` is the paper's
network by the recipes on grey values, all layers filtered, as in the paper. What a scattering transform gives is computed once.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from functools import cache, partial
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from zetadp.mechanisms import RandomStream
from zetadp.trainer import engine
from zetadp.trainer.data import data_set_facts
from zetadp.trainer.engine import ClippedGradients, FreshRandomness, HeldOutRecords, PrivateLoop, Problem, Site, TrainingState
from zetadp.trainer.engine.team.interface import Alone
from zetadp.trainer.models import build, losses_for
from zetadp.trainer.models.front import passed_through, split_front
from zetadp.trainer.recipes.spectral import RATIOS, SPECTRAL_MODEL_1, SPECTRAL_MODEL_1_BLOCK_16
from zetadp.trainer.recipes.spectral_scattering import SPECTRAL_SCATTER_CIRCULANT
from zetadp.trainer.specs.algorithms.spectral_dp import LayerByLayer, LayerSetting, SameForAll, SpectralDp
from zetadp.trainer.specs.models import papers_spectral

EPSILONS = (2.0, 1.0, 0.5)
BLOCKS = (8, 16)
MICROBATCH = 512

Network = Literal["scatter_circulant", "model_1"]
PAPER = {8: SPECTRAL_MODEL_1, 16: SPECTRAL_MODEL_1_BLOCK_16}


class Cell(NamedTuple):
    """Of the table."""

    block: int
    epsilon: float
    ratio: float

    @property
    def printed(self) -> float | None:
        """The paper's accuracy; None for a cell that its table doesn't have."""
        where, of = f"Table 4, epsilon {self.epsilon:g}", f"Spectral-DP, ratio {self.ratio:g}"
        recipe = PAPER.get(self.block)
        rows = recipe.printed_results if recipe else ()
        return next((row.figures["accuracy"] for row in rows if (row.where, row.of) == (where, of)), None)


def spec_of(network: Network, cell: Cell, steps: int | None) -> SpectralDp:
    """The recipe's, with the cell's block, filter and budget; ``steps`` None for its own."""
    recipe = SPECTRAL_SCATTER_CIRCULANT if network == "scatter_circulant" else SPECTRAL_MODEL_1
    spec = recipe.spec
    assert isinstance(spec, SpectralDp)
    if isinstance(spec.layers, SameForAll):
        model = papers_spectral.model_1(cell.block)
        layers = SameForAll(clipping_bound=spec.layers.clipping_bound, filter_ratio=cell.ratio)
    else:
        model = papers_spectral.scatter_circulant(block=cell.block)
        *others, last = spec.layers.settings
        filtered = [LayerSetting(clipping_bound=setting.clipping_bound, filter_ratio=cell.ratio) for setting in others]
        layers = LayerByLayer(settings=(*filtered, last))
    changed = {"model": model.model_dump(), "layers": layers.model_dump(), "steps": steps or spec.steps}
    return SpectralDp.model_validate(spec.model_dump() | changed | {"privacy": spec.privacy.model_dump() | {"epsilon": cell.epsilon}})


class Records(NamedTuple):
    """Behind whatever stands before everything that learns, and targets."""

    features: Tensor
    targets: Tensor
    test_features: Tensor
    test_targets: Tensor


@cache
def _records(network: Network) -> Records:
    """For every cell: of a front nothing depends on block, ratio or budget."""
    spec = spec_of(network, Cell(8, 2.0, 0.0), None)
    data = spec.data.read()
    front, _ = split_front(_built(spec))
    sides = (data.training_features, data.training_targets, data.test_features, data.test_targets)
    features, targets, test_features, test_targets = (torch.from_numpy(side) for side in sides)
    return Records(passed_through(front, features), targets, passed_through(front, test_features), test_targets)


def _built(spec: SpectralDp) -> nn.Module:
    return build(spec.model, data_set_facts(spec.data), RandomStream.from_operating_system())


def accuracy(network: Network, cell: Cell, steps: int | None) -> float:
    """On the test images after a private training."""
    spec, records = spec_of(network, cell, steps), _records(network)
    plan = spec.plan()
    _, trained = split_front(_built(spec))
    problem = Problem(trained, losses_for(data_set_facts(spec.data)), records.features, records.targets, None)
    clipped = ClippedGradients(problem, plan.clipping, MICROBATCH, plan.projection)
    sites = (Site(torch.arange(problem.units), FreshRandomness()),)
    update = partial(engine.update, spec.optimizer, steps=plan.steps)
    loop = PrivateLoop(clipped, clipped.layout, plan, sites, update, Alone(), spectra=clipped.spectra)
    parameters = clipped.layout.flatten(dict(trained.named_parameters()))
    state = TrainingState(0, parameters, engine.initial_state(spec.optimizer, parameters), plan.clipping.bound)
    for _ in range(plan.steps):
        state = loop.step(state)
    held_out = HeldOutRecords(trained, clipped.layout, records.test_features, records.test_targets)
    return held_out.metrics(state, classifies=True)["accuracy"]


def table(network: Network, cells: list[Cell], steps: int | None) -> Iterator[str]:
    """A line for each cell, as soon as it is there."""
    for cell in cells:
        start = time.perf_counter()
        ours = accuracy(network, cell, steps)
        paper = "     -" if cell.printed is None else f"{cell.printed:.4f}"
        named = f"block {cell.block:2d}  epsilon {cell.epsilon:<3g}  ratio {cell.ratio:<5g}"
        yield f"{named}  paper {paper}   ours {ours:.4f}   ({time.perf_counter() - start:.0f} s)"


def main(arguments: list[str]) -> None:
    """Prints the cells that were asked for; all of Table 4 without arguments."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spectral_tables", description="Spectral-DP's Table 4 beside ours.")
    parser.add_argument("--network", choices=get_args(Network), default="scatter_circulant")
    parser.add_argument("--blocks", nargs="+", type=int, default=BLOCKS)
    parser.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    parser.add_argument("--ratios", nargs="+", type=float, default=RATIOS)
    parser.add_argument("--steps", type=int, help="noisy steps of each run; the recipe's unless it is given")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    cells = [Cell(block, epsilon, ratio) for block in options.blocks for epsilon in options.epsilons for ratio in options.ratios]
    for text in table(options.network, cells, options.steps):
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
