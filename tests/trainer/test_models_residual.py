r"""Residual networks: sizes, gradients, weights from a file, and bounds layer by layer."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.trainer.made_up import built, facts_of, records, targets
from tests.trainer.test_models_clipping import BOUND, looped
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.files.location import ROOT_VARIABLE
from zetadp.trainer.engine.gradients.clipping import ClippedGradients
from zetadp.trainer.engine.gradients.per_unit import layers_of
from zetadp.trainer.engine.gradients.problem import Problem
from zetadp.trainer.layers.flat_parameters import as_real
from zetadp.trainer.models import losses_for
from zetadp.trainer.models.front import split_front
from zetadp.trainer.specs.execution_plan import FlatClipping
from zetadp.trainer.specs.models.layer_spec import (
    Activation,
    ChannelAffine,
    Convolution,
    Dropout,
    Flatten,
    GroupNorm,
    Linear,
    MaxPool,
    PlainLayer,
    Residual,
)
from zetadp.trainer.specs.models.model_spec import Sequential
from zetadp.trainer.specs.models.residual_networks import Numbers, resnet_18, resnext_29, wide_resnet
from zetadp.trainer.specs.models.shapes import sequential_shapes
from zetadp.trainer.specs.models.weighted import weighted_layers

CIFAR = facts_of((3, 32, 32), 10, is_complex=False)


def small(numbers: Numbers, **changes: object) -> Sequential:
    """A block whose shortcut is the record itself, and one that changes the shape."""
    active = Activation(name="crelu" if numbers == "complex" else "relu")
    plain: tuple[PlainLayer, ...] = (Convolution(outputs=4, kernel=3, padding=1), GroupNorm(groups=2), active)
    layers = (
        *(Convolution(outputs=4, kernel=3, padding=1), Residual(layers=(*plain, Convolution(outputs=4, kernel=3, padding=1)))),
        Residual(
            layers=(Convolution(outputs=6, kernel=2, stride=2, groups=2), ChannelAffine(), active),
            shortcut=(MaxPool(kernel=3, stride=2, padding=1), Convolution(outputs=6, kernel=1)),
        ),
        *(Flatten(), Residual(layers=(active, Linear(outputs=54))), Linear(outputs=3)),
    )
    return Sequential.model_validate(
        {"numbers": numbers, "layers": layers, "head": "real_part" if numbers == "complex" else "none", **changes}
    )


NUMBERS: list[Numbers] = ["complex", "real", "real_pairs"]


@pytest.mark.parametrize(
    ("model", "size"),
    # As the networks' authors and their best-known reimplementations count them; the third by De et al. 2022, table 14: 2.75 million.
    # ResNeXt-29, 8 x 64: 34.4 million in its Table 7. torchvision's ResNet-18: as its documentation counts.
    [
        (resnet_18(10), 11_173_962),
        (resnet_18(1000, for_large_images=True, norm="affine"), 11_689_512),
        (wide_resnet(10, 28, 10), 36_479_194),
        (wide_resnet(10, 16, 4), 2_748_890),
        (resnext_29(10, 8, 64), 34_426_698),
    ],
    ids=["resnet-18", "resnet-18 of torchvision", "wrn-28-10", "wrn-16-4", "resnext-29"],
)
def test_a_known_network_has_its_size(model: Sequential, size: int) -> None:
    last = model.layers[-1]
    assert isinstance(last, Linear)
    facts = facts_of((3, 32, 32), last.outputs, is_complex=False)
    assert sum(stage.weights for stage in sequential_shapes(model, facts)) == size


@pytest.mark.parametrize("numbers", NUMBERS)
def test_a_networks_clipped_sum_is_that_of_a_loop(numbers: Numbers) -> None:
    facts = facts_of((3, 6, 6), 3, is_complex=numbers != "real")
    network, losses = built(small(numbers), facts), losses_for(facts)
    features, labels = records(facts, 4), targets(facts, 4)
    clipped = ClippedGradients(Problem(network, losses, features, labels, None), FlatClipping(bound=BOUND), microbatch_size=4)
    found = clipped.sum({name: p.detach() for name, p in network.named_parameters()}, torch.arange(4), BOUND).total.double()
    expected = looped(network, losses, features, labels)
    assert float((found - expected).norm()) <= 1e-5 * float(expected.norm())


def test_a_block_adds_its_input() -> None:
    facts = facts_of((3, 6, 6), 3, is_complex=False)
    network, features = built(small("real"), facts), records(facts)
    before, block = network.get_submodule("0_convolution"), network.get_submodule("1_residual")
    given: Tensor = before(features)
    assert torch.equal(block(given), block.get_submodule("layers")(given) + given)


@pytest.mark.parametrize("numbers", NUMBERS)
def test_trained_layers_have_the_names_and_the_order_of_the_built_network(numbers: Numbers) -> None:
    facts = facts_of((3, 6, 6), 3, is_complex=numbers != "real")
    network, stages = built(small(numbers), facts), sequential_shapes(small(numbers), facts)
    assert [layer.name for layer in weighted_layers(small(numbers), facts)] == [layer.name for layer in layers_of(network)]
    shapes = {name: tuple((torch.view_as_real(p) if p.is_complex() else p).shape) for name, p in network.named_parameters()}
    assert {name: shape for stage in stages for name, shape in stage.parameters.items()} == shapes


@pytest.mark.parametrize("frozen", [2, 3])
def test_blocks_may_be_given_and_frozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frozen: int) -> None:
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    facts = facts_of((3, 6, 6), 3)
    source = built(small("complex"), facts, seed=11)
    save_file({name: as_real(value.detach()).contiguous() for name, value in source.named_parameters()}, tmp_path / "w.safetensors")
    digest = hashlib.sha256((tmp_path / "w.safetensors").read_bytes()).hexdigest()
    given = {"kind": "given", "file": "w.safetensors", "sha256": digest, "frozen_layers": frozen, "given_layers": 5}
    model = small("complex", initial_weights=given)
    front, rest = split_front(built(model, facts, seed=12))
    assert not any(parameter.requires_grad for parameter in front.parameters())
    assert list(dict.fromkeys(name.rpartition(".")[0] for name, _ in rest.named_parameters())) == [
        layer.name for layer in weighted_layers(model, facts)
    ]
    rest_names = dict(rest.named_parameters())
    assert torch.equal(rest_names["4_residual.layers.1_linear.weight"], source.get_parameter("4_residual.layers.1_linear.weight"))
    assert not torch.equal(rest_names["5_linear.weight"], source.get_parameter("5_linear.weight"))


def test_initial_weights_of_unit_outputs_reach_into_blocks() -> None:
    facts = facts_of((3, 6, 6), 3, is_complex=False)
    plain, scaled = (dict(built(small("real", initial_weights=kind), facts).named_parameters()) for kind in ("glorot", "unit_outputs"))
    name = "2_residual.shortcut.1_convolution.weight"
    ratio = plain[name] / scaled[name]
    assert torch.allclose(ratio, ratio.flatten()[0].expand_as(ratio), rtol=1e-4)
    assert not torch.allclose(plain[name], scaled[name], rtol=1e-2)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (Residual(layers=(Convolution(outputs=5, kernel=3, padding=1),)), r"model\.layers\[0\]\.shortcut must be such that its output"),
        (Residual(layers=(Linear(outputs=5),)), r"model\.layers\[0\]\.layers\[0\] must be after a flatten layer"),
    ],
)
def test_a_block_that_doesnt_fit_is_refused_by_its_place(layer: Residual, message: str) -> None:
    model = Sequential(numbers="real", layers=(layer, Flatten(), Linear(outputs=10)), head="none")
    with pytest.raises(InvalidParameter, match=message):
        sequential_shapes(model, CIFAR)


def test_what_isnt_allowed_outside_isnt_allowed_in_a_block() -> None:
    block = Residual(layers=(Activation(name="crelu"),))
    with pytest.raises(ValueError, match=r"model\.layers\[0\]\.layers\[0\]\.name must be a real activation"):
        Sequential(numbers="real", layers=(block,), head="none")
    given = {"kind": "given", "file": "w.safetensors", "sha256": "0" * 64, "frozen_layers": 1, "given_layers": 1}
    dropping = Residual(layers=(Dropout(probability=0.1),))
    with pytest.raises(ValueError, match=r"model\.layers\[0\]\.layers\[0\] must be after the frozen layers"):
        Sequential.model_validate({"numbers": "real", "layers": (dropping, Linear(outputs=2)), "head": "none", "initial_weights": given})


def test_depths_are_those_of_wide_residual_networks() -> None:
    with pytest.raises(InvalidParameter, match="depth must be 10, 16, 22"):
        wide_resnet(10, 18, 4)
