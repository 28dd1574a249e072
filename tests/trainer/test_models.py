r"""Built networks: sizes, number formats, weights from the public stream, and records that stay apart."""

from __future__ import annotations

import math
from typing import Literal

import pytest
import torch
from torch import nn

from tests.trainer.made_up import PAPERS, built, facts_of, records, targets
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.base import DataSetFacts
from zetadp.trainer.layers import FromPlanes, ToPlanes
from zetadp.trainer.models import losses_for
from zetadp.trainer.models.complex_unet import ComplexUnetNetwork
from zetadp.trainer.models.sequential import ZeroImaginary
from zetadp.trainer.specs.models import papers
from zetadp.trainer.specs.models.layer_spec import (
    Activation,
    AdaptiveAveragePool,
    AdaptiveMaxPool,
    AveragePool,
    BlockCirculantLinear,
    Convolution,
    Dropout,
    FilterBank,
    Flatten,
    Fourier,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    LayerSpec,
    Linear,
    MaxPool,
    TransposedConvolution,
    Unflatten,
)
from zetadp.trainer.specs.models.model_spec import ComplexUnet, Sequential
from zetadp.trainer.specs.models.named_networks import ModelSpec

Numbers = Literal["complex", "real", "real_pairs"]
FLOAT32 = 1e-5
"""Relative: float32 sums of some hundred terms in another order."""

CONVOLUTIONAL: tuple[LayerSpec, ...] = (
    Convolution(outputs=6, kernel=3, padding=1, stride=2, groups=3),
    GroupNorm(groups=3),
    Dropout(probability=0.25),
    TransposedConvolution(outputs=4, kernel=2, stride=2),
    LayerNorm(),
    MaxPool(kernel=2, stride=1),
    AveragePool(kernel=2, stride=2),
    InstanceNorm(),
    AdaptiveMaxPool(size=2),
    Flatten(),
    BlockCirculantLinear(outputs=12, block=5),
    Unflatten(channels=3, height=2, width=2),
    AdaptiveAveragePool(size=1),
    Flatten(),
    Linear(outputs=3, bias=False),
)
"""Every layer that both kinds of numbers have, but activations."""


def sequential(*layers: LayerSpec, numbers: Numbers = "complex", head: Literal["magnitude", "real_part"] = "magnitude") -> Sequential:
    return Sequential(numbers=numbers, layers=layers, head=head if numbers == "complex" else "none")


def real_numbers(network: nn.Module) -> int:
    return sum(p.numel() * (2 if p.is_complex() else 1) for p in network.parameters())


@pytest.mark.parametrize(("model", "facts", "size"), PAPERS)
def test_a_papers_network_has_its_size_shape_and_finite_gradients(model: ModelSpec, facts: DataSetFacts, size: int) -> None:
    network = built(model, facts)
    outputs = network(records(facts))
    losses = losses_for(facts)(outputs, targets(facts))
    losses.sum().backward()
    assert real_numbers(network) == size
    assert (tuple(outputs.shape), outputs.dtype) == (
        ((3, *facts.shape), torch.complex64) if facts.classes is None else ((3, facts.classes), torch.float32)
    )
    assert losses.shape == (3,)
    gradients = [p.grad for p in network.parameters()]
    assert all(g is not None and bool(torch.isfinite(g).all()) for g in gradients)


@pytest.mark.parametrize(("model", "facts", "size"), PAPERS)
def test_a_record_answers_alone_as_among_others(model: ModelSpec, facts: DataSetFacts, size: int) -> None:
    network = built(model, facts)
    features = records(facts)
    together, alone = network(features), torch.cat([network(features[n : n + 1]) for n in range(3)])
    # Ten times: batched kernels may take another route, and norms divide by small spreads.
    torch.testing.assert_close(together, alone, rtol=10 * FLOAT32, atol=10 * FLOAT32)


@pytest.mark.parametrize("numbers", ["complex", "real", "real_pairs"])
def test_no_layer_lets_one_record_move_another(numbers: Numbers) -> None:
    facts = facts_of((3, 8, 6), 3, is_complex=numbers != "real")
    network = built(sequential(*CONVOLUTIONAL, numbers=numbers), facts).eval()
    features = records(facts).requires_grad_()
    network(features)[1].sum().backward()
    assert features.grad is not None
    assert [bool(part.abs().max() > 0) for part in features.grad] == [False, True, False]


@pytest.mark.parametrize("numbers", ["complex", "real", "real_pairs"])
@pytest.mark.parametrize("shape", [(3, 8, 6), (3, 40)])
def test_weights_come_from_the_stream_alone(numbers: Numbers, shape: tuple[int, ...]) -> None:
    layers = CONVOLUTIONAL if len(shape) == 3 else (Convolution(outputs=3, kernel=3), AdaptiveMaxPool(size=1), Flatten())
    facts = facts_of(shape, 3, is_complex=numbers != "real")
    model = sequential(*layers, numbers=numbers)
    before = torch.get_rng_state()
    first, again, other = built(model, facts), built(model, facts), built(model, facts, seed=5)
    assert torch.equal(torch.get_rng_state(), before)
    pairs = list(zip(first.parameters(), again.parameters(), other.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b, _ in pairs)
    assert any(not torch.equal(a, c) for a, _, c in pairs)


def test_conversions_stand_only_where_the_format_changes() -> None:
    layers = (
        Fourier(),
        Activation(name="cardioid"),
        Convolution(outputs=4, kernel=3),
        Activation(name="crelu"),
        AveragePool(kernel=2, stride=2),
        Flatten(),
        Linear(outputs=6),
        Activation(name="crelu"),
        Linear(outputs=6),
        GroupNorm(groups=2),
        Dropout(probability=0.5),
        Linear(outputs=10),
    )
    network = built(sequential(*layers), facts_of((2, 8, 8)))
    found = [name for name, module in network.named_children() if isinstance(module, ToPlanes | FromPlanes)]
    assert found == ["2_convolution_planes", "head_native"]


def test_planes_at_the_end_are_made_complex_for_the_head() -> None:
    network = built(sequential(Convolution(outputs=10, kernel=8), Flatten()), facts_of((2, 8, 8)))
    assert [type(module) for module in network.children()][-2] is FromPlanes


def test_real_networks_convert_nothing() -> None:
    network = built(papers.papernot_cifar("real"), facts_of((3, 8, 8), is_complex=False))
    assert not [m for m in network.modules() if isinstance(m, ToPlanes | FromPlanes | ZeroImaginary)]


def test_a_complex_network_is_what_native_complex_arithmetic_makes_of_it() -> None:
    layers = (Convolution(outputs=4, kernel=3, stride=2, padding=1), Activation(name="crelu"), Flatten(), Linear(outputs=10))
    facts = facts_of((3, 8, 6))
    network = built(sequential(*layers, head="real_part"), facts)
    z, (kernel, bias, weight, shift) = records(facts), [p.detach() for p in network.parameters()]
    y = nn.functional.conv2d(z, kernel, bias, stride=2, padding=1)
    y = torch.complex(y.real.relu(), y.imag.relu()).flatten(1)
    torch.testing.assert_close(network(z), (y @ weight.T + shift).real, rtol=FLOAT32, atol=FLOAT32)


@pytest.mark.parametrize("convolutions", [1, 2])
def test_a_lone_convolutions_planes_are_flattened_without_a_copy(convolutions: int) -> None:
    """Of several, channels last saves more than the copy costs."""
    facts = facts_of((3, 9, 9))
    layers = [Convolution(outputs=4, kernel=3) for _ in range(convolutions)]
    network = built(sequential(*layers, Flatten(), Linear(outputs=10)), facts)
    flattened: list[bool] = []
    flat = next(module for module in network.modules() if isinstance(module, nn.Flatten))
    flat.register_forward_hook(lambda _module, given, output: flattened.append(given[0].data_ptr() == output.data_ptr()))
    network(records(facts))
    assert flattened == [convolutions == 1]


def test_real_pairs_are_a_real_network_on_both_parts_as_channels() -> None:
    facts = facts_of((3, 8, 6))
    model = sequential(Convolution(outputs=10, kernel=3), AdaptiveAveragePool(size=1), Flatten(), numbers="real_pairs")
    network = built(model, facts)
    z, (kernel, bias) = records(facts), list(network.parameters())
    expected = nn.functional.conv2d(torch.cat((z.real, z.imag), dim=1), kernel, bias).mean(dim=(2, 3))
    torch.testing.assert_close(network(z), expected, rtol=FLOAT32, atol=FLOAT32)


@pytest.mark.parametrize("numbers", ["complex", "real_pairs"])
@pytest.mark.parametrize("first", [Convolution(outputs=10, kernel=8), Flatten()])
def test_real_data_are_complex_with_imaginary_part_zero(numbers: Numbers, first: LayerSpec) -> None:
    model = sequential(first, Flatten(), Linear(outputs=10), numbers=numbers)
    x = records(facts_of((2, 8, 8), is_complex=False))
    of_real = built(model, facts_of((2, 8, 8), is_complex=False))(x)
    of_complex = built(model, facts_of((2, 8, 8)))(torch.complex(x, torch.zeros_like(x)))
    torch.testing.assert_close(of_real, of_complex, rtol=FLOAT32, atol=FLOAT32)


@pytest.mark.parametrize(("shape", "axes"), [((2, 8, 6), (2, 3)), ((2, 9), (2,)), ((7,), (1,))])
def test_the_fourier_layer_is_the_unitary_transform_of_a_record(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    facts = facts_of(shape, classes=math.prod(shape))
    network = built(sequential(Fourier(), Flatten(), head="real_part"), facts)
    z = records(facts)
    spectrum = torch.fft.fftn(z, dim=axes, norm="ortho").flatten(1)
    torch.testing.assert_close(network(z), spectrum.real, rtol=FLOAT32, atol=FLOAT32)
    pairs = built(sequential(Fourier(), Flatten(), numbers="real_pairs"), facts_of(shape, classes=2 * math.prod(shape)))
    torch.testing.assert_close(pairs(z), torch.cat((spectrum.real, spectrum.imag), dim=1), rtol=FLOAT32, atol=FLOAT32)


def test_fixed_filters_have_nothing_to_learn() -> None:
    bank = FilterBank(wavelengths=(4.0, 8.0), orientations=4, size=9, pool=4)
    facts = facts_of((64,), 3)
    network = built(sequential(Unflatten(channels=1, height=8, width=8), bank, Flatten(), Linear(outputs=3)), facts)
    assert real_numbers(network) == 2 * (3 * 9 * 4 + 3)
    assert network(records(facts)).shape == (3, 3)


@pytest.mark.parametrize("numbers", ["complex", "real_pairs"])
def test_layers_in_a_row_reconstruct_images(numbers: Numbers) -> None:
    facts = facts_of((2, 8, 8), None)
    channels = 2 if numbers == "complex" else 4
    model = Sequential(numbers=numbers, layers=(Convolution(outputs=channels, kernel=3, padding=1),), head="none")
    images = built(model, facts)(records(facts))
    assert (images.shape, images.dtype) == ((3, 2, 8, 8), torch.complex64)


def test_activations_with_biases_have_one_or_one_a_feature() -> None:
    facts = facts_of((2, 6, 6))
    names = ("trainable_cardioid", "modrelu_per_feature")
    layers = (Convolution(outputs=5, kernel=3), Activation(name=names[0]), Flatten(), Activation(name=names[1]), Linear(outputs=10))
    network = built(sequential(*layers), facts)
    sizes = {name: p.numel() for name, p in network.named_parameters() if "activation" in name}
    assert sizes == {"1_activation.bias": 1, "3_activation.bias": 5 * 16}


def test_scaled_weights_give_every_layer_outputs_of_size_one() -> None:
    facts = facts_of((1, 40, 40), 8)
    network = built(papers.speech(8), facts).eval()
    sizes: list[float] = []
    x = records(facts, count=64) / math.sqrt(2.0)
    with torch.no_grad():
        for name, module in network.named_children():
            x = module(x)
            if name.endswith(("_convolution", "_linear")):  # all of them on planes, each of which has a half
                sizes.append(2.0 * float(x.square().mean()))
    # Scaled on four other records of noise: behind the maximum over positions few numbers are left to take a mean square of.
    assert sizes == pytest.approx([1.0] * 6, rel=0.1)


def test_a_unet_of_weight_zero_at_its_end_adds_nothing_to_its_input() -> None:
    facts = facts_of((2, 8, 8), None)
    spec = ComplexUnet(channels=4, pools=1, activation="conj_mish", norm_groups=2, dropout=0.5, residual=True)
    network = built(spec, facts)
    assert isinstance(network, ComplexUnetNetwork)
    nn.init.zeros_(network.last.weight)
    z = records(facts)
    torch.testing.assert_close(network(z), z, rtol=0.0, atol=0.0)


def test_a_unet_joins_complex_channels_not_planes() -> None:
    # The skipped level's and the raised level's channels meet at the same place in both halves of the planes: turning the input by i
    # then turns the output by i, because whitening turns with its input and everything else is linear once nothing is gated.
    facts = facts_of((1, 8, 8), None)
    network = built(ComplexUnet(channels=2, pools=1, activation="crelu", norm_groups=None, dropout=0.0, residual=False), facts)
    for module in network.modules():
        for name, child in list(module.named_children()):
            if type(child).__name__ == "Elementwise":
                setattr(module, name, nn.Identity())
    z = records(facts)
    assert isinstance(network, ComplexUnetNetwork)
    torch.testing.assert_close(network(1j * z), 1j * network(z), rtol=1e-3, atol=1e-4)  # nine whitenings, one after the other


def test_a_network_that_does_not_fit_is_not_built() -> None:
    with pytest.raises(InvalidParameter, match=r"layers\[0\] must be after a flatten layer"):
        built(sequential(Linear(outputs=10)), facts_of((1, 8, 8)))


def test_losses_of_classes_are_cross_entropies() -> None:
    scores = torch.tensor([[0.0, 0.0], [math.log(3.0), 0.0]])
    found = losses_for(facts_of((5,), 2))(scores, torch.tensor([1, 0]))
    torch.testing.assert_close(found, torch.tensor([math.log(2.0), math.log(4 / 3)]), rtol=FLOAT32, atol=0.0)


def test_losses_of_images_are_mean_squares_of_complex_differences() -> None:
    images = torch.tensor([[3 + 4j, 1.0], [0.0, 2j]]).reshape(2, 1, 1, 2)
    found = losses_for(facts_of((1, 1, 2), None))(images, torch.zeros_like(images))
    torch.testing.assert_close(found, torch.tensor([13.0, 2.0]), rtol=FLOAT32, atol=0.0)
