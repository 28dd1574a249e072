r"""Networks on sequences: embeddings, attention, recurrence, transformers; real and complex."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.selection import thinned
from tests.trainer.layer_cases import MEMBERS, LayerCase, relative_error
from tests.trainer.made_up import built, facts_of, records
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import RuntimeSpec, ZetaDpSgd, load_train
from zetadp.trainer.layers.planes import from_planes, to_planes
from zetadp.trainer.models import build
from zetadp.trainer.specs.models.layer_spec import Activation, Columns, Convolution, Dropout, Flatten, LayerSpec, Linear, Residual
from zetadp.trainer.specs.models.model_spec import Sequential
from zetadp.trainer.specs.models.parameter_counts import Numbers
from zetadp.trainer.specs.models.sequence_layers import Embedding, PositionEmbedding, PositionNorm, Recurrent, SelfAttention
from zetadp.trainer.specs.models.shapes import sequential_shapes
from zetadp.trainer.specs.models.transformers import transformer
from zetadp.trainer.specs.models.weighted import weighted_layers

CLASSES = 3


def sequential(numbers: Numbers, *layers: LayerSpec) -> Sequential:
    return Sequential(numbers=numbers, layers=layers, head="magnitude" if numbers == "complex" else "none")


def recurrent(numbers: Numbers, cell: Any, returns: Any) -> Sequential:
    end = (Flatten(),) if returns == "sequence" else ()
    return sequential(numbers, Recurrent(cell=cell, outputs=4, returns=returns), *end, Linear(outputs=CLASSES))


def attending(numbers: Numbers) -> Sequential:
    return transformer(CLASSES, numbers, layers=1, channels=4, heads=2, entries=None, dropout=0.0)


def reading(numbers: Numbers) -> Sequential:
    return transformer(CLASSES, numbers, layers=1, channels=4, heads=2, entries=5, dropout=0.0)


NUMBERS: list[Numbers] = ["real", "complex"]
CASES: dict[str, tuple[Sequential, tuple[int, ...]]] = {}
for kind in NUMBERS:
    CASES[f"rnn, {kind}"] = recurrent(kind, "rnn", "sequence"), (3, 5)
    CASES[f"gru, {kind}"] = recurrent(kind, "gru", "last"), (3, 5)
    CASES[f"transformer, {kind}"] = attending(kind), (4, 6)
    CASES[f"transformer of numbers, {kind}"] = reading(kind), (7,)


def case_of(model: Sequential, shape: tuple[int, ...], *, is_complex: bool) -> LayerCase:
    facts = facts_of(shape, CLASSES, is_complex=is_complex)
    return LayerCase(lambda stream: build(model, facts, stream), shape, is_complex)


@pytest.mark.parametrize("name", thinned(CASES, every=3))
def test_the_clipped_sum_is_the_loops_in_double_precision(name: str) -> None:
    model, shape = CASES[name]
    is_complex = model.numbers == "complex" and len(shape) == 2
    assert relative_error(case_of(model, shape, is_complex=is_complex), None, per_layer=False) <= 1e-5


@pytest.mark.parametrize("name", thinned(CASES, every=8))
def test_the_clipped_sum_over_users_is_the_loops(name: str) -> None:
    model, shape = CASES[name]
    is_complex = model.numbers == "complex" and len(shape) == 2
    assert relative_error(case_of(model, shape, is_complex=is_complex), MEMBERS, per_layer=False) <= 1e-5


@pytest.mark.parametrize("name", thinned(CASES, every=3))
def test_names_and_shapes_are_those_of_the_built_network(name: str) -> None:
    model, shape = CASES[name]
    facts = facts_of(shape, CLASSES, is_complex=model.numbers == "complex" and len(shape) == 2)
    network = built(model, facts)
    shapes = {name: tuple((torch.view_as_real(p) if p.is_complex() else p).shape) for name, p in network.named_parameters()}
    assert {name: found for stage in sequential_shapes(model, facts) for name, found in stage.parameters.items()} == shapes
    assert [layer.name for layer in weighted_layers(model, facts)] == list(dict.fromkeys(name.rpartition(".")[0] for name in shapes))


@pytest.mark.parametrize("cell", ["rnn", "gru"])
def test_a_recurrent_layer_is_torchs(cell: str) -> None:
    facts = facts_of((3, 5), CLASSES, is_complex=False)
    network, theirs = built(recurrent("real", cell, "sequence"), facts), (nn.GRU if cell == "gru" else nn.RNN)(3, 4, batch_first=True)
    ours = network.get_submodule("0_recurrent")
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(parameter.numel()))
        theirs.weight_ih_l0.copy_(ours.get_parameter("inputs.0_convolution.weight").squeeze(-1))
        theirs.bias_ih_l0.copy_(ours.get_parameter("inputs.0_convolution.bias"))
        theirs.weight_hh_l0.copy_(ours.get_parameter("recurrent.0_linear.weight"))
        theirs.bias_hh_l0.copy_(ours.get_parameter("recurrent.0_linear.bias"))
        x = records(facts, 6)
        torch.testing.assert_close(ours(x), theirs(x.mT)[0].mT, rtol=1e-5, atol=1e-6)


def test_attention_is_torchs() -> None:
    facts = facts_of((4, 6), CLASSES, is_complex=False)
    model = sequential("real", SelfAttention(heads=2, width=4), Flatten(), Linear(outputs=CLASSES))
    ours, theirs = built(model, facts).get_submodule("0_self_attention"), nn.MultiheadAttention(4, 2, batch_first=True)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(parameter.numel()))
        names = ("query", "key", "value")
        theirs.in_proj_weight.copy_(torch.cat([ours.get_parameter(f"{name}.0_convolution.weight").squeeze(-1) for name in names]))
        theirs.in_proj_bias.copy_(torch.cat([ours.get_parameter(f"{name}.0_convolution.bias") for name in names]))
        theirs.out_proj.weight.copy_(ours.get_parameter("output.0_convolution.weight").squeeze(-1))
        theirs.out_proj.bias.copy_(ours.get_parameter("output.0_convolution.bias"))
        x = records(facts, 6)
        torch.testing.assert_close(ours(x), theirs(x.mT, x.mT, x.mT)[0].mT, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "layer",
    [
        SelfAttention(heads=2, width=4),
        Recurrent(cell="gru", outputs=4, returns="sequence"),
        Recurrent(cell="rnn", outputs=4, returns="last"),
    ],
)
def test_of_real_numbers_the_complex_layer_gives_what_the_real_one_gives(layer: LayerSpec) -> None:
    end = () if getattr(layer, "returns", None) == "last" else (Flatten(),)
    facts = facts_of((4, 5), CLASSES, is_complex=False)
    networks = [built(sequential(kind, layer, *end, Linear(outputs=CLASSES)), facts) for kind in NUMBERS]
    real_layer, complex_layer = (dict(network.named_children())[f"0_{layer.kind}"] for network in networks)
    with torch.no_grad():
        for name, parameter in complex_layer.named_parameters():
            parameter.copy_(real_layer.get_parameter(name))
        x = records(facts, 3)
        found = from_planes(complex_layer(to_planes(x.to(torch.complex64))))
        torch.testing.assert_close(found, real_layer(x).to(torch.complex64), rtol=1e-5, atol=1e-6)


def test_a_common_phase_of_a_sequence_only_turns_what_attention_without_biases_gives() -> None:
    facts = facts_of((4, 6), CLASSES)
    ours = built(sequential("complex", SelfAttention(heads=2, width=4), Flatten(), Linear(outputs=CLASSES)), facts)
    layer, z, phase = ours.get_submodule("0_self_attention"), records(facts, 3), torch.exp(torch.tensor(0.7j))
    with torch.no_grad():
        turned, plain = layer(to_planes(phase * z)), layer(to_planes(z))
        torch.testing.assert_close(from_planes(turned), phase * from_planes(plain), rtol=1e-4, atol=1e-5)


def test_a_position_norm_is_torchs_layer_norm() -> None:
    facts = facts_of((4, 5), CLASSES, is_complex=False)
    network = built(sequential("real", PositionNorm(), Flatten(), Linear(outputs=CLASSES)), facts)
    x = records(facts)
    with torch.no_grad():
        torch.testing.assert_close(network.get_submodule("0_position_norm")(x), nn.LayerNorm(4)(x.mT).mT)


def test_numbers_outside_the_table_are_taken_for_the_nearest_row() -> None:
    facts = facts_of((4,), CLASSES, is_complex=False)
    network = built(sequential("real", Embedding(entries=3, outputs=2), Flatten(), Linear(outputs=CLASSES)), facts)
    table: Tensor = network.get_parameter("0_embedding.weight")
    with torch.no_grad():
        found = network.get_submodule("0_embedding")(torch.tensor([[-5.0, 0.4, 1.6, 99.0]]))
    assert torch.equal(found, table[[0, 0, 2, 2]].T[None])


@pytest.mark.parametrize(
    ("layers", "shape", "message"),
    thinned(
        [
            ((SelfAttention(heads=3, width=4),), (4, 6), r"layers\[0\]\.heads must be a divisor of the width, 4"),
            (
                (SelfAttention(heads=2, width=4),),
                (4, 6, 6),
                r"layers\[0\] must be applied to sequences \(channels, length\) \(self_",
            ),
            ((Recurrent(cell="gru", outputs=3, returns="last"),), (2, 1025), r"layers\[0\] must be applied to at most 1024 places"),
            ((PositionNorm(),), (2, 6), r"layers\[0\] must be applied to places of at least three channels"),
            ((PositionEmbedding(),), (6,), r"layers\[0\] must be applied to sequences"),
            ((Embedding(entries=3, outputs=2),), (2, 6), r"layers\[0\] must be applied to flat records \(embedding\)"),
            ((Residual(layers=(Recurrent(cell="rnn", outputs=3, returns="last"),)),), (4, 6), r"layers\[0\]\.shortcut must be such"),
        ],
        every=3,
    ),
)
def test_what_doesnt_fit_is_refused_by_its_place(layers: tuple[LayerSpec, ...], shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        sequential_shapes(sequential("real", *layers, Flatten(), Linear(outputs=CLASSES)), facts_of(shape, CLASSES, is_complex=False))


def test_an_embedding_comes_first_and_takes_real_records() -> None:
    table = Embedding(entries=3, outputs=2)
    with pytest.raises(ValueError, match=r"layers\[1\] must be the first layer, for numbers real or complex"):
        sequential("real", Activation(name="relu"), table)
    with pytest.raises(ValueError, match=r"layers\[0\] must be the first layer"):
        sequential("real_pairs", table)
    model = sequential("complex", table, Flatten(), Linear(outputs=CLASSES))
    with pytest.raises(InvalidParameter, match="another layer for complex data"):
        sequential_shapes(model, facts_of((6,), CLASSES))


@pytest.mark.parametrize("kind", NUMBERS)
def test_columns_of_an_image_are_a_sequence_of_their_channels_and_rows(kind: Numbers) -> None:
    facts = facts_of((2, 3, 5), CLASSES, is_complex=kind == "complex")
    layers = (Columns(), Convolution(outputs=4, kernel=1), Flatten(), Linear(outputs=CLASSES))
    network, x = built(sequential(kind, *layers), facts), records(facts)
    taken = dict(network.named_children())["0_columns"](x if kind == "real" else to_planes(x))
    torch.testing.assert_close(taken if kind == "real" else from_planes(taken), x.flatten(1, 2))
    with pytest.raises(InvalidParameter, match=r"layers\[0\] must be applied to images \(columns\)"):
        sequential_shapes(sequential("real", *layers), facts_of((6, 5), CLASSES, is_complex=False))


@pytest.mark.parametrize(
    "asked",
    [
        {"kind": "transformer", "numbers": "complex", "heads": 2},
        {"kind": "recurrent_network", "numbers": "real", "cell": "gru"},
    ],
)
def test_a_named_network_is_trained_on_an_images_columns(asked: dict[str, Any], tmp_path: Path) -> None:
    model = {"classes": 10, "layers": 1, "channels": 4, "entries": None, "columns": True, **asked}
    data = {"kind": "digits", "split_seed": 0, "test_fraction": 0.2}
    privacy = {"adjacency": "add_remove", "unit": "image", "delta": 1e-5, "noise_multiplier": 2.0}
    document = {**ZetaDpSgd.example().model_dump(), "data": data, "model": model, "privacy": privacy, "steps": 2, "expected_batch_size": 16}
    spec = ZetaDpSgd.model_validate(document)
    runtime = RuntimeSpec(microbatch_size=16, checkpoint_seconds=60.0, threads=1)
    report = load_train(spec)(spec, spec.plan(), runtime, tmp_path, report=lambda _: None, should_stop=lambda: False)
    assert report.steps_released == 2
    assert 0.0 <= (report.metrics or {})["accuracy"] <= 1.0


def test_a_transformers_size_is_the_sum_of_its_parts() -> None:
    model = transformer(CLASSES, "real", layers=2, channels=8, heads=2, entries=11, dropout=0.1)
    stages = sequential_shapes(model, facts_of((6,), CLASSES, is_complex=False))
    each = 4 * (8 * 8 + 8) + (8 * 32 + 32) + (32 * 8 + 8) + 2 * 2 * 8
    assert sum(stage.weights for stage in stages) == 11 * 8 + 8 * 6 + 2 * each + 2 * 8 + 8 * CLASSES + CLASSES
    assert any(isinstance(inner, Dropout) for layer in model.layers if isinstance(layer, Residual) for inner in layer.layers)


def test_a_convolution_over_places_is_a_linear_layer_of_each_place() -> None:
    facts = facts_of((3, 5), CLASSES, is_complex=False)
    network = built(sequential("real", Convolution(outputs=2, kernel=1), Flatten(), Linear(outputs=CLASSES)), facts)
    x, layer = records(facts), network.get_submodule("0_convolution")
    weight, bias = layer.get_parameter("weight").squeeze(-1), layer.get_parameter("bias")
    torch.testing.assert_close(layer(x), nn.functional.linear(x.mT, weight, bias).mT)
