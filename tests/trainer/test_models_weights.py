"""Given weights: a public file, checked whole before it is used, from which a network starts or which it keeps."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tests.selection import thinned
from tests.trainer.made_up import built, facts_of, records
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import RuntimeSpec, ZetaDpSgd, load_train
from zetadp.trainer.data import ROOT_VARIABLE
from zetadp.trainer.layers.flat_parameters import as_real
from zetadp.trainer.models.front import passed_through, split_front
from zetadp.trainer.specs.models import weights
from zetadp.trainer.specs.models.layer_numbers import ComplexActivation
from zetadp.trainer.specs.models.layer_spec import (
    Activation,
    BlockCirculantLinear,
    Convolution,
    Dropout,
    Flatten,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    LayerSpec,
    Linear,
    MaxPool,
    TransposedConvolution,
)
from zetadp.trainer.specs.models.model_spec import Sequential
from zetadp.trainer.specs.models.parameter_counts import Numbers
from zetadp.trainer.specs.models.shapes import check_model, sequential_shapes
from zetadp.trainer.specs.models.weighted import weighted_layers
from zetadp.trainer.specs.models.weights import GivenWeights

LAYERS: tuple[LayerSpec, ...] = (
    Convolution(outputs=6, kernel=3, groups=2),
    GroupNorm(groups=2),
    TransposedConvolution(outputs=4, kernel=2),
    LayerNorm(),
    MaxPool(kernel=2, stride=2),
    InstanceNorm(),
    Flatten(),
    BlockCirculantLinear(outputs=12, block=5),
    Dropout(probability=0.5),
    Linear(outputs=3, bias=False),
)
FACTS = {numbers: facts_of((2, 8, 8), 3, is_complex=numbers != "real") for numbers in ("complex", "real", "real_pairs")}


def sequential(*layers: LayerSpec, numbers: Numbers = "complex", given: GivenWeights | None = None) -> Sequential:
    head = "magnitude" if numbers == "complex" else "none"
    return Sequential(numbers=numbers, layers=layers, head=head, initial_weights=given or "glorot")


def stored(network: nn.Module) -> dict[str, Tensor]:
    """As a training writes its model."""
    return {name: as_real(parameter.detach()).contiguous() for name, parameter in network.named_parameters()}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "root"
    (place / "public").mkdir(parents=True)
    monkeypatch.setenv(ROOT_VARIABLE, str(place))
    return place


def given(root: Path, tensors: Mapping[str, Tensor], frozen: int, count: int) -> GivenWeights:
    """Written to a file of the data sets' root."""
    path = root / "public" / "start.safetensors"
    save_file(dict(tensors), path)
    return of_file(path, frozen, count)


def of_file(path: Path, frozen: int = 1, count: int = 1) -> GivenWeights:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return GivenWeights(file=f"public/{path.name}", sha256=digest, frozen_layers=frozen, given_layers=count)


@pytest.mark.parametrize("numbers", ["complex", "real", "real_pairs"])
def test_the_spec_knows_every_parameters_name_and_shape(numbers: Numbers) -> None:
    model = sequential(*LAYERS, numbers=numbers)
    told = {name: shape for stage in sequential_shapes(model, FACTS[numbers]) for name, shape in stage.parameters.items()}
    assert told == {name: tuple(value.shape) for name, value in stored(built(model, FACTS[numbers])).items()}


@pytest.mark.parametrize("name", thinned(ComplexActivation.__args__, every=4))
def test_the_spec_knows_an_activations_parameters(name: ComplexActivation) -> None:
    model, facts = sequential(Activation(name=name), Linear(outputs=3)), facts_of((8,), 3)
    told = {name: shape for stage in sequential_shapes(model, facts) for name, shape in stage.parameters.items()}
    assert told == {name: tuple(value.shape) for name, value in stored(built(model, facts)).items()}


def test_a_convolution_over_one_axis_has_a_kernel_of_one_axis() -> None:
    model, facts = sequential(Convolution(outputs=3, kernel=5, padding=2), Flatten(), Linear(outputs=3)), facts_of((2, 12), 3)
    assert sequential_shapes(model, facts)[0].parameters == {"0_convolution.weight": (3, 2, 5, 2), "0_convolution.bias": (3, 2)}


@pytest.mark.parametrize("numbers", ["complex", "real", "real_pairs"])
def test_a_network_starts_at_its_first_layers_given_weights_and_draws_the_others(root: Path, numbers: Numbers) -> None:
    source = built(sequential(*LAYERS, numbers=numbers), FACTS[numbers], seed=11)
    model = sequential(*LAYERS, numbers=numbers, given=given(root, stored(source), 0, 8))
    check_model(model, FACTS[numbers])
    drawn = dict(built(sequential(*LAYERS, numbers=numbers), FACTS[numbers], seed=12).named_parameters())
    for name, parameter in built(model, FACTS[numbers], seed=12).named_parameters():
        expected = drawn[name] if name.startswith("9_") else source.get_parameter(name)
        assert parameter.requires_grad
        assert torch.equal(parameter, expected), name


@pytest.mark.parametrize("numbers", thinned(["complex", "real", "real_pairs"], every=2))
@pytest.mark.parametrize("frozen", thinned([1, 2, 5, 8], every=2))
def test_frozen_layers_are_part_of_the_front_and_change_nothing(root: Path, numbers: Numbers, frozen: int) -> None:
    facts = FACTS[numbers]
    source = built(sequential(*LAYERS, numbers=numbers), facts, seed=11)
    model = sequential(*LAYERS, numbers=numbers, given=given(root, stored(source), frozen, len(LAYERS)))
    front, rest = split_front(built(model, facts).eval())
    features = records(facts)
    torch.testing.assert_close(rest(passed_through(front, features)), source.eval()(features), rtol=1e-5, atol=1e-5)
    trained = list(dict.fromkeys(name.rpartition(".")[0] for name, _ in rest.named_parameters()))
    assert trained == [layer.name for layer in weighted_layers(model, facts)]
    assert all(int(name.partition("_")[0]) >= frozen for name in trained)
    assert not any(parameter.requires_grad for parameter in front.parameters())


def test_the_front_of_a_network_in_training_evaluates(root: Path) -> None:
    source = built(sequential(*LAYERS), FACTS["complex"])
    network = built(sequential(*LAYERS, given=given(root, stored(source), 2, 2)), FACTS["complex"]).train()
    front, rest = split_front(network)
    assert not any(module.training for module in front.modules())
    assert rest.training


def test_a_file_of_the_same_network_with_another_end_serves_for_the_layers_before(root: Path) -> None:
    source = built(sequential(*LAYERS[:-1], Linear(outputs=5)), facts_of((2, 8, 8), 5))
    check_model(sequential(*LAYERS, given=given(root, stored(source), 3, 9)), FACTS["complex"])
    with pytest.raises(InvalidParameter, match=r"layers only, got .* with 9_linear\.bias"):
        check_model(sequential(*LAYERS, given=given(root, stored(source), 3, 10)), FACTS["complex"])


def _altered(change: Callable[[dict[str, Tensor]], object]) -> dict[str, Tensor]:
    tensors = stored(built(sequential(*LAYERS), FACTS["complex"]))
    change(tensors)
    return tensors


@pytest.mark.parametrize(
    ("change", "text"),
    thinned(
        [
            (
                lambda t: t.pop("1_group_norm.bias"),
                r"with all tensors of the given layers \(including 1_group_norm.bias\), got 'public/start",
            ),
            (lambda t: t.update({"0_linear.weight": torch.ones(2)}), "tensors of the network's layers only, got .* with 0_linear.weight"),
            (lambda t: t.update({"encoder.weight": torch.ones(2)}), "tensors of the network's layers only, got .* with encoder.weight"),
            (
                lambda t: t.update({"1_group_norm.bias": torch.ones(3, 2)}),
                r"1_group_norm.bias has dtype F32 and shape \(6, 2\), got .*\(3, 2\)",
            ),
            (lambda t: t.update({"1_group_norm.bias": torch.ones(6, 2).double()}), r"has dtype F32 and shape \(6, 2\), got \('F64'"),
            (
                lambda t: t["0_convolution.weight"].view(-1)[3:4].fill_(torch.nan),
                "finite numbers, got 'NaN or infinity in 0_convolution.weight'",
            ),
            (
                lambda t: t["1_group_norm.bias"].view(-1)[3:4].fill_(-torch.inf),
                "finite numbers, got 'NaN or infinity in 1_group_norm.bias'",
            ),
        ],
        every=3,
    ),
)
def test_tensors_that_are_not_the_networks_are_refused(root: Path, change: Callable[[dict[str, Tensor]], object], text: str) -> None:
    model = sequential(*LAYERS, given=given(root, _altered(change), 0, 2))
    with pytest.raises(InvalidParameter, match=r"model\.initial_weights\.file must be a file .*" + text):
        check_model(model, FACTS["complex"])
    with pytest.raises(InvalidParameter, match=text):
        built(model, FACTS["complex"])


def test_tensors_of_layers_that_start_fresh_are_not_read(root: Path) -> None:
    tensors = _altered(lambda t: t["9_linear.weight"].fill_(torch.nan))
    check_model(sequential(*LAYERS, given=given(root, tensors, 2, 9)), FACTS["complex"])


def test_another_file_than_the_one_that_was_named_is_refused(root: Path) -> None:
    model = sequential(*LAYERS, given=given(root, stored(built(sequential(*LAYERS), FACTS["complex"])), 1, 10))
    other = given(root, stored(built(sequential(*LAYERS), FACTS["complex"], seed=4)), 1, 10).sha256
    for check in (check_model, built):
        with pytest.raises(InvalidParameter, match=rf"weights\.sha256 must be the digest of public/start\.safetensors, {other}, got "):
            check(model, FACTS["complex"])


def test_what_is_no_file_of_weights_is_refused(root: Path) -> None:
    place = root / "public" / "text.safetensors"
    place.write_bytes(b"not weights")
    with pytest.raises(InvalidParameter, match=r"file must be a safetensors file, got 'public/text\.safetensors: "):
        of_file(place).read({})


def test_a_file_that_is_not_there_is_refused(root: Path) -> None:
    (root / "public" / "folder.safetensors").mkdir()
    (root / "public" / "out.safetensors").symlink_to(root.parent / "secret.safetensors")
    (root.parent / "secret.safetensors").write_bytes(b"")
    for name, text in {
        "public/none.safetensors": "a folder with none.safetensors",
        "none/none.safetensors": f"an existing folder under {ROOT_VARIABLE}",
        "none.safetensors": "a folder with none.safetensors",
        "public/folder.safetensors": "a folder with folder.safetensors",
        "public/out.safetensors": "inside the data sets' root, symbolic links followed",
    }.items():
        missing = GivenWeights(file=name, sha256="0" * 64, frozen_layers=0, given_layers=1)
        with pytest.raises(InvalidParameter) as found:
            missing.read({})
        assert str(found.value) == f"model.initial_weights.file must be {text}, got {name!r}"


def test_a_file_right_under_the_root_is_found(root: Path) -> None:
    save_file({"0_linear.bias": torch.ones(2)}, root / "start.safetensors")
    digest = hashlib.sha256((root / "start.safetensors").read_bytes()).hexdigest()
    found = GivenWeights(file="start.safetensors", sha256=digest, frozen_layers=0, given_layers=1).read({"0_linear.bias": (2,)})
    assert found["0_linear.bias"].tolist() == [1.0, 1.0]


def test_a_root_that_nobody_named_is_told_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ROOT_VARIABLE, raising=False)
    with pytest.raises(InvalidParameter, match=f"^{ROOT_VARIABLE} must be set in the environment"):
        GivenWeights(file="a.safetensors", sha256="0" * 64, frozen_layers=0, given_layers=1).read({})


def test_a_file_too_large_is_not_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = given(root, {"0_linear.bias": torch.ones(2)}, 0, 1)
    monkeypatch.setattr(weights, "LARGEST_FILE", 8)
    with pytest.raises(InvalidParameter, match=r"file must be a file of at most 8 bytes, got \d+"):
        start.read({"0_linear.bias": (2,)})


@pytest.mark.parametrize(
    ("fields", "text"),
    thinned(
        [
            ({"file": "../start.safetensors"}, "String should match pattern"),
            ({"file": "/start.safetensors"}, "String should match pattern"),
            ({"file": "a/.hidden/start.safetensors"}, "String should match pattern"),
            ({"file": "start.pt"}, "String should match pattern"),
            ({"sha256": "0" * 63}, "String should match pattern"),
            ({"frozen_layers": 3}, r"frozen_layers must be <= given_layers = 2, got 3"),
            ({"frozen_layers": 0, "given_layers": 0}, "greater than or equal to 1"),
            ({"frozen_layers": 4, "given_layers": 5}, "given_layers must be at most 4, the number of layers, got 5"),
            ({"given_layers": 4, "frozen_layers": 2}, r"model.layers\[1\] must be after the frozen layers, got 'dropout'"),
        ],
        every=3,
    ),
)
def test_bad_given_weights_are_refused_at_construction(fields: dict[str, Any], text: str) -> None:
    start = {"kind": "given", "file": "start.safetensors", "sha256": "0" * 64, "frozen_layers": 0, "given_layers": 2}
    layers = [
        {"kind": "linear", "outputs": 4},
        {"kind": "dropout", "probability": 0.5},
        {"kind": "flatten"},
        {"kind": "linear", "outputs": 3},
    ]
    whole = {"numbers": "real", "layers": layers, "head": "none", "initial_weights": start | fields}
    with pytest.raises(ValidationError, match=text):
        Sequential.model_validate(whole)


@pytest.mark.parametrize(
    ("frozen", "count", "text"),
    [
        (2, 2, "frozen_layers must be such that a layer with weights remains to be trained, got 2"),
        (0, 1, "given_layers must be such that a layer with weights is among them, got 1"),
    ],
)
def test_weights_that_leave_nothing_to_do_are_refused(root: Path, frozen: int, count: int, text: str) -> None:
    start = GivenWeights(file="none.safetensors", sha256="0" * 64, frozen_layers=frozen, given_layers=count)
    with pytest.raises(InvalidParameter, match=text):
        check_model(sequential(Flatten(), Linear(outputs=3), given=start), FACTS["complex"])


def test_a_network_with_given_weights_survives_json() -> None:
    start = GivenWeights(file="a/start.safetensors", sha256="0" * 64, frozen_layers=1, given_layers=2)
    model = sequential(Flatten(), Linear(outputs=3), given=start)
    assert Sequential.model_validate_json(model.model_dump_json()) == model


def test_a_certificate_can_say_that_their_own_training_is_not_covered() -> None:
    start = GivenWeights(file="a/start.safetensors", sha256="ab" * 32, frozen_layers=1, given_layers=2)
    assert start.not_covered == (
        f"the weights that training started from (SHA-256 {'ab' * 32}): they are assumed to be public; if they were trained on the same "
        "data, that had a privacy cost of its own"
    )


def test_reading_them_loads_no_torch(root: Path) -> None:
    start = given(root, {"0_linear.bias": torch.ones(2)}, 0, 1)
    code = (
        "import sys; from zetadp.trainer.specs.models.weights import GivenWeights; "
        "from zetadp.trainer.specs.models.shapes import check_model; "
        "GivenWeights.model_validate_json(sys.argv[1]).read({'0_linear.bias': (2,)}); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, start.model_dump_json()], check=False).returncode == 0


def test_a_trained_model_is_the_start_of_the_next_training(root: Path, spec_json: dict[str, Any]) -> None:
    layers = [{"kind": "linear", "outputs": 8}, {"kind": "activation", "name": "cardioid"}, {"kind": "linear", "outputs": 10}]
    model = {"kind": "sequential", "numbers": "complex", "layers": layers, "head": "magnitude"}
    first = _trained(spec_json | {"model": model}, root / "public")
    (root / "public" / "first.safetensors").write_bytes(first.read_bytes())
    start = of_file(root / "public" / "first.safetensors", frozen=2, count=3).model_dump()
    second = _trained(spec_json | {"model": model | {"initial_weights": start}, "steps": 2}, root / "again")
    before, after = (_tensors(path) for path in (first, second))
    # The frozen ones too, as they were: else the model file would be half a network.
    assert set(after) == set(before) == {"0_linear.weight", "0_linear.bias", "2_linear.weight", "2_linear.bias"}
    assert (after["0_linear.weight"] == before["0_linear.weight"]).all()
    assert json.loads(_header(second))["model"]["initial_weights"] == start
    # Two steps of Adam move every number by at most twice the learning rate, 0.02, so it started there; and it moved.
    distance = (after["2_linear.weight"] - before["2_linear.weight"]).abs().max()
    assert 0.0 < float(distance) < 0.05


def _trained(fields: dict[str, Any], workdir: Path) -> Path:
    spec = ZetaDpSgd.model_validate(fields)
    runtime = RuntimeSpec(microbatch_size=16, checkpoint_seconds=0.0, threads=1)
    load_train(spec)(spec, spec.plan(), runtime, workdir, report=lambda _: None, should_stop=lambda: False)
    return workdir / "artifacts" / "model.safetensors"


def _tensors(path: Path) -> dict[str, Tensor]:
    return load_file(path)


def _header(path: Path) -> str:
    with safe_open(str(path), framework="pt") as file:
        return file.metadata()["zetadp"]
