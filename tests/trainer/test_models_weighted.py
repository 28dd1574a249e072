"""Layers that learn, as the spec tells them, against the networks that are built of it."""

from __future__ import annotations

import subprocess
import sys
from typing import Literal

import pytest

from tests.trainer.made_up import built, facts_of
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.specs.models.layer_numbers import ComplexActivation
from zetadp.trainer.specs.models.layer_spec import (
    Activation,
    BlockCirculantLinear,
    Convolution,
    Dropout,
    Flatten,
    Fourier,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    LayerSpec,
    Linear,
    MaxPool,
    TransposedConvolution,
)
from zetadp.trainer.specs.models.model_spec import Sequential
from zetadp.trainer.specs.models.weighted import WeightedLayer, weighted_layers

LAYERS: tuple[LayerSpec, ...] = (
    Convolution(outputs=6, kernel=3),
    GroupNorm(groups=2),
    Dropout(probability=0.5),
    TransposedConvolution(outputs=4, kernel=2),
    LayerNorm(),
    MaxPool(kernel=2, stride=2),
    InstanceNorm(),
    Flatten(),
    BlockCirculantLinear(outputs=12, block=5),
    Linear(outputs=3, bias=False),
)


def sequential(*layers: LayerSpec, numbers: Literal["complex", "real", "real_pairs"] = "complex") -> Sequential:
    return Sequential(numbers=numbers, layers=layers, head="magnitude" if numbers == "complex" else "none")


@pytest.mark.parametrize("numbers", ["complex", "real", "real_pairs"])
def test_names_are_those_of_the_built_networks_parameters(numbers: Literal["complex", "real", "real_pairs"]) -> None:
    model, facts = sequential(*LAYERS, numbers=numbers), facts_of((2, 8, 8), 3, is_complex=numbers != "real")
    found = [name.rpartition(".")[0] for name, _ in built(model, facts).named_parameters()]
    assert [layer.name for layer in weighted_layers(model, facts)] == list(dict.fromkeys(found))


@pytest.mark.parametrize("name", ComplexActivation.__args__)
def test_an_activation_is_among_them_where_it_has_parameters(name: ComplexActivation) -> None:
    model, facts = sequential(Activation(name=name), Linear(outputs=3)), facts_of((8,), 3)
    found = [parameter.rpartition(".")[0] for parameter, _ in built(model, facts).named_parameters()]
    assert [layer.name for layer in weighted_layers(model, facts)] == list(dict.fromkeys(found))


@pytest.mark.parametrize("shape", [(2, 8, 8), (2, 12)])
def test_a_spectrum_runs_over_the_last_axes_of_the_weight(shape: tuple[int, ...]) -> None:
    facts = facts_of(shape, 3)
    model = sequential(
        Fourier(), Convolution(outputs=4, kernel=3), LayerNorm(), Flatten(), BlockCirculantLinear(outputs=7, block=5), Linear(outputs=3)
    )
    weights = dict(built(model, facts).named_parameters())
    layers = weighted_layers(model, facts)
    axes = len(shape) - 1
    assert [layer.spectrum_shape for layer in layers] == [(3,) * axes, None, (5,), None]
    for layer in layers:
        if layer.spectrum_shape is not None:
            assert tuple(weights[f"{layer.name}.weight"].shape[-len(layer.spectrum_shape) :]) == layer.spectrum_shape


def test_a_transposed_convolution_has_two_spectral_axes() -> None:
    model = sequential(TransposedConvolution(outputs=3, kernel=2), Flatten(), Linear(outputs=3))
    assert weighted_layers(model, facts_of((1, 4, 4), 3))[0] == WeightedLayer("0_transposed_convolution", "transposed_convolution", (2, 2))


def test_a_network_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InvalidParameter, match=r"layers\[0\] must be after a flatten layer"):
        weighted_layers(sequential(Linear(outputs=3)), facts_of((1, 8, 8), 3))


def test_it_loads_no_torch() -> None:
    code = "import sys, trainer.specs.models.weighted; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
