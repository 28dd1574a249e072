r"""The transfer recipes: what is trained of the backbone, its file; and the page of results, with and without figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.results import PAGE, Kept, Results, Run, page, read, reason, write
from tests.trainer.made_up import built
from zetadp import accountants
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.files.location import ROOT_VARIABLE
from zetadp.trainer.models.front import split_front
from zetadp.trainer.recipes import RECIPES, Recipe
from zetadp.trainer.recipes.small_data import CIFAR10_FEATURES
from zetadp.trainer.recipes.spectral_transfer import (
    CIFAR10_ADAPTERS,
    SPECTRAL_TRANSFER_1,
    SPECTRAL_TRANSFER_2,
    SPECTRAL_TRANSFER_3,
    SPECTRAL_TRANSFER_CIFAR100,
    SPECTRAL_TRANSFER_FEATURES,
)
from zetadp.trainer.specs.algorithms.spectral_dp import SpectralDp
from zetadp.trainer.specs.models.model_spec import Sequential
from zetadp.trainer.specs.models.packaged import transferred
from zetadp.trainer.specs.models.shapes import check_model
from zetadp.trainer.specs.models.weighted import weighted_layers

TRANSFERS = (SPECTRAL_TRANSFER_1, SPECTRAL_TRANSFER_2, SPECTRAL_TRANSFER_3, SPECTRAL_TRANSFER_CIFAR100, SPECTRAL_TRANSFER_FEATURES)


@pytest.fixture(autouse=True)
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ROOT_VARIABLE, raising=False)


def trained(of: Recipe) -> list[str]:
    """Kinds of the trained layers."""
    model: Any = getattr(of.spec, "model")  # noqa: B009
    assert isinstance(model, Sequential)
    return [layer.kind for layer in weighted_layers(model, of.declared.facts)]


@pytest.mark.parametrize(("of", "convolutions"), [(SPECTRAL_TRANSFER_1, 0), (SPECTRAL_TRANSFER_2, 2), (SPECTRAL_TRANSFER_3, 5)])
def test_as_many_convolutions_are_trained_as_the_title_says(of: Recipe, convolutions: int) -> None:
    # Of the last four, the first stands in the block with a convolution on its shortcut, which is trained too.
    kinds = trained(of)
    assert kinds.count("convolution") == convolutions
    assert kinds.count("channel_affine") == convolutions
    assert kinds[-2:] == ["block_circulant_linear"] * 2


def test_adapters_stand_beside_the_same_four_convolutions_and_nothing_of_them_is_trained() -> None:
    assert trained(CIFAR10_ADAPTERS).count("convolution") == 2 * 4 + 1
    network = built(CIFAR10_ADAPTERS.spec.model, CIFAR10_ADAPTERS.declared.facts)  # pyright: ignore[reportAttributeAccessIssue]
    assert sum(1 for name, _ in network.named_buffers() if ".base." in name) == 4
    _, rest = split_front(network)
    assert not any(".base." in name for name, _ in rest.named_parameters())


@pytest.mark.parametrize("of", TRANSFERS, ids=lambda of: of.name)
def test_the_proven_epsilon_is_at_most_the_papers(of: Recipe) -> None:
    plan, (claim,) = of.declared_plan(), of.printed_epsilons
    assert 0.98 * claim.epsilon < accountants.profile(plan.event).epsilon(plan.delta).upper <= claim.epsilon


@pytest.mark.parametrize("of", [*TRANSFERS, CIFAR10_ADAPTERS], ids=lambda of: of.name)
def test_a_recipe_says_whose_weights_it_starts_from(of: Recipe) -> None:
    assert any("trained on drawn shapes" in line and "no figure here is comparable" in line for line in of.differences)
    if isinstance(of.spec, SpectralDp):
        assert of.spec.given_weights != ()


def test_early_features_are_of_the_first_blocks_and_only_a_norm_and_one_layer_are_trained_behind_them() -> None:
    facts, model = CIFAR10_FEATURES.declared.facts, CIFAR10_FEATURES.spec.model  # pyright: ignore[reportAttributeAccessIssue]
    assert trained(CIFAR10_FEATURES) == ["group_norm", "linear"]
    front, _ = split_front(built(model, facts))
    whole, _ = split_front(built(transferred(SPECTRAL_TRANSFER_1.spec.model.layers[-3:]), facts))  # pyright: ignore[reportAttributeAccessIssue]
    images = 2.0 * torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0)) - 1.0
    with torch.no_grad():
        third = whole[:10](images)  # behind the third block's activation
        assert torch.equal(front(images), torch.nn.functional.avg_pool2d(third, 4))
    assert front(images).shape == (4, 16, 4, 4)


def test_the_packages_backbone_needs_no_folder_of_data_sets_and_its_features_tell_images_apart() -> None:
    facts = SPECTRAL_TRANSFER_1.declared.facts
    model = transferred(SPECTRAL_TRANSFER_1.spec.model.layers[-3:])  # pyright: ignore[reportAttributeAccessIssue]
    check_model(model, facts)
    front, _ = split_front(built(model, facts))
    with torch.no_grad():
        features = front(2.0 * torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0)) - 1.0)
    assert features.shape == (4, 64)
    assert float(features.std(dim=0).mean()) > 0.01


def test_a_packaged_file_thats_meant_by_another_digest_is_refused() -> None:
    model = transferred(SPECTRAL_TRANSFER_1.spec.model.layers[-3:])  # pyright: ignore[reportAttributeAccessIssue]
    fields = json.loads(model.model_dump_json())
    fields["initial_weights"]["sha256"] = "0" * 64
    with pytest.raises(InvalidParameter, match="sha256 must be the digest of with_zetadp/cifar_resnet_18_shapes"):
        check_model(Sequential.model_validate(fields), SPECTRAL_TRANSFER_1.declared.facts)
    fields["initial_weights"]["file"] = "with_zetadp/other.safetensors"
    with pytest.raises(InvalidParameter, match="file must be a file that can be read, got 'with_zetadp/other"):
        check_model(Sequential.model_validate(fields), SPECTRAL_TRANSFER_1.declared.facts)


def test_the_page_of_results_has_a_figure_or_a_reason_for_every_recipe(tmp_path: Path) -> None:
    runs = [{"private": {"accuracy": value}, "plain": {"accuracy": 0.5}, "seconds": 90.0} for value in (0.25, 0.27)]
    own: Results = {"spec": "x", "epsilon": 2.1, "delta": 1e-5, "unit": "image", "records": 4000, "runs": runs}  # pyright: ignore[reportAssignmentType]
    slow: Results = {**own, "runs": [], "estimate": 20000.0}
    kept: Kept = {"spectral_transfer_1": own, "speech_commands": slow}
    write(tmp_path / "r.json", kept)
    text = page(RECIPES, read(tmp_path / "r.json"), {"mri_decathlon": "not run: data.folder must be there"})
    lines = {line.split("`")[1]: line for line in text.splitlines() if line.startswith("| `")}
    assert list(lines) == [of.name for of in RECIPES]
    figures = "0.260 +- 0.014 | 2.1 at 1e-05, one image | 0.500 +- less than 0.001 | 100, each of 1000 | 4000 | 2 | 90 s |"
    assert lines["spectral_transfer_1"] == f"| `spectral_transfer_1` | 0.591 (Spectral-DP, Table 5) | {figures}"
    assert "not run: data.folder must be there" in lines["mri_decathlon"]
    assert "| not run yet: one private run takes about 5.6 h, without its evaluations |" in lines["speech_commands"]
    assert "| not run yet |" in lines["mri_sequences"]
    assert "| 0.986 (ScatterLinear, Spectral-DP, epsilon 3, Table 9) |" in lines["spectral_mnist_scatter_linear"]  # not its baseline's
    before = "0.879 +- 0.002, by `python -m benchmarks.recipes` | 0.4024 at 1e-05, one image | in [Papers](papers.md#results)"
    assert lines["mnist_real"].endswith(f"| {before} | 10000, each of 60 | 60000 | 3 | not measured |")


def test_the_page_of_results_says_of_what_isnt_private_that_there_is_no_guarantee() -> None:
    run: Run = {"private": {"accuracy": 0.93}, "plain": {}, "seconds": 90.0}
    kept: Kept = {"obfuscation_digits": {"spec": "x", "epsilon": None, "delta": 1e-5, "unit": "image", "records": 1200, "runs": [run]}}
    lines = page(RECIPES, kept, {}).splitlines()
    assert "| `obfuscation_digits` | - | 0.930 | no guarantee | - |  | 1200 | 1 | 90 s |" in lines


def test_every_recipe_is_run_for_the_page_of_results_or_measured_by_a_command_that_names_its_data() -> None:
    reasons = {of.name: reason(of) for of in RECIPES}
    assert reasons["digits"] is None
    assert reasons["obfuscation_digits"] is None
    assert reasons["speech_activations"].startswith("measured by `python -m benchmarks.activations --data speech`, hours, and not run")


def test_the_papers_page_has_figures_only_of_recipes_that_carry_them() -> None:
    section = (PAGE.parent / "papers.md").read_text(encoding="utf-8").split("## Results\n")[1].split("\n### ")[0]
    shown = {line.split("`")[1] for line in section.splitlines() if line.startswith("| `")}
    assert shown
    assert shown <= {of.name for of in RECIPES if of.measured}
