r"""A Spectral-DP job: what its spec comes to, what it refuses, and that it stops, goes on and is shared like any other."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file
from torch import Tensor

from tests.selection import thinned
from zetadp.mechanisms import Gaussian, RandomStream
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import ExecutionPlan, RuntimeSpec, load_train
from zetadp.trainer.data import DataSetFacts
from zetadp.trainer.engine import MODEL
from zetadp.trainer.errors import TrainingStopped
from zetadp.trainer.models import build
from zetadp.trainer.specs.algorithms.spectral_dp import SpectralDp, kept_frequencies

IMAGES: list[dict[str, Any]] = [
    {"kind": "unflatten", "channels": 2, "height": 8, "width": 8},
    {"kind": "convolution", "outputs": 6, "kernel": 5, "padding": 2, "stride": 2},
    {"kind": "group_norm", "groups": 2},
    {"kind": "activation", "name": "tanh"},
    {"kind": "flatten"},
    {"kind": "block_circulant_linear", "outputs": 30, "block": 8},
    {"kind": "activation", "name": "tanh"},
    {"kind": "linear", "outputs": 10},
]
DENSE = [{"kind": "linear", "outputs": 10}]
SAME: dict[str, Any] = {"kind": "same_for_all", "clipping_bound": 0.25, "filter_ratio": 0.5}


def _network(layers: list[dict[str, Any]], numbers: str = "real_pairs") -> dict[str, Any]:
    return {"kind": "sequential", "numbers": numbers, "layers": layers, "head": "none"}


def _spec(**changes: Any) -> SpectralDp:
    document: dict[str, Any] = {
        "data": {"kind": "digits_phase_pairs", "split_seed": 0, "test_fraction": 0.2},
        "model": _network(IMAGES),
        "layers": SAME,
        "optimizer": {"kind": "adam", "learning_rate": 0.02},
        "privacy": {"adjacency": "add_remove", "unit": "record", "delta": 1e-4, "noise_multiplier": 0.8},
        "expected_batch_size": 48,
        "steps": 8,
        "reproducible": True,
        "seed": 7,
    }
    return SpectralDp.model_validate(document | changes)


def _each(*settings: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "layer_by_layer", "settings": list(settings)}


def _setting(bound: float, ratio: float, transform_size: int | None = None) -> dict[str, Any]:
    return {"clipping_bound": bound, "filter_ratio": ratio, "transform_size": transform_size}


@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.25, 0.3, 0.5, 0.66, 2 / 3, 0.7, 0.75, 0.9, 0.999])
def test_no_fewer_dimensions_are_kept_than_asked_for_and_no_frequency_more_than_that_takes(ratio: float) -> None:
    for length in range(1, 65):
        kept, wanted = kept_frequencies(length, ratio), (1 - Fraction(repr(ratio))) * length
        assert 1 <= kept <= length // 2 + 1
        assert min(2 * kept - 1, length) >= wanted
        assert kept == 1 or min(2 * (kept - 1) - 1, length) < wanted


def test_one_setting_clips_every_layer_and_filters_those_that_have_a_spectrum() -> None:
    plan = _spec(layers=SAME | {"transform_size": 9}).plan()
    names = ["1_convolution", "2_group_norm", "5_block_circulant_linear", "7_linear"]
    assert plan.clipping.kind == "layer_bounds"
    assert [(layer.layer, layer.bound) for layer in plan.clipping.layers] == [(name, 0.25) for name in names]
    assert plan.projection is not None
    assert [layer.model_dump() for layer in plan.projection.layers] == [
        {"layer": names[0], "signals": 12, "shape": (5, 5), "transform": (9, 9), "kept": (3, 3)},
        {"layer": names[2], "signals": 48, "shape": (8,), "transform": (8,), "kept": (3,)},
    ]


def test_noise_is_real_and_for_all_bounds_together() -> None:
    settings = [_setting(3.0, 0.5), _setting(1.0, 0.0), _setting(4.0, 0.5), _setting(0.5, 0.0)]
    plan = _spec(layers=_each(*settings)).plan()
    assert isinstance(plan.mechanism, Gaussian)
    bound = math.nextafter(math.hypot(3.0, 1.0, 4.0, 0.5), math.inf)
    assert plan.mechanism.sensitivity.l2 == bound
    assert plan.mechanism.std == 0.8 * bound


def test_every_layer_may_have_its_own_filter() -> None:
    settings = [_setting(1.0, 0.8), _setting(1.0, 0.0), _setting(1.0, 0.25), _setting(1.0, 0.0)]
    projection = _spec(layers=_each(*settings)).plan().projection
    assert projection is not None
    assert [layer.kept for layer in projection.layers] == [(1, 1), (4,)]


NETWORKS: dict[str, tuple[tuple[int, ...], list[dict[str, Any]]]] = {
    "one axis": ((3, 40), [{"kind": "convolution", "outputs": 4, "kernel": 8}, {"kind": "flatten"}, *DENSE]),
    "groups": ((4, 9, 9), [{"kind": "convolution", "outputs": 6, "kernel": 4, "groups": 2, "bias": False}, {"kind": "flatten"}, *DENSE]),
    "transposed": ((3, 5, 5), [{"kind": "transposed_convolution", "outputs": 4, "kernel": 5}, {"kind": "flatten"}, *DENSE]),
    "filled-up blocks": ((33,), [{"kind": "block_circulant_linear", "outputs": 17, "block": 8, "bias": False}, *DENSE]),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_signals_are_counted_as_they_are_built(name: str) -> None:
    shape, layers = NETWORKS[name]
    sizes = {"training_records": 100, "test_records": 1, "shape": shape, "is_complex": False, "task": "classification", "classes": 10}
    nobody = {"unit": "record", "user_unit": None, "users": None, "largest_user": None, "sha256": "0" * 64, "description": "test"}
    facts = DataSetFacts.model_validate(sizes | nobody)
    spec = _spec(model=_network(layers, "real"))
    (spectrum,) = spec.planned_projection(facts).layers
    network = build(spec.model, facts, RandomStream.from_seed(1, "test"))
    weight = network.get_parameter(f"{spectrum.layer}.weight")
    assert tuple(weight.shape[-len(spectrum.shape) :]) == spectrum.shape
    assert spectrum.signals * math.prod(spectrum.shape) == weight.numel()


@pytest.mark.parametrize("ratio", [1.0, -0.1, 1.5, math.nan, "0.5"])
def test_a_ratio_outside_its_range_is_refused(ratio: object) -> None:
    with pytest.raises(ValidationError, match=r"layers.same_for_all.filter_ratio"):
        _spec(layers=SAME | {"filter_ratio": ratio})


@pytest.mark.parametrize("bound", [0.0, -1.0, math.inf, 9e-11])
def test_a_bound_that_is_no_length_is_refused(bound: float) -> None:
    with pytest.raises(ValidationError, match=r"layers.layer_by_layer.settings.0.clipping_bound"):
        _spec(layers=_each(_setting(bound, 0.0)))


def test_complex_networks_are_refused() -> None:
    layers = [{"kind": "linear", "outputs": 10}]
    unet = {"kind": "complex_unet", "channels": 4, "pools": 1, "activation": "crelu", "norm_groups": None}
    with pytest.raises(ValidationError, match=r"model.numbers must be real or real_pairs .*, got 'complex'"):
        _spec(model=_network(layers, "complex") | {"head": "magnitude"})
    with pytest.raises(ValidationError, match="model must be sequential, with real weights, got 'complex_mlp'"):
        _spec(model={"kind": "complex_mlp", "hidden": [8], "activation": "cardioid", "head": "magnitude"})
    with pytest.raises(ValidationError, match="model must be sequential, with real weights, got 'complex_unet'"):
        _spec(model=unet | {"dropout": 0.0, "residual": True})


PLAIN = _setting(1.0, 0.0)
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "too few settings": (
        {"layers": _each(PLAIN, PLAIN)},
        r"layers.settings must be one for each of the 4 trained layers, 1_convolution, .*7_linear, got '2 settings'",
    ),
    "a filter on a norm": (
        {"layers": _each(PLAIN, _setting(1.0, 0.5), PLAIN, PLAIN)},
        r"layers.settings\[1\].filter_ratio must be 0 for 2_group_norm \(its weight has no spectrum\), got 0.5",
    ),
    "a filter on a dense layer": (
        {"layers": _each(PLAIN, PLAIN, PLAIN, _setting(1.0, 0.25))},
        r"layers.settings\[3\].filter_ratio must be 0 for 7_linear .*, got 0.25",
    ),
    "a transform of blocks": (
        {"layers": _each(PLAIN, PLAIN, _setting(1.0, 0.5, 16), PLAIN)},
        r"layers.settings\[2\].transform_size must be absent for 5_block_circulant_linear \(only convolutions have one\), got 16",
    ),
    "a transform of a dense layer": (
        {"layers": _each(PLAIN, PLAIN, PLAIN, _setting(1.0, 0.0, 16))},
        r"layers.settings\[3\].transform_size must be absent for 7_linear .*, got 16",
    ),
    "a transform shorter than the kernel": (
        {"layers": _each(_setting(1.0, 0.5, 4), PLAIN, PLAIN, PLAIN)},
        r"layers.settings\[0\].transform_size must be >= 5, the kernel size of 1_convolution, got 4",
    ),
    "a common transform shorter than a kernel": (
        {"layers": SAME | {"transform_size": 4}},
        r"layers.transform_size must be >= 5, the kernel size of 1_convolution, got 4",
    ),
    "a filter that nothing has": (
        {"model": _network(DENSE)},
        r"layers.filter_ratio must be 0 for a network without convolutions and circulant layers, got 0.5",
    ),
    "a transform that nothing has": (
        {"model": _network([{"kind": "block_circulant_linear", "outputs": 10, "block": 5}]), "layers": SAME | {"transform_size": 8}},
        r"layers.transform_size must be absent for a network without convolutions, got 8",
    ),
    "a network that doesn't fit": ({"model": _network([{"kind": "block_circulant_linear", "outputs": 9, "block": 3}])}, "10 class scores"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_settings_that_do_not_fit_the_network_are_refused(name: str) -> None:
    changes, message = REFUSED[name]
    with pytest.raises(InvalidParameter, match=message):
        _spec(**changes).plan()


def test_a_dense_network_may_be_clipped_layer_by_layer() -> None:
    plan = _spec(model=_network(DENSE), layers=SAME | {"filter_ratio": 0.0}).plan()
    assert plan.projection is not None
    assert plan.projection.layers == ()


def test_spec_and_plan_come_back_from_json() -> None:
    spec = _spec(layers=_each(_setting(0.1, 0.5, 12), PLAIN, _setting(0.3, 0.5), PLAIN), order="clip_then_filter")
    assert SpectralDp.model_validate_json(spec.model_dump_json()) == spec
    assert ExecutionPlan.model_validate_json(spec.plan().model_dump_json()) == spec.plan()


def _train(spec: SpectralDp, workdir: Path, plan: ExecutionPlan | None = None, stop_after: int | None = None, **runtime: Any) -> Tensor:
    """The weights as one vector."""
    asked = 0

    def should_stop() -> bool:
        nonlocal asked
        asked += 1
        return stop_after is not None and asked > stop_after

    settings = RuntimeSpec.model_validate({"device": "cpu", "threads": 1, "checkpoint_seconds": 0.0} | runtime)
    load_train(spec)(
        spec,  # pyright: ignore[reportArgumentType] (as pydantic's union tells it)
        spec.plan() if plan is None else plan,
        settings,
        workdir,
        report=lambda _event: None,
        should_stop=should_stop,
    )
    weights = load_file(workdir / MODEL)
    return torch.cat([weights[name].flatten() for name in sorted(weights)])


@pytest.mark.slow
@pytest.mark.parametrize("order", thinned(["project_then_clip", "clip_then_filter"], every=2))
def test_a_run_that_stops_and_goes_on_is_the_uninterrupted_one_to_the_bit(order: str, tmp_path: Path) -> None:
    spec = _spec(order=order)
    with pytest.raises(TrainingStopped):
        _train(spec, tmp_path / "stopped", stop_after=3)
    assert torch.equal(_train(spec, tmp_path / "stopped"), _train(spec, tmp_path / "whole"))


@pytest.mark.slow
def test_microbatches_change_a_run_by_rounding_only(tmp_path: Path) -> None:
    # Adam divides by the gradient's own size: where a sum is nearly 0 rounding decides a step.
    spec = _spec(optimizer={"kind": "sgd", "learning_rate": 0.1})
    whole, pieces = _train(spec, tmp_path / "whole"), _train(spec, tmp_path / "pieces", microbatch_size=5)
    torch.testing.assert_close(pieces, whole, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_two_processes_train_together(tmp_path: Path) -> None:
    spec = _spec(steps=3)
    together = _train(spec, tmp_path / "together", processes=2)
    assert together.isfinite().all()
    # Each draws a sample of its own.
    assert not torch.equal(together, _train(spec, tmp_path / "alone"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": SAME | {"filter_ratio": 0.8}}, r"plan.projection.layers must be .*, as the spec says"),
        ({"order": "clip_then_filter"}, r"plan.projection.order must be 'project_then_clip', as the spec says, got 'clip_then_filter'"),
        ({"layers": _each(_setting(0.5, 0.5), PLAIN, PLAIN, PLAIN)}, r"plan.clipping.layers must be .*, as the spec says"),
    ],
)
def test_the_plan_of_another_spec_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match=message):
        _train(_spec(), tmp_path, plan=_spec(**changes).plan())


def test_a_plan_without_the_projection_is_refused(tmp_path: Path) -> None:
    spec = _spec()
    document = spec.plan().model_dump(mode="json")
    del document["projection"]
    with pytest.raises(InvalidParameter, match=r"plan.projection.order must be 'project_then_clip', as the spec says, got None"):
        _train(spec, tmp_path, plan=ExecutionPlan.model_validate(document))
