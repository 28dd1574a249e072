"""The paper's networks: whole processing modules turn with their input, are cut where the paper says, and say what they don't take."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.selection import thinned
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.algorithms.obfuscation.layers import Delta, MagnitudeNorm
from zetadp.trainer.algorithms.obfuscation.networks import (
    DividedNetwork,
    build,
    check_equivariant,
    divided,
    parameter_count,
    set_statistics,
    statistics,
    turning_error,
)
from zetadp.trainer.algorithms.obfuscation.networks.checks import made_up_features
from zetadp.trainer.specs.models.layer_spec import Activation, Convolution, Dropout, Flatten, Fourier, Linear
from zetadp.trainer.specs.obfuscation.architectures import AlexNet, Architecture, CustomNetwork, LeNet, ResNet, Vgg16
from zetadp.trainer.specs.obfuscation.architectures import Delta as DeltaSpec
from zetadp.trainer.specs.obfuscation.architectures import MagnitudeNorm as NormSpec
from zetadp.trainer.specs.obfuscation.architectures import Skip as SkipSpec
from zetadp.trainer.specs.obfuscation.methods import AdditionalLayers, Method, Noisy, Original, Rotation

IMAGE = (3, 32, 32)

CUSTOM = CustomNetwork(
    encoder=(Convolution(outputs=5, kernel=3, padding=1), Activation(name="relu")),
    processing=(
        SkipSpec(layers=(Convolution(outputs=7, kernel=3, stride=2, padding=1, bias=False), NormSpec(), DeltaSpec(threshold=0.5))),
        Dropout(probability=0.2),
        Flatten(),
        Linear(outputs=20, bias=False),
        DeltaSpec(),
    ),
    decoder=(Linear(outputs=12), Activation(name="tanh")),
)

NETWORKS: dict[str, tuple[Architecture, tuple[int, int, int]]] = {
    "lenet": (LeNet(), (1, 8, 8)),
    "lenet_on_colours": (LeNet(), IMAGE),
    "resnet20_alpha": (ResNet(depth=20, variant="alpha"), IMAGE),
    "resnet20_beta": (ResNet(depth=20, variant="beta"), IMAGE),
    "resnet110_narrow": (ResNet(depth=110, variant="beta", width=4), IMAGE),
    "vgg16_narrow": (Vgg16(width=8), IMAGE),
    "alexnet_narrow": (AlexNet(width=8), IMAGE),
    "custom": (CUSTOM, (2, 9, 11)),
}


def _built(name: str, method: Method) -> DividedNetwork:
    """With statistics of norms that aren't those of a fresh network."""
    network, image = NETWORKS[name]
    made = build(divided(network, method, image, 10), RandomStream.from_seed(4, name))
    set_statistics(made, 0.4 + torch.rand(len(statistics(made)), generator=torch.Generator().manual_seed(2)))
    return made.eval()


@pytest.mark.parametrize("name", thinned(NETWORKS, every=3))
def test_the_processing_module_turns_with_its_input(name: str) -> None:
    network = _built(name, Rotation())
    features = made_up_features(network.divided.feature)
    assert max(turning_error(network.processing, features, theta) for theta in (0.3, 2.2, 5.0)) < 1e-5
    check_equivariant(network.processing, network.divided.feature)


@pytest.mark.parametrize("name", thinned(NETWORKS, every=3))
def test_biases_or_one_relu_are_refused(name: str) -> None:
    def give_bias(module: nn.Module) -> bool:
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.bias = nn.Parameter(torch.full((module.weight.shape[0],), 0.1))
        return isinstance(module, nn.Conv2d | nn.Linear)

    network = _built(name, Rotation())
    last = [module for module in network.processing.modules() if give_bias(module)][-1]
    with pytest.raises(InvalidParameter, match=r"network\.processing must be equivariant to rotations of its input"):
        check_equivariant(network.processing, network.divided.feature)
    assert last.bias is not None

    network = _built(name, Rotation())
    place, parent = [
        (child, module) for module in network.processing.modules() for child, inner in module.named_children() if isinstance(inner, Delta)
    ][-1]
    setattr(parent, place, nn.ReLU())
    with pytest.raises(InvalidParameter, match="equivariant to rotations of its input"):
        check_equivariant(network.processing, network.divided.feature)


@pytest.mark.parametrize("method", [Rotation(), AdditionalLayers(), Noisy(gamma=0.5), Original()])
@pytest.mark.parametrize("name", thinned(NETWORKS, every=4))
def test_shapes_and_parameters_are_as_counted_before(name: str, method: Method) -> None:
    network = _built(name, method)
    images = torch.rand((2, *NETWORKS[name][1]), generator=torch.Generator().manual_seed(1))
    feature = network.encoder(images)
    assert tuple(feature.shape[1:]) == network.divided.feature
    parts = torch.cat((feature, feature)) if network.divided.turned else feature
    assert network.decoder(network.processing(parts)[:2]).shape == (2, 10)
    assert parameter_count(network) == network.divided.parameters


@pytest.mark.parametrize("name", thinned(NETWORKS, every=3))
def test_one_records_answer_doesnt_depend_on_its_batch(name: str) -> None:
    network = _built(name, Rotation())
    one, other = made_up_features(network.divided.feature)
    apart = network.processing(torch.stack((one.real, one.imag)))
    among = network.processing(torch.stack((one.real, 10.0 * other.real, one.imag, 10.0 * other.imag)))[[0, 2]]
    assert torch.allclose(among, apart, rtol=1e-4, atol=1e-5 * float(apart.detach().abs().max()))


def _sizes(network: Architecture, method: Method) -> tuple[Any, ...]:
    shapes = divided(network, method, IMAGE, 10)
    made = build(shapes, RandomStream.from_seed(1, "sizes"))
    parts = torch.zeros((2, *shapes.feature))
    convolutions = [sum(isinstance(m, nn.Conv2d) and m.kernel_size != (1, 1) for m in part.modules()) for part in made.children()]
    return shapes.feature, tuple(made.processing(parts).shape[1:]), tuple(convolutions)


def test_networks_are_cut_where_the_paper_cuts_them() -> None:
    # Feature, processed feature, and convolutions of encoder (the generator's among them), processing module and decoder.
    assert _sizes(LeNet(), Rotation()) == ((6, 32, 32), (84,), (2, 1, 0))
    assert _sizes(LeNet(width=18), Rotation()) == ((18, 32, 32), (252,), (2, 1, 0))
    assert _sizes(ResNet(depth=20, variant="alpha"), Rotation()) == ((16, 32, 32), (64, 8, 8), (8, 8, 4))
    assert _sizes(ResNet(depth=20, variant="beta"), Rotation()) == ((16, 32, 32), (64, 8, 8), (8, 10, 2))
    assert _sizes(ResNet(depth=56, variant="alpha", width=4), Rotation()) == ((4, 32, 32), (16, 8, 8), (20, 20, 16))
    assert _sizes(Vgg16(width=4), Rotation()) == ((16, 8, 8), (32, 1, 1), (7, 7, 0))
    assert _sizes(AlexNet(width=4), Rotation()) == ((24, 8, 8), (16, 4, 4), (4, 2, 0))


def test_only_the_original_network_has_no_generator() -> None:
    network = ResNet(depth=20, variant="alpha", width=4)
    with_generator, without = (divided(network, method, IMAGE, 10).blueprint.encoder for method in (AdditionalLayers(), Original()))
    assert with_generator[:-1] == without
    assert with_generator[-1] == Convolution(outputs=4, kernel=3, padding=1)


def test_baselines_have_conventional_layers() -> None:
    processing = _built("resnet20_alpha", AdditionalLayers()).processing
    kinds = {type(module) for module in processing.modules()}
    assert {nn.BatchNorm2d, nn.ReLU} <= kinds
    assert not {Delta, MagnitudeNorm} & kinds
    assert all(
        module.bias is not None for module in _built("lenet", Noisy(gamma=1.0)).processing.modules() if isinstance(module, nn.Linear)
    )


def test_weights_come_from_the_public_stream_alone() -> None:
    first, second = (_built("custom", Rotation()) for _ in range(2))
    torch.manual_seed(8)
    other = _built("custom", Rotation())
    for one, two, three in zip(first.parameters(), second.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one, three)


def test_statistics_are_taken_out_and_put_back_whole() -> None:
    network = _built("resnet20_alpha", Rotation())
    vector = statistics(network)
    # Two vectors for each batch norm, one for each magnitude norm.
    assert len(vector) == sum(buffer.numel() for buffer in network.buffers()) > 0
    set_statistics(network, torch.zeros_like(vector))
    assert float(statistics(network).abs().max()) == 0.0
    set_statistics(network, vector)
    assert torch.equal(statistics(network), vector)


def test_gradients_of_a_whole_network_are_finite_for_a_zero_feature() -> None:
    network = _built("resnet20_alpha", Rotation()).train()
    parts = torch.zeros((4, *network.divided.feature), requires_grad=True)
    network.processing(parts).square().sum().backward()
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in network.parameters())
    assert parts.grad is not None
    assert parts.grad.isfinite().all()


def _custom(**changes: Any) -> CustomNetwork:
    return CustomNetwork.model_validate(CUSTOM.model_dump() | changes)


@pytest.mark.parametrize(
    ("network", "image", "message"),
    thinned(
        [
            (LeNet(), (1, 7, 8), "network must be one for images of this size (lenet needs at least 8 x 8 pixels), got (1, 7, 8)"),
            (
                ResNet(depth=20, variant="alpha"),
                (3, 28, 28),
                "network must be one for images of this size (resnet needs at least 32 x 32 pixels)",
            ),
            (Vgg16(), (3, 32, 31), "(vgg16 needs at least 32 x 32 pixels)"),
            (AlexNet(), (1, 8, 8), "(alexnet needs at least 32 x 32 pixels)"),
            (_custom(encoder=(Flatten(),)), IMAGE, "network.encoder must be such that a feature is an image (channels, height, width)"),
            (_custom(encoder=(Fourier(),)), IMAGE, "network.encoder[0] must be a convolution, linear layer"),
            (_custom(encoder=(Activation(name="crelu"),)), IMAGE, "network.encoder[0] must be one of relu"),
            (
                _custom(decoder=(Convolution(outputs=3, kernel=1),)),
                IMAGE,
                "network.decoder[0] must be applied to records with one or two spatial axes",
            ),
            (_custom(processing=(Convolution(outputs=3, kernel=40, bias=False),)), IMAGE, "network.processing[0] must be small enough"),
            (
                _custom(processing=(SkipSpec(layers=(Flatten(),)),)),
                IMAGE,
                "network.processing[0] must be around layers that keep a record's shape or reduce an image's sides by a common stride",
            ),
            (Vgg16(width=2048), IMAGE, "real numbers in weights"),
        ],
        every=4,
    ),
)
def test_what_doesnt_fit_is_refused_in_words(network: Architecture, image: tuple[int, ...], message: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        divided(network, Rotation(), image, 10)
    assert message in str(refused.value)
