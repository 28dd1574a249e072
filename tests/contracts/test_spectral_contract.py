r"""What Spectral-DP promises: nothing filtered is DP-SGD to the bit; its noise in the weights is the claimed one; a unit moves what is
released by at most C.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn

from tests.selection import chosen
from tests.trainer.made_up import all_steps
from tests.trainer.spectral_cases import ORDERS, random_ratios, spectra_of
from zetadp.mechanisms import Adjacency, Gaussian, Sensitivity
from zetadp.mechanisms.numerics.spectrum import LowPass
from zetadp.trainer import RuntimeSpec, ZetaDpSgd, load_train
from zetadp.trainer.engine import MODEL, ClippedSum, ParameterLayout, PrivateLoop, SeededRandomness, Site, TrainingState
from zetadp.trainer.engine.gradients.clipping import CLIP_MARGIN
from zetadp.trainer.engine.gradients.spectral_vector import Spectra
from zetadp.trainer.engine.team.interface import Alone
from zetadp.trainer.specs.algorithms.spectral_dp import SpectralDp
from zetadp.trainer.specs.execution_plan import ExecutionPlan, FlatClipping
from zetadp.trainer.specs.network_training import NetworkTraining
from zetadp.trainer.specs.projection import LayerSpectrum, SpectralProjection
from zetadp.trainer.specs.sampling import PoissonSampling

LAYERS: list[dict[str, Any]] = [
    {"kind": "unflatten", "channels": 2, "height": 8, "width": 8},
    {"kind": "convolution", "outputs": 6, "kernel": 5, "padding": 2, "stride": 2},
    {"kind": "activation", "name": "tanh"},
    {"kind": "flatten"},
    {"kind": "block_circulant_linear", "outputs": 40, "block": 8},
    {"kind": "activation", "name": "tanh"},
    {"kind": "block_circulant_linear", "outputs": 20, "block": 5},
    {"kind": "activation", "name": "tanh"},
    {"kind": "linear", "outputs": 10},
]
COMMON: dict[str, Any] = {
    "data": {"kind": "digits_phase_pairs", "split_seed": 0, "test_fraction": 0.2},
    "model": {"kind": "sequential", "numbers": "real_pairs", "layers": LAYERS, "head": "none"},
    "optimizer": {"kind": "adam", "learning_rate": 0.02},
    "privacy": {"adjacency": "add_remove", "unit": "record", "delta": 1e-4, "noise_multiplier": 0.8},
    "expected_batch_size": 48,
    "steps": 6,
    "reproducible": True,
    "seed": 7,
}


def _weights(spec: NetworkTraining, workdir: Path, **runtime: Any) -> dict[str, Tensor]:
    settings = RuntimeSpec.model_validate({"device": "cpu", "threads": 1} | runtime)
    load_train(spec)(spec, spec.plan(), settings, workdir, report=lambda _event: None, should_stop=lambda: False)  # pyright: ignore[reportArgumentType]
    return load_file(workdir / MODEL)


UNFILTERED = [(order, size) for size in (None, 16) for order in ORDERS]


# By default one size in each order.
@pytest.mark.parametrize(("order", "transform_size"), chosen(UNFILTERED, [UNFILTERED[1], UNFILTERED[2]]))
def test_nothing_filtered_is_dp_sgd_clipped_layer_by_layer_to_the_bit(order: str, transform_size: int | None, tmp_path: Path) -> None:
    # Four layers of 1/2 have together the bound 1, rounded up; that changes no float32, as 0.8 is none.
    layers = {"kind": "same_for_all", "clipping_bound": 0.5, "filter_ratio": 0.0, "transform_size": transform_size}
    spectral = SpectralDp.model_validate(COMMON | {"layers": layers, "order": order})
    ordinary = ZetaDpSgd.model_validate(COMMON | {"clipping_bound": 1.0, "clipping": {"kind": "per_layer"}})
    ours, theirs = _weights(spectral, tmp_path / "spectral"), _weights(ordinary, tmp_path / "ordinary")
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_filter_changes_the_weights(tmp_path: Path) -> None:
    # Else the test above would show nothing.
    ratios = (0.0, 0.5)
    settings = [{"kind": "same_for_all", "clipping_bound": 0.5, "filter_ratio": ratio} for ratio in ratios]
    whole, filtered = (
        _weights(SpectralDp.model_validate(COMMON | {"layers": layers}), tmp_path / str(place)) for place, layers in enumerate(settings)
    )
    assert not torch.equal(whole["1_convolution.weight"], filtered["1_convolution.weight"])


STD = 2.5
STEPS = 12


@final
class _Nothing:
    """Clipped sums of nobody."""

    def __init__(self, coordinates: int) -> None:
        self._coordinates = coordinates

    def sum(self, parameters: Mapping[str, Tensor], units: Tensor, bound: float) -> ClippedSum:
        del parameters, units
        return ClippedSum(torch.zeros(self._coordinates), torch.zeros(0), bound, 0)


def _noise_in_weights(network: nn.Module, projection: SpectralProjection) -> list[dict[str, Tensor]]:
    """What arrives at the parameters in each step where nobody contributes; multiplied by the divisor."""
    layout, clipping = ParameterLayout.of(network), FlatClipping(bound=1.0)
    spectra = Spectra(projection, layout, torch.device("cpu"))
    sensitivity = Sensitivity(l2=1.0, adjacency=Adjacency.ADD_REMOVE, unit="record")
    sampling = PoissonSampling(records=4, expected_batch_size=2)
    mechanism = Gaussian(std=STD, sensitivity=sensitivity)
    plan = ExecutionPlan(sampling=sampling, clipping=clipping, mechanism=mechanism, steps=STEPS, delta=1e-5, projection=projection)
    seen: list[dict[str, Tensor]] = []

    def keep(state: dict[str, Tensor], before: Tensor, gradient: Tensor, _step: int) -> tuple[Tensor, dict[str, Tensor]]:
        seen.append(layout.unflatten(gradient * sampling.expected_batch_size))
        return before, state

    sites = (Site(torch.arange(4), SeededRandomness(1)),)
    loop = PrivateLoop(_Nothing(spectra.layout.coordinates), layout, plan, sites, keep, Alone(), spectra=spectra)
    all_steps(loop, TrainingState(0, torch.zeros(layout.coordinates), {}, 1.0))
    return seen


def _claimed_covariance(spectrum: LayerSpectrum) -> NDArray[np.float64]:
    """std^2 A: between places of one signal, by their distance along each axis."""
    low = LowPass(spectrum.transform, spectrum.kept)
    places = list(np.ndindex(*spectrum.shape))
    return np.array([[STD**2 * low.covariance(tuple(np.subtract(one, other).tolist())) for other in places] for one in places])


SPECTRA = {
    "convolution": (nn.Conv2d(32, 64, 5), LayerSpectrum(layer="0", signals=2048, shape=(5, 5), transform=(5, 5), kept=(2, 2))),
    "padded convolution": (nn.Conv2d(32, 64, 5), LayerSpectrum(layer="0", signals=2048, shape=(5, 5), transform=(12, 12), kept=(3, 3))),
    "one frequency": (nn.Conv2d(32, 64, 3), LayerSpectrum(layer="0", signals=2048, shape=(3, 3), transform=(3, 3), kept=(1, 1))),
    "blocks": (nn.Conv1d(32, 64, 8), LayerSpectrum(layer="0", signals=2048, shape=(8,), transform=(8,), kept=(3,))),
}


@pytest.mark.parametrize("name", SPECTRA)
def test_noise_in_the_weights_has_the_claimed_covariance(name: str) -> None:
    module, spectrum = SPECTRA[name]
    noises = _noise_in_weights(nn.Sequential(module), SpectralProjection(order="project_then_clip", layers=(spectrum,)))
    signals = torch.cat([noise["0.weight"].reshape(spectrum.signals, -1) for noise in noises]).double().numpy()
    observed, claimed = signals.T @ signals / len(signals), _claimed_covariance(spectrum)
    # An entry of a covariance of n Gaussians varies by at most 2 var^2 / n.
    tolerance = 6.0 * math.sqrt(2.0 / len(signals)) * claimed[0, 0]
    assert tolerance < 0.1 * claimed[0, 0]  # 30 % off in std is 69 % more or 51 % less
    np.testing.assert_allclose(observed, claimed, atol=tolerance)
    bias = torch.cat([noise["0.bias"] for noise in noises]).double()
    assert bias.square().mean().sqrt().item() == pytest.approx(STD, rel=6.0 / math.sqrt(2.0 * len(bias)))


@pytest.mark.parametrize("name", [name for name, (_, spectrum) in SPECTRA.items() if spectrum.is_projection])
def test_no_noise_arrives_outside_the_kept_frequencies(name: str) -> None:
    module, spectrum = SPECTRA[name]
    axes = tuple(range(2, 2 + len(spectrum.shape)))
    for noise in _noise_in_weights(nn.Sequential(module), SpectralProjection(order="project_then_clip", layers=(spectrum,))):
        weight = noise["0.weight"].double().numpy()
        coefficients = np.fft.rfftn(weight, axes=axes, norm="ortho")
        kept = spectrum.low_pass.half_spectrum_weights() > 0.0
        assert np.abs(coefficients[..., ~kept]).max() <= 1e-5 * STD  # float32
        assert np.abs(coefficients[..., kept]).max() > STD


@pytest.mark.parametrize("order", ORDERS)
# Four have every size of the transform once.
@pytest.mark.parametrize("seed", chosen(range(6), range(4)))
def test_one_unit_moves_what_is_released_by_at_most_the_bounds(order: str, seed: int) -> None:
    ratios = random_ratios(order, seed)
    assert ratios.worst_layer <= 1.0
    assert ratios.worst_whole <= 1.0
    # Many units are longer than their bounds: the bound is nearly attained, 2^-8 below.
    assert ratios.worst_layer >= (1.0 - 1.25 * CLIP_MARGIN if order == "project_then_clip" else 0.9)
    assert len(spectra_of(ratios.network, 0.5, None)) >= 2
