r"""The Spectral-DP paper's recipes: its networks, budgets and printed tables, what a filter changes, and scattering before networks."""

from __future__ import annotations

import pytest

from zetadp import accountants
from zetadp.trainer.recipes.recipe import Recipe
from zetadp.trainer.recipes.spectral import (
    RATIOS,
    SPECTRAL_LENET_5,
    SPECTRAL_MODEL_1,
    SPECTRAL_MODEL_1_BLOCK_16,
    SPECTRAL_MODEL_2,
    SPECTRAL_MODEL_3,
)
from zetadp.trainer.recipes.spectral_scattering import SPECTRAL_SCATTER_CIRCULANT, SPECTRAL_SCATTER_LENET_5, SPECTRAL_SCATTER_LINEAR
from zetadp.trainer.specs.algorithms.spectral_dp import LayerByLayer, SameForAll, SpectralDp
from zetadp.trainer.specs.descent import Cosine, Sgd
from zetadp.trainer.specs.models.layer_spec import BlockCirculantLinear, Scattering
from zetadp.trainer.specs.models.model_spec import Sequential

FROM_SCRATCH = (SPECTRAL_MODEL_1, SPECTRAL_MODEL_1_BLOCK_16, SPECTRAL_LENET_5, SPECTRAL_MODEL_2, SPECTRAL_MODEL_3)
SCATTERED = (SPECTRAL_SCATTER_CIRCULANT, SPECTRAL_SCATTER_LENET_5, SPECTRAL_SCATTER_LINEAR)
all_recipes = pytest.mark.parametrize("of", [*FROM_SCRATCH, *SCATTERED], ids=lambda of: of.name)
scattered = pytest.mark.parametrize("of", SCATTERED, ids=lambda of: of.name)


def _spec(of: Recipe) -> SpectralDp:
    assert isinstance(of.spec, SpectralDp)
    return of.spec


def _with_ratio(of: Recipe, ratio: float) -> SpectralDp:
    """As the recipe's words say it is done: another number in the spec."""
    return SpectralDp.model_validate(
        _spec(of).model_dump() | {"layers": {"kind": "same_for_all", "clipping_bound": 0.5, "filter_ratio": ratio}}
    )


@all_recipes
def test_the_proven_epsilon_is_at_most_the_papers_target(of: Recipe) -> None:
    plan = of.declared_plan()
    (claim,) = of.printed_epsilons
    assert plan.delta == claim.delta
    proven = accountants.profile(plan.event).epsilon(plan.delta).upper
    assert 0.98 * claim.epsilon < proven <= claim.epsilon


@pytest.mark.parametrize("of", FROM_SCRATCH, ids=lambda of: of.name)
def test_steps_rate_and_ratio_are_told_as_they_are(of: Recipe) -> None:
    spec = _spec(of)
    assert isinstance(spec.layers, SameForAll)
    told = of.differences[0]
    assert f"lots of {spec.expected_batch_size} " in told
    assert f"SGD at {spec.optimizer.learning_rate:g} with momentum 0.9 for {spec.steps} steps" in told
    assert f"each layer clipped to {spec.layers.clipping_bound:g}, ratio {spec.layers.filter_ratio:g}" in told


@pytest.mark.parametrize("ratio", RATIOS)
def test_another_ratio_of_the_tables_changes_what_is_kept_and_nothing_of_the_guarantee(ratio: float) -> None:
    facts = SPECTRAL_MODEL_1.declared.facts
    plan, whole = (_with_ratio(SPECTRAL_MODEL_1, value).plan_with(facts, 2.0) for value in (ratio, 0.0))
    assert plan.event == whole.event
    assert plan.projection is not None
    dimensions = [layer.coordinates for layer in plan.projection.layers]
    assert dimensions == [{0.0: 8, 0.25: 7, 0.5: 5, 0.75: 3, 0.875: 1}[ratio]] * 3 + [{0.0: 10, 0.25: 9, 0.5: 5, 0.75: 3, 0.875: 3}[ratio]]


@pytest.mark.parametrize(("of", "block"), [(SPECTRAL_MODEL_1, 8), (SPECTRAL_MODEL_1_BLOCK_16, 16), (SPECTRAL_LENET_5, 8)])
def test_blocks_are_the_titles_and_ten_in_the_last_layer(of: Recipe, block: int) -> None:
    assert f"blocks of {block}" in of.title
    model = _spec(of).model
    assert isinstance(model, Sequential)
    blocks = [layer.block for layer in model.layers if isinstance(layer, BlockCirculantLinear)]
    assert set(blocks[:-1]) == {block}
    assert blocks[-1] == 10


@pytest.mark.parametrize(
    ("of", "table", "best"),
    [
        (SPECTRAL_MODEL_1, "Table 4, epsilon 2", 0.75),
        (SPECTRAL_MODEL_1_BLOCK_16, "Table 4, epsilon 2", 0.75),
        (SPECTRAL_MODEL_2, "Table 2, epsilon 3", 0.75),
    ],
)
def test_a_tables_row_has_every_ratio_and_the_papers_bold_figure_is_its_best(of: Recipe, table: str, best: float) -> None:
    row = [printed for printed in of.printed_results if printed.where == table]
    assert [printed.of for printed in row] == [f"Spectral-DP, ratio {ratio:g}" for ratio in RATIOS]
    figures = [printed.figures["accuracy"] for printed in row]
    assert RATIOS[figures.index(max(figures))] == best


@pytest.mark.parametrize("of", [SPECTRAL_MODEL_2, SPECTRAL_MODEL_3], ids=lambda of: of.name)
def test_figures_on_a_part_of_cifar_are_said_not_to_compare(of: Recipe) -> None:
    assert of.declared.training_records == 4000
    assert any("no figure here is comparable with the paper's" in line for line in of.differences)


@scattered
def test_steps_rate_and_each_layers_bound_are_told_as_they_are(of: Recipe) -> None:
    spec = _spec(of)
    assert isinstance(spec.layers, LayerByLayer)
    assert isinstance(spec.optimizer, Sgd)
    assert isinstance(spec.optimizer.schedule, Cosine)
    bounds = ", ".join(f"{setting.clipping_bound:g}" for setting in spec.layers.settings)
    told = of.differences[0]
    assert f"lots of {spec.expected_batch_size} " in told
    assert f"SGD at {spec.optimizer.learning_rate:g} with momentum 0.9 and cosine decay for {spec.steps} steps" in told
    assert f"layers clipped to {bounds}, ratio 0" in told
    assert {setting.filter_ratio for setting in spec.layers.settings} == {0.0}


@scattered
def test_a_network_behind_scattering_normalises_by_one_record_and_names_the_papers_other_way(of: Recipe) -> None:
    model = _spec(of).model
    assert isinstance(model, Sequential)
    first = model.layers[0]
    assert isinstance(first, Scattering)
    assert first.normalisation_groups == 27
    assert "P24" in of.errata
    assert any("(P24)" in line for line in of.differences)


@scattered
def test_trials_on_the_test_images_are_told(of: Recipe) -> None:
    assert any("test images" in line and "no guarantee counts" in line for line in of.differences)


@scattered
def test_a_network_without_spectra_says_that_it_is_ordinary_training(of: Recipe) -> None:
    projection = _spec(of).planned_projection(of.declared.facts)
    told = any("no spectrum" in line and "DP-SGD" in line for line in of.differences)
    assert told == (not projection.layers)
