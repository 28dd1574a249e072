r"""Networks as values: their JSON, and what is refused before torch is loaded."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, Literal

import pytest
from pydantic import TypeAdapter, ValidationError

from tests.selection import thinned
from tests.trainer.made_up import facts_of
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.base import DataSetFacts
from zetadp.trainer.specs.models import papers
from zetadp.trainer.specs.models.layer_spec import (
    Activation,
    AdaptiveAveragePool,
    AveragePool,
    BlockCirculantLinear,
    Convolution,
    FilterBank,
    Flatten,
    Fourier,
    GroupNorm,
    InstanceNorm,
    LayerSpec,
    Linear,
    MaxPool,
    TransposedConvolution,
    Unflatten,
)
from zetadp.trainer.specs.models.model_spec import ComplexMlp, ComplexUnet, Sequential
from zetadp.trainer.specs.models.named_networks import ModelSpec
from zetadp.trainer.specs.models.residual_networks import resnet_18, resnext_29, wide_resnet
from zetadp.trainer.specs.models.shapes import check_model, input_shape, sequential_shapes, unet_weights
from zetadp.trainer.specs.models.transformers import recurrent, transformer

ANY_MODEL: TypeAdapter[ModelSpec] = TypeAdapter(ModelSpec)
Numbers = Literal["complex", "real", "real_pairs"]


def sequential(*layers: LayerSpec, numbers: Numbers = "complex") -> Sequential:
    return Sequential(numbers=numbers, layers=layers, head="magnitude" if numbers == "complex" else "none")


PAPERS: list[tuple[ModelSpec, DataSetFacts]] = [
    (papers.phase_mnist(), facts_of((784,))),
    (papers.real_mnist(), facts_of((784,), is_complex=False)),
    (papers.papernot_cifar("complex"), facts_of((3, 32, 32))),
    (papers.papernot_cifar("real_pairs"), facts_of((3, 32, 32))),
    (papers.papernot_cifar("real"), facts_of((3, 32, 32), is_complex=False)),
    (papers.ecg(), facts_of((512,), 2)),
    (papers.speech(8), facts_of((1, 124, 129), 8)),
    (papers.mri_reconstruction(), facts_of((1, 320, 320), None)),
    (papers.mri_sequence(4), facts_of((1, 32, 32), 4)),
]


@pytest.mark.parametrize(("model", "facts"), thinned(PAPERS, every=3))
def test_a_papers_network_fits_the_papers_data(model: ModelSpec, facts: DataSetFacts) -> None:
    check_model(model, facts)


@pytest.mark.parametrize("model", thinned([model for model, _ in PAPERS], every=3))
def test_a_network_survives_json(model: ModelSpec) -> None:
    assert ANY_MODEL.validate_json(ANY_MODEL.dump_json(model)) == model


def test_a_perceptron_of_earlier_specs_keeps_its_json() -> None:
    text = '{"kind":"complex_mlp","hidden":[8],"activation":"cardioid","head":"magnitude"}'
    assert ComplexMlp.model_validate_json(text).model_dump_json() == text


def test_checking_a_network_loads_no_torch() -> None:
    code = "import sys, trainer.specs.models.papers, trainer.specs.models.shapes; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("fields", "text"),
    thinned(
        [
            ({"numbers": "real", "head": "magnitude"}, "model.head must be none for numbers real"),
            ({"numbers": "real", "layers": [{"kind": "activation", "name": "crelu"}]}, r"layers\[0\].name must be a real activation"),
            ({"layers": [{"kind": "flatten"}, {"kind": "activation", "name": "relu"}]}, r"layers\[1\].name must be a complex activation"),
            ({"numbers": "real", "layers": [{"kind": "fourier"}]}, "the output of fourier is complex"),
            ({"layers": []}, "at least 1 item"),
            ({"layers": [{"kind": "flatten"}] * 129}, "at most 128 items"),
            ({"layers": [{"kind": "batch_norm"}]}, "batch_norm"),
            ({"layers": [{"kind": "linear", "outputs": 0}]}, "greater than or equal to 1"),
            ({"layers": [{"kind": "linear", "outputs": 65537}]}, "less than or equal to 65536"),
            ({"layers": [{"kind": "dropout", "probability": 1.0}]}, "less than 1"),
            ({"layers": [{"kind": "filter_bank", "wavelengths": [4.0], "orientations": 4, "size": 8, "pool": 4}]}, "size must be odd"),
        ],
        every=4,
    ),
)
def test_a_network_that_no_data_fit_is_refused_at_construction(fields: dict[str, Any], text: str) -> None:
    numbers = fields.get("numbers", "complex")
    plain = {"numbers": numbers, "layers": [{"kind": "flatten"}], "head": "magnitude" if numbers == "complex" else "none"}
    with pytest.raises(ValidationError, match=text):
        Sequential.model_validate(plain | fields)


def test_fixed_filters_stand_before_everything_that_learns() -> None:
    bank = FilterBank(wavelengths=(4.0,), orientations=4, size=9, pool=4)
    with pytest.raises(ValidationError, match=r"layers\[1\] must be before all trainable"):
        sequential(Convolution(outputs=2, kernel=1), bank)


def test_groups_of_a_unet_divide_its_channels() -> None:
    with pytest.raises(ValidationError, match="norm_groups must be a divisor of channels = 8"):
        ComplexUnet(channels=8, pools=1, activation="crelu", norm_groups=3, dropout=0.0, residual=False)


@pytest.mark.parametrize(
    ("layers", "text"),
    thinned(
        [
            ((Linear(outputs=10),), r"layers\[0\] must be after a flatten layer"),
            (
                (Flatten(), BlockCirculantLinear(outputs=10, block=4), Convolution(outputs=3, kernel=1)),
                r"layers\[2\] must be applied to records with one",
            ),
            ((Convolution(outputs=4, kernel=9),), r"layers\[0\] must be small enough"),
            ((Convolution(outputs=4, kernel=5, dilation=2),), r"layers\[0\] must be small enough"),
            ((Convolution(outputs=4, kernel=3, groups=2),), r"layers\[0\].groups must be a divisor of 3 inputs and 4 outputs"),
            ((Convolution(outputs=6, kernel=3), GroupNorm(groups=4)), r"layers\[1\].groups must be a divisor of 6 channels"),
            ((AdaptiveAveragePool(size=1), InstanceNorm()), r"layers\[1\] must be applied where every group has at least two numbers"),
            ((MaxPool(kernel=9, stride=1),), r"layers\[0\] must be small enough"),
            ((AdaptiveAveragePool(size=9),), r"layers\[0\] must be small enough"),
            ((Flatten(), Unflatten(channels=3, height=8, width=9)), r"layers\[1\] must be applied to flat records of 216 numbers"),
            (
                (Flatten(), FilterBank(wavelengths=(4.0,), orientations=1, size=3, pool=2)),
                r"layers\[1\] must be applied to records with two spatial axes",
            ),
            ((Flatten(), Linear(outputs=9)), "such that the output is 10 class scores"),
            ((Convolution(outputs=10, kernel=3),), "such that the output is 10 class scores"),
        ],
        every=5,
    ),
)
def test_a_layer_that_does_not_take_its_input_is_named(layers: tuple[LayerSpec, ...], text: str) -> None:
    with pytest.raises(InvalidParameter, match=text):
        check_model(sequential(*layers), facts_of((3, 8, 8)))


def test_a_block_may_be_as_large_as_the_larger_side_and_is_padded() -> None:
    (stage,) = sequential_shapes(sequential(BlockCirculantLinear(outputs=10, block=30, bias=False)), facts_of((30,)))
    assert (stage.outputs, stage.weights) == ((10,), 2 * 30)


@pytest.mark.parametrize(("inputs", "outputs"), [(30, 10), (7, 10)])
def test_a_block_larger_than_the_layer_is_refused(inputs: int, outputs: int) -> None:
    largest = max(inputs, outputs)
    text = rf"layers\[0\].block must be at most max\(inputs, outputs\) = {largest}, .*, got {largest + 1}$"
    with pytest.raises(InvalidParameter, match=text):
        check_model(sequential(BlockCirculantLinear(outputs=outputs, block=largest + 1)), facts_of((inputs,)))


def test_a_transposed_convolution_needs_two_spatial_axes() -> None:
    with pytest.raises(InvalidParameter, match=r"layers\[0\] must be applied to records with two spatial axes \(transposed_convolution\)"):
        check_model(sequential(TransposedConvolution(outputs=1, kernel=2)), facts_of((3, 8)))


@pytest.mark.parametrize(
    ("model", "facts", "text"),
    thinned(
        [
            (papers.real_mnist(), facts_of((784,)), "complex or real_pairs for complex data"),
            (papers.phase_mnist(), facts_of((1, 28, 28)), "complex_mlp classifies flat records"),
            (papers.mri_sequence(4), facts_of((1, 32, 32), None), "model.head must be none"),
            (papers.mri_reconstruction(), facts_of((1, 32, 32)), "complex_unet reconstructs complex images"),
            (papers.mri_reconstruction(), facts_of((1, 32, 40), None), "multiples of 16"),
            (papers.mri_reconstruction(), facts_of((1, 16, 16), None), "multiples of 16"),
            (Sequential(numbers="complex", layers=(Fourier(),), head="none"), facts_of((10,)), "complex outputs into real class scores"),
            (
                Sequential(numbers="complex", layers=(AveragePool(kernel=2, stride=2),), head="none"),
                facts_of((1, 8, 8), None),
                "the shape of the input",
            ),
            (
                Sequential(numbers="real", layers=(Activation(name="relu"),), head="none"),
                facts_of((1, 8, 8), None, is_complex=False),
                "complex images or flat rows of real numbers",
            ),
        ],
        every=3,
    ),
)
def test_a_network_for_another_task_is_refused(model: ModelSpec, facts: DataSetFacts, text: str) -> None:
    with pytest.raises(InvalidParameter, match=text):
        check_model(model, facts)


@pytest.mark.parametrize(
    ("layers", "text"),
    [
        ((Flatten(), Linear(outputs=65536), Linear(outputs=65536), Linear(outputs=10)), "real numbers in weights"),
        ((Convolution(outputs=65536, kernel=1), AdaptiveAveragePool(size=1), Flatten(), Linear(outputs=10)), "record's activations"),
    ],
)
def test_a_network_beyond_any_memory_is_refused(layers: tuple[LayerSpec, ...], text: str) -> None:
    with pytest.raises(InvalidParameter, match=text):
        check_model(sequential(*layers), facts_of((1, 64, 64)))


def test_shapes_follow_every_layer() -> None:
    model = sequential(
        Convolution(outputs=6, kernel=3, stride=2, padding=2, dilation=2, groups=3),  # (13 + 4 - 5) // 2 + 1 = 7, (10 + 4 - 5) // 2 + 1 = 5
        TransposedConvolution(outputs=4, kernel=3, stride=2, padding=1),  # 6 * 2 - 2 + 3 = 13, 4 * 2 - 2 + 3 = 9
        MaxPool(kernel=3, stride=2),
        AveragePool(kernel=2, stride=1),
        Flatten(),
        BlockCirculantLinear(outputs=10, block=8),
    )
    stages = sequential_shapes(model, facts_of((3, 13, 10)))
    assert [stage.outputs for stage in stages] == [(6, 7, 5), (4, 13, 9), (4, 6, 4), (4, 5, 3), (60,), (10,)]
    # Complex numbers count twice: 6 * (9 + 1), 4 * (6 * 9 + 1), and 2 x 8 blocks of 8 with 10 biases.
    assert [stage.weights for stage in stages] == [120, 440, 0, 0, 0, 276]


def test_real_pairs_have_twice_the_channels() -> None:
    assert input_shape(papers.papernot_cifar("real_pairs"), facts_of((3, 32, 32))) == (6, 32, 32)


def test_a_unet_has_the_weights_of_its_convolutions() -> None:
    # One pool, channels 2: 3 x 3 from 1 to 2, 2 to 2, 2 to 4, 4 to 4; 2 x 2 from 4 to 2; 3 x 3 from 4 to 2, 2 to 2; 1 x 1 and its bias.
    model = ComplexUnet(channels=2, pools=1, activation="crelu", norm_groups=None, dropout=0.0, residual=False)
    assert unet_weights(model, 1) == 9 * (2 + 4 + 8 + 16) + 4 * 8 + 9 * (8 + 4) + 2 + 1


def test_a_transform_of_real_pairs_needs_whole_pairs() -> None:
    layers = (Convolution(outputs=5, kernel=3), Fourier(), Flatten(), Linear(outputs=10))
    with pytest.raises(
        InvalidParameter, match=r"layers\[1\] must be applied to an even number of channels or features, half of them imaginary, got 5"
    ):
        check_model(sequential(*layers, numbers="real_pairs"), facts_of((3, 8, 8)))


NAMED: list[tuple[dict[str, Any], Sequential]] = [
    ({"kind": "resnet18", "classes": 10, "numbers": "real"}, resnet_18(10)),
    (
        {"kind": "resnet18", "classes": 7, "numbers": "complex", "width": 16, "normalises_sums": True},
        resnet_18(7, "complex", 16, normalises_sums=True),
    ),
    (
        {"kind": "resnet18", "classes": 7, "numbers": "real_pairs", "for_large_images": True},
        resnet_18(7, "real_pairs", for_large_images=True),
    ),
    ({"kind": "resnext29", "classes": 100, "numbers": "real"}, resnext_29(100, 8, 64)),
    ({"kind": "wide_resnet", "classes": 10, "numbers": "real"}, wide_resnet(10, 28, 10)),
    ({"kind": "wide_resnet", "classes": 10, "numbers": "complex", "depth": 16, "widening": 4}, wide_resnet(10, 16, 4, "complex")),
    (
        {"kind": "transformer", "classes": 2, "numbers": "real", "layers": 2, "channels": 8, "heads": 2, "entries": 30, "dropout": 0.1},
        transformer(2, "real", layers=2, channels=8, heads=2, entries=30, dropout=0.1),
    ),
    (
        {"kind": "recurrent_network", "classes": 2, "numbers": "complex", "cell": "gru", "layers": 2, "channels": 4, "entries": None},
        recurrent(2, "complex", "gru", layers=2, channels=4, entries=None),
    ),
]


@pytest.mark.parametrize(("asked", "network"), thinned(NAMED, every=3))
def test_a_name_stands_for_layers_which_is_what_is_kept(asked: dict[str, Any], network: Sequential) -> None:
    found = ANY_MODEL.validate_python(asked)
    assert found == network
    assert ANY_MODEL.validate_json(ANY_MODEL.dump_json(found)) == network


def test_every_name_is_in_the_schema_of_requests() -> None:
    named = set(ANY_MODEL.json_schema(mode="validation")["discriminator"]["mapping"])
    assert named == {"complex_mlp", "complex_unet", "sequential", *(asked["kind"] for asked, _ in NAMED)}
    assert set(ANY_MODEL.json_schema(mode="serialization")["discriminator"]["mapping"]) == {"complex_mlp", "complex_unet", "sequential"}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"kind": "resnet19"}, "tag 'resnet19' found .*'resnet18'"),
        ({"kind": "resnet18", "classes": 10}, "resnet18.numbers"),
        ({"kind": "wide_resnet", "classes": 10, "numbers": "real", "depth": 11}, "depth must be 10, 16, 22"),
    ],
)
def test_a_name_that_nothing_has_is_refused_by_its_place(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ANY_MODEL.validate_python(asked)
