r"""The Spectral-DP paper's networks: the sizes of its tables 11 to 14, on the data they are for; and those behind scattering."""

from __future__ import annotations

import pytest
import torch
from pydantic import TypeAdapter

from tests.selection import thinned
from tests.trainer.made_up import built, facts_of, records
from zetadp.trainer.data.base import DataSetFacts
from zetadp.trainer.specs.models import papers_spectral
from zetadp.trainer.specs.models.layer_spec import Activation, BlockCirculantLinear, Linear
from zetadp.trainer.specs.models.model_spec import Sequential
from zetadp.trainer.specs.models.named_networks import ModelSpec
from zetadp.trainer.specs.models.shapes import check_model

FLAT, IMAGE, COLOUR = ((784,), (1, 28, 28), (3, 32, 32))
ANY_MODEL: TypeAdapter[ModelSpec] = TypeAdapter(ModelSpec)

MODEL_2 = 32 * 28 + 64 * 289 + 64 * 577 + 64 * 577 + 10 * 577
"""Weights and biases of Table 12's convolutions on three channels."""
MODEL_3_CONVOLUTIONS = 32 * 28 + 32 * 289 + 64 * 289 + 64 * 577 + 128 * 577 + 128 * 1153
LENET_CONVOLUTIONS = 6 * 26 + 16 * 151
SCATTERED = 81 * 7 * 7
"""Numbers that the scattering transform makes of an MNIST image."""

NETWORKS: list[tuple[Sequential, tuple[int, ...], int]] = [
    (papers_spectral.model_1(), FLAT, 784 * 2048 + 2048 * 1024 + 1024 * 160 + 160 * 10 + 2048 + 1024 + 160 + 10),
    (papers_spectral.model_1(8), FLAT, (784 * 2048 + 2048 * 1024 + 1024 * 160) // 8 + 160 + 2048 + 1024 + 160 + 10),
    (papers_spectral.model_1(16), FLAT, (784 * 2048 + 2048 * 1024 + 1024 * 160) // 16 + 160 + 2048 + 1024 + 160 + 10),
    (papers_spectral.lenet_5(None), IMAGE, LENET_CONVOLUTIONS + 120 * 401 + 84 * 121 + 10 * 85),
    # 84 is filled up to 88 for blocks of 8, and to 90 for the last layer's of 10.
    (papers_spectral.lenet_5(), IMAGE, LENET_CONVOLUTIONS + 400 * 120 // 8 + 120 + 120 * 88 // 8 + 84 + 90 + 10),
    (papers_spectral.model_2(), COLOUR, MODEL_2),
    (papers_spectral.model_3(None), COLOUR, MODEL_3_CONVOLUTIONS + 120 * 2049 + 10 * 121),
    (papers_spectral.model_3(), COLOUR, MODEL_3_CONVOLUTIONS + 2048 * 120 // 8 + 120 + 120 + 10),
    (papers_spectral.scatter_linear(), IMAGE, 10 * (SCATTERED + 1)),
    # 3969 is filled up to 3976 for blocks of 8, and 512 to 520 for the last layer's of 10.
    (papers_spectral.scatter_circulant(), IMAGE, 512 * 3976 // 8 + 512 + 520 + 10),
    (papers_spectral.scatter_lenet_5(), IMAGE, 120 * (SCATTERED + 1) + 84 * 121 + 10 * 85),
    (papers_spectral.scatter_lenet_5(8), IMAGE, 120 * 3976 // 8 + 120 + 120 * 88 // 8 + 84 + 90 + 10),
    (papers_spectral.scatter_cnn(), COLOUR, 64 * (3 * 81 * 9 + 1) + 60 * 577 + 10 * (60 * 4 * 4 + 1)),
]


def _facts(shape: tuple[int, ...]) -> DataSetFacts:
    return facts_of(shape, is_complex=False)


@pytest.mark.parametrize(("model", "shape", "_numbers"), thinned(NETWORKS, every=5))
def test_a_network_fits_the_papers_data_and_survives_json(model: Sequential, shape: tuple[int, ...], _numbers: int) -> None:
    check_model(model, _facts(shape))
    assert ANY_MODEL.validate_json(ANY_MODEL.dump_json(model)) == model


@pytest.mark.parametrize(("model", "shape", "numbers"), thinned(NETWORKS, every=5))
def test_a_network_has_the_numbers_of_its_table(model: Sequential, shape: tuple[int, ...], numbers: int) -> None:
    network = built(model, _facts(shape))
    assert sum(parameter.numel() for parameter in network.parameters()) == numbers


@pytest.mark.parametrize(("model", "shape", "_numbers"), thinned(NETWORKS, every=5))
def test_a_network_gives_ten_scores_that_depend_on_the_record(model: Sequential, shape: tuple[int, ...], _numbers: int) -> None:
    facts = _facts(shape)
    scores = built(model, facts).eval()(records(facts))
    assert scores.shape == (3, 10)
    assert float((scores[0] - scores[1]).detach().norm()) > 1e-3


@pytest.mark.parametrize("model", [papers_spectral.model_1(16), papers_spectral.lenet_5(16), papers_spectral.model_3(16)])
def test_the_last_block_is_ten_whatever_the_others_are(model: Sequential) -> None:
    blocks = [layer.block for layer in model.layers if isinstance(layer, BlockCirculantLinear)]
    assert blocks[-1] == 10
    assert set(blocks[:-1]) == {16}


@pytest.mark.parametrize("model", [papers_spectral.model_1(), papers_spectral.lenet_5(None), papers_spectral.model_3(None)])
def test_without_a_block_every_connected_layer_is_dense(model: Sequential) -> None:
    kinds = [type(layer) for layer in model.layers]
    assert BlockCirculantLinear not in kinds
    assert kinds[-1] is Linear


@pytest.mark.parametrize(("model", "activations"), [(papers_spectral.model_1(8, "relu"), 3), (papers_spectral.model_3(8, "relu"), 7)])
def test_another_activation_follows_every_layer_but_the_last(model: Sequential, activations: int) -> None:
    names = [layer.name for layer in model.layers if isinstance(layer, Activation)]
    assert names == ["relu"] * activations
    assert not isinstance(model.layers[-1], Activation)


def test_model_2_takes_means_of_scores_that_no_activation_bounds() -> None:
    facts = _facts(COLOUR)
    network = built(papers_spectral.model_2(), facts)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(20.0)
    assert float(network(records(facts)).detach().abs().max()) > 1.0
