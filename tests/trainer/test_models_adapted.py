r"""Adapters beside given layers that are kept: LoRA, and circulant ones; what is trained, what is in the file, what a record moves."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from tests.trainer.layer_cases import LayerCase, relative_error
from tests.trainer.made_up import built, facts_of, records
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import RuntimeSpec, load_train
from zetadp.trainer.data.files.location import ROOT_VARIABLE
from zetadp.trainer.layers.blocks.adapted import Adapted as AdaptedModule
from zetadp.trainer.layers.flat_parameters import as_real
from zetadp.trainer.layers.planes import to_planes
from zetadp.trainer.models import build
from zetadp.trainer.models.front import passed_through, split_front
from zetadp.trainer.specs.algorithms.spectral_dp import SpectralDp
from zetadp.trainer.specs.models.layer_spec import (
    Activation,
    Adapted,
    BlockCirculantLinear,
    Convolution,
    Flatten,
    LayerSpec,
    Linear,
    Residual,
)
from zetadp.trainer.specs.models.model_spec import Sequential
from zetadp.trainer.specs.models.parameter_counts import Numbers
from zetadp.trainer.specs.models.sequence_layers import SelfAttention
from zetadp.trainer.specs.models.shapes import check_model, sequential_shapes
from zetadp.trainer.specs.models.transformers import transformer
from zetadp.trainer.specs.models.weighted import weighted_layers

NUMBERS: list[Numbers] = ["complex", "real", "real_pairs"]


def row(numbers: Numbers, *, is_adapted: bool) -> tuple[LayerSpec, ...]:
    """A convolution that stays, a block and two layers with adapters, and a last layer of one's own."""
    active = Activation(name="crelu" if numbers == "complex" else "relu")
    inner, wide, narrow = Convolution(outputs=4, kernel=3, padding=1), Linear(outputs=8), BlockCirculantLinear(outputs=8, block=4)
    first = Convolution(outputs=4, kernel=3, stride=2, padding=1)
    if not is_adapted:
        return first, Residual(layers=(inner, active)), Flatten(), wide, active, narrow, Linear(outputs=3)
    low_rank = Convolution(outputs=1, kernel=3, padding=1, bias=False), Convolution(outputs=4, kernel=1, bias=False)
    return (
        first,
        Residual(layers=(Adapted(base=inner, adapter=low_rank), active)),
        Flatten(),
        Adapted(base=wide, adapter=(Linear(outputs=2, bias=False), Linear(outputs=8, bias=False))),
        active,
        Adapted(base=narrow, adapter=(BlockCirculantLinear(outputs=8, block=8, bias=False),)),
        Linear(outputs=3),
    )


def sequential(numbers: Numbers, layers: tuple[LayerSpec, ...], given: dict[str, Any] | None = None) -> Sequential:
    head = "magnitude" if numbers == "complex" else "none"
    return Sequential.model_validate({"numbers": numbers, "layers": layers, "head": head, "initial_weights": given or "glorot"})


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    return tmp_path


def start(root: Path, network: nn.Module, **counts: int) -> dict[str, Any]:
    save_file({name: as_real(value.detach()).contiguous() for name, value in network.named_parameters()}, root / "w.safetensors")
    digest = hashlib.sha256((root / "w.safetensors").read_bytes()).hexdigest()
    return {"kind": "given", "file": "w.safetensors", "sha256": digest, "frozen_layers": 1, "given_layers": 6, **counts}


def pair(root: Path, numbers: Numbers) -> tuple[nn.Module, Sequential]:
    """A network, and the same with adapters, which starts at its weights."""
    facts = facts_of((2, 4, 4), 3, is_complex=numbers != "real")
    source = built(sequential(numbers, row(numbers, is_adapted=False)), facts, seed=11)
    return source, sequential(numbers, row(numbers, is_adapted=True), start(root, source))


@pytest.mark.parametrize("numbers", NUMBERS)
def test_training_starts_at_the_given_network(root: Path, numbers: Numbers) -> None:
    source, model = pair(root, numbers)
    facts = facts_of((2, 4, 4), 3, is_complex=numbers != "real")
    network, features = built(model, facts), records(facts)
    upto = nn.Sequential(*list(source.children())[: [name for name, _ in source.named_children()].index("6_linear")])
    ours = nn.Sequential(*list(network.children())[: [name for name, _ in network.named_children()].index("6_linear")])
    with torch.no_grad():
        torch.testing.assert_close(ours(features), upto(features))


@pytest.mark.parametrize("numbers", NUMBERS)
def test_adapters_are_trained_and_their_bases_arent(root: Path, numbers: Numbers) -> None:
    _, model = pair(root, numbers)
    facts = facts_of((2, 4, 4), 3, is_complex=numbers != "real")
    _, rest = split_front(built(model, facts))
    trained = list(dict.fromkeys(name.rpartition(".")[0] for name, _ in rest.named_parameters()))
    assert trained == [layer.name for layer in weighted_layers(model, facts)]
    assert trained == [
        "1_residual.layers.0_adapted.adapter.0_convolution",
        "1_residual.layers.0_adapted.adapter.1_convolution",
        "3_adapted.adapter.0_linear",
        "3_adapted.adapter.1_linear",
        "5_adapted.adapter.0_block_circulant_linear",
        "6_linear",
    ]
    assert [layer.spectrum_shape for layer in weighted_layers(model, facts)] == [(3, 3), (1, 1), None, None, (8,), None]


@pytest.mark.parametrize("numbers", NUMBERS)
def test_the_clipped_sum_is_the_loops_in_double_precision(root: Path, numbers: Numbers) -> None:
    _, model = pair(root, numbers)
    is_complex = numbers != "real"
    facts = facts_of((2, 4, 4), 3, is_complex=is_complex)

    def rest(stream: Any) -> nn.Module:
        return split_front(build(model, facts, stream))[1]

    front, _ = split_front(built(model, facts))
    shape = tuple(passed_through(front, records(facts, 1)).shape[1:])
    # Behind the front complex records are planes.
    assert relative_error(LayerCase(rest, shape), None, per_layer=False) <= 1e-5


def attending(root: Path, numbers: Numbers) -> tuple[nn.Module, Sequential]:
    """A transformer of one layer, and the same with adapters in its attention, which starts at its weights."""
    kind = "complex" if numbers == "complex" else "real"
    plain = transformer(3, kind, layers=1, channels=4, heads=2, entries=None, dropout=0.0)
    source = built(plain, facts_of((4, 5), 3, is_complex=numbers == "complex"), seed=11)
    layers = tuple(
        Residual(
            layers=tuple(SelfAttention(heads=2, width=4, adapter_rank=1) if isinstance(one, SelfAttention) else one for one in layer.layers)
        )
        if isinstance(layer, Residual)
        else layer
        for layer in plain.layers
    )
    given = start(root, source, frozen_layers=2, given_layers=len(layers) - 1)
    return source, Sequential.model_validate({**dict(plain), "layers": layers, "initial_weights": given})


@pytest.mark.parametrize("numbers", ["complex", "real"])
def test_attention_with_adapters_starts_as_given_and_trains_them_alone(root: Path, numbers: Numbers) -> None:
    source, model = attending(root, numbers)
    facts = facts_of((4, 5), 3, is_complex=numbers == "complex")
    network, x = built(model, facts), records(facts)
    place = "2_residual.layers.1_self_attention"
    ours, theirs = network.get_submodule(place), source.get_submodule(place)
    inputs = to_planes(x) if numbers == "complex" else x
    with torch.no_grad():
        torch.testing.assert_close(ours(inputs), theirs(inputs))
    trained = {name for name, _ in ours.named_parameters()}
    parts = ("query", "key", "value", "output")
    assert trained == {f"{part}.0_adapted.adapter.{number}_convolution.weight" for part in parts for number in range(2)}
    assert {f"{place}.{name}" for name in trained} < {f"{layer.name}.weight" for layer in weighted_layers(model, facts)}
    front, rest = split_front(network)
    shape = tuple(passed_through(front, x[:1]).shape[1:])
    assert relative_error(LayerCase(lambda stream: split_front(build(model, facts, stream))[1], shape), None, per_layer=False) <= 1e-5
    assert any(name.endswith("value.0_adapted.adapter.1_convolution.weight") for name, _ in rest.named_parameters())


def test_adapters_in_attention_need_given_weights_too(root: Path) -> None:
    layers = (SelfAttention(heads=2, width=4, adapter_rank=1), Flatten(), Linear(outputs=3))
    with pytest.raises(ValueError, match=r"model\.layers\[0\] must be among the given layers, behind the frozen ones"):
        sequential("real", layers)


def test_an_adapter_needs_given_weights_under_it(root: Path) -> None:
    layers = row("real", is_adapted=True)
    with pytest.raises(ValueError, match=r"model\.layers\[1\]\.layers\[0\] must be among the given layers, behind the frozen ones"):
        sequential("real", layers)
    source, _ = pair(root, "real")
    with pytest.raises(ValueError, match=r"model\.layers\[5\] must be among the given layers"):
        sequential("real", layers, start(root, source, given_layers=5))
    with pytest.raises(ValueError, match=r"model\.layers\[1\]\.layers\[0\] must be .* behind the frozen ones \(adapted\)"):
        sequential("real", layers, start(root, source, frozen_layers=4))


def test_an_adapter_of_another_shape_is_refused(root: Path) -> None:
    source, _ = pair(root, "real")
    layers = list(row("real", is_adapted=True))
    layers[3] = Adapted(base=Linear(outputs=8), adapter=(Linear(outputs=7),))
    model = sequential("real", tuple(layers), start(root, source))
    with pytest.raises(InvalidParameter, match=r"model\.layers\[3\]\.adapter must be such that its output .* the base's, \(8,\)"):
        check_model(model, facts_of((2, 4, 4), 3, is_complex=False))
    with pytest.raises(ValueError, match="adapter must be layers of which the last one has weights"):
        Adapted(base=Linear(outputs=8), adapter=(Activation(name="relu"),))


def test_a_network_of_adapters_alone_is_trained(root: Path) -> None:
    facts = facts_of((4,), 3, is_complex=False)
    source = built(sequential("real", (Linear(outputs=3),)), facts)
    layers = (Adapted(base=Linear(outputs=3), adapter=(Linear(outputs=1, bias=False), Linear(outputs=3, bias=False))),)
    check_model(sequential("real", layers, start(root, source, frozen_layers=0, given_layers=1)), facts)


def test_a_private_training_leaves_the_bases_as_they_were_and_writes_them_down(root: Path) -> None:
    spec = SpectralDp.example().model_dump()
    layers = (
        Flatten(),
        Adapted(base=BlockCirculantLinear(outputs=64, block=8), adapter=(BlockCirculantLinear(outputs=64, block=16, bias=False),)),
        Activation(name="tanh"),
        BlockCirculantLinear(outputs=10, block=5),
    )
    facts = facts_of((64,), 10)
    plain = (Flatten(), BlockCirculantLinear(outputs=64, block=8), Activation(name="tanh"), BlockCirculantLinear(outputs=10, block=5))
    source = built(sequential("real_pairs", plain), facts)
    model = sequential("real_pairs", layers, start(root, source, frozen_layers=0, given_layers=2))
    spec |= {"model": model.model_dump(), "steps": 2, "expected_batch_size": 16}
    training = SpectralDp.model_validate(spec)
    plan = training.plan()
    assert plan.projection is not None
    assert [layer.layer for layer in plan.projection.layers] == ["1_adapted.adapter.0_block_circulant_linear", "3_block_circulant_linear"]
    runtime = RuntimeSpec(microbatch_size=16, checkpoint_seconds=0.0, threads=1)
    load_train(training)(training, plan, runtime, root / "work", report=lambda _: None, should_stop=lambda: False)
    with safe_open(root / "work" / "artifacts" / "model.safetensors", "pt") as file:
        tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert set(tensors) == set(sequential_shapes(model, facts)[1].parameters) | set(sequential_shapes(model, facts)[3].parameters)
    assert torch.equal(tensors["1_adapted.base.0_block_circulant_linear.weight"], source.get_parameter("1_block_circulant_linear.weight"))
    assert tensors["1_adapted.adapter.0_block_circulant_linear.weight"].abs().max() > 0.0


def test_a_kept_base_has_no_parameters() -> None:
    module = AdaptedModule(nn.Linear(3, 2), nn.Linear(3, 2))
    before, x = module(torch.ones(1, 3)), torch.ones(1, 3)
    module.keep_base()
    assert [name for name, _ in module.named_parameters()] == ["adapter.weight", "adapter.bias"]
    assert torch.equal(module(x), before)
