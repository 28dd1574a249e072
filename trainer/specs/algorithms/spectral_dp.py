r"""The spec of Spectral-DP and Block Spectral-DP in their sound form (errata section 5: project, clip, real noise on what is kept)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, ClassVar, Literal, Self, final

from pydantic import Field, Strict, model_validator

from zetadp.mechanisms.base import Adjacency, Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.spectral import AxisNumber
from zetadp.trainer.data import DataSetFacts, DigitsPhasePairs
from zetadp.trainer.specs.base import PrivacyTarget
from zetadp.trainer.specs.descent import Adam, AnyOptimizer, Optimizer
from zetadp.trainer.specs.execution_plan import ClippingBound, LayerBound, LayerBoundsClipping
from zetadp.trainer.specs.models.layer_spec import Activation, BlockCirculantLinear, Convolution, Flatten, LayerSpec, Unflatten
from zetadp.trainer.specs.models.model_spec import Sequential
from zetadp.trainer.specs.models.shapes import Shape, each_layer
from zetadp.trainer.specs.models.weighted import WeightedLayer, weighted_layers
from zetadp.trainer.specs.network_training import NetworkTraining, PublicHeldOut
from zetadp.trainer.specs.projection import MOST_LAYERS, LayerSpectrum, SpectralProjection

FilterRatio = Annotated[float, Strict(), Field(ge=0.0, lt=1.0, allow_inf_nan=False)]


@final
class LayerSetting(Value):
    r"""How one trained layer is clipped and filtered.

    Attributes:
      clipping_bound: C_l, l2 norm of the layer's part of a unit's gradient, biases included; in [1e-10, 1e30].
      filter_ratio: part of the spectrum that is dropped along each axis of a kernel or block; in [0, 1). See ``kept_frequencies``.
      transform_size: of a convolution: length of the Fourier transform along each axis, at least the kernel's size; the kernel's gradient
        is padded with zeros to it. None for the kernel's own size, and for other layers: a block's transform has the block's size.
    """

    clipping_bound: ClippingBound
    filter_ratio: FilterRatio
    transform_size: AxisNumber | None = None


@final
class SameForAll(Value):
    """One setting for every trained layer. A layer without a spectrum is clipped to the bound and not filtered; a transform size is for
    the convolutions.

    Attributes:
      (others): as in ``LayerSetting``. With L layers the whole gradient has the bound sqrt(L) clipping_bound.
    """

    kind: Literal["same_for_all"] = "same_for_all"
    clipping_bound: ClippingBound
    filter_ratio: FilterRatio
    transform_size: AxisNumber | None = None


@final
class LayerByLayer(Value):
    """A setting for each trained layer (one with parameters), in the network's order."""

    kind: Literal["layer_by_layer"] = "layer_by_layer"
    settings: Annotated[tuple[LayerSetting, ...], Field(min_length=1, max_length=MOST_LAYERS)]


@final
class SpectralDp(NetworkTraining):
    r"""Train a real network on the low frequencies of its kernels' and blocks' gradients, with noise on these alone.

    For each unit and layer: the gradient's kept coordinates (``LayerSpectrum``) are clipped to C_l, added over the sample, and released
    with real Gaussian noise of std sigma C on each of them, C = sqrt(sum C_l^2). Mapping them back to weights is post-processing. It is
    as private as ordinary training with the same sigma: filtering earns no privacy, it trades noise for a bias (errata P20).

    Attributes:
      model: with real weights (numbers ``real`` or ``real_pairs``).
      layers: bounds and filters.
      order: ``project_then_clip`` or ``clip_then_filter``, the paper's: see ``SpectralProjection``.
      optimizer: how the released gradient updates the weights; post-processing.
      (others): as in ``NetworkTraining``; ``expected_batch_size`` is q N, at most the training records or users.
    Raises:
      InvalidParameter: complex weights; and from ``plan``, where the spec doesn't fit network or data set.
    """

    SUMMARY: ClassVar[str] = "Spectral-DP: real networks trained on the low frequencies of their kernels' and circulant blocks' gradients."
    SOURCES: ClassVar[tuple[str, ...]] = (
        "Feng, Xu, Wen, Venkatasubramaniam and Ding 2023, Spectral-DP, Algorithms 2 to 4 (noise, clipping and accounting corrected)",
        "Abadi et al. 2016, arXiv:1607.00133",
        "Ding et al. 2017, CirCNN (block-circulant layers)",
    )
    # P3, P5 and P23 are about printed formulas that nothing here is computed from.
    ERRATA: ClassVar[tuple[str, ...]] = (
        *("P1", "P2", "P4", "P6", "P7", "P8", "P9", "P10", "P11", "P12", "P13", "P14"),
        *("P15", "P16", "P17", "P18", "P19", "P20", "P21", "P22", "P24", "Z22"),
    )
    TRUST: ClassVar[str] = "The party that runs the training is trusted with the data; everyone else sees only what is released."
    PLANS: ClassVar[tuple[str, ...]] = ("noisy_sums",)

    algorithm: Literal["spectral_dp"] = "spectral_dp"
    layers: Annotated[SameForAll | LayerByLayer, Field(discriminator="kind")]
    order: Literal["project_then_clip", "clip_then_filter"] = "project_then_clip"
    optimizer: Optimizer

    @model_validator(mode="after")
    def _check_numbers(self) -> Self:
        _ = self.network
        return self

    @classmethod
    def example(cls) -> Self:
        """Digits as phase pairs, on real weights: a convolution and two circulant layers. Tuned on this same public data set."""
        layers: tuple[LayerSpec, ...] = (
            Unflatten(channels=2, height=8, width=8),
            Convolution(outputs=16, kernel=5, padding=2, stride=2),
            Activation(name="tanh"),
            Flatten(),
            BlockCirculantLinear(outputs=64, block=8),
            Activation(name="tanh"),
            BlockCirculantLinear(outputs=10, block=5),
        )
        return cls(
            data=DigitsPhasePairs(split_seed=0, test_fraction=0.2),
            model=Sequential(numbers="real_pairs", layers=layers, head="none"),
            layers=SameForAll(clipping_bound=0.5, filter_ratio=0.5),
            optimizer=Adam(learning_rate=0.01),
            privacy=PrivacyTarget(adjacency=Adjacency.ADD_REMOVE, unit="record", delta=1e-5, epsilon=4.0),
            expected_batch_size=200,
            steps=400,
            evaluation=PublicHeldOut(),
        )

    @property
    def network(self) -> Sequential:
        """``model``. Raises InvalidParameter if it isn't a sequence of layers with real weights."""
        if not isinstance(self.model, Sequential):
            raise InvalidParameter("model", "sequential, with real weights", self.model.kind)
        if self.model.numbers == "complex":
            raise InvalidParameter("model.numbers", "real or real_pairs (the noise of kept frequencies is that of real signals)", "complex")
        return self.model

    @property
    def descent(self) -> AnyOptimizer:
        return self.optimizer

    def planned_clipping(self, facts: DataSetFacts) -> LayerBoundsClipping:
        settings = self._settings(facts)
        return LayerBoundsClipping(layers=tuple(LayerBound(layer=layer.name, bound=one.clipping_bound) for layer, one in settings))

    def planned_projection(self, facts: DataSetFacts) -> SpectralProjection:
        # Only a layer's weight has a spectrum; the rest of its numbers are biases.
        numbers = {
            stage.name: stage.weights - (stage.outputs[0] if getattr(stage.layer, "bias", False) else 0)
            for stage in each_layer(self.network, facts)
        }
        spectra = tuple(
            _spectrum(layer, layer.spectrum_shape, numbers[layer.name], setting)
            for layer, setting in self._settings(facts)
            if layer.spectrum_shape is not None
        )
        return SpectralProjection(order=self.order, layers=spectra)

    def _settings(self, facts: DataSetFacts) -> list[tuple[WeightedLayer, LayerSetting]]:
        """The settings of each trained layer. Raises InvalidParameter if they don't fit the network."""
        trained = weighted_layers(self.network, facts)
        if isinstance(self.layers, SameForAll):
            _check_used(trained, self.layers)
            return [(layer, _own(layer, self.layers)) for layer in trained]
        settings = self.layers.settings
        if len(settings) != len(trained):
            expected = f"one for each of the {len(trained)} trained layers, {', '.join(layer.name for layer in trained)}"
            raise InvalidParameter("layers.settings", expected, f"{len(settings)} settings")
        for place, (layer, setting) in enumerate(zip(trained, settings, strict=True)):
            _check_setting(f"layers.settings[{place}]", layer, setting)
        return list(zip(trained, settings, strict=True))


def kept_frequencies(transform: int, ratio: float) -> int:
    r"""K, the smallest count of rfft frequencies with min(2 K - 1, N) >= (1 - ratio) N: never fewer dimensions than requested.

    Frequencies other than 0 (and N / 2) come in conjugate pairs, so not every number of dimensions is possible. Short axes keep more
    than the ratio says: 3 keeps everything below a ratio of 2/3, and then one dimension.

    Args:
      transform: N >= 1.
      ratio: in [0, 1), taken as the decimal it is written as.

    >>> kept_frequencies(8, 0.5), kept_frequencies(5, 0.5), kept_frequencies(3, 0.5), kept_frequencies(3, 0.75)
    (3, 2, 2, 1)
    """
    return math.ceil(((1 - Fraction(repr(ratio))) * transform + 1) / 2)


def _check_used(trained: Sequence[WeightedLayer], common: SameForAll) -> None:
    """Refuses a filter that applies to no layer: it is a mistake."""
    if common.filter_ratio > 0.0 and all(layer.spectrum_shape is None for layer in trained):
        raise InvalidParameter("layers.filter_ratio", "0 for a network without convolutions and circulant layers", common.filter_ratio)
    if common.transform_size is not None and all(_transforms_block_or_nothing(layer) for layer in trained):
        raise InvalidParameter("layers.transform_size", "absent for a network without convolutions", common.transform_size)


def _transforms_block_or_nothing(layer: WeightedLayer) -> bool:
    """Whether the transform's size can't be chosen."""
    return layer.spectrum_shape is None or layer.kind == "block_circulant_linear"


def _own(layer: WeightedLayer, common: SameForAll) -> LayerSetting:
    """The part of a common setting that applies to this layer."""
    if layer.spectrum_shape is None:
        return LayerSetting(clipping_bound=common.clipping_bound, filter_ratio=0.0)
    size = None if _transforms_block_or_nothing(layer) else common.transform_size
    setting = LayerSetting(clipping_bound=common.clipping_bound, filter_ratio=common.filter_ratio, transform_size=size)
    _check_setting("layers", layer, setting)
    return setting


def _check_setting(name: str, layer: WeightedLayer, setting: LayerSetting) -> None:
    shape, size = layer.spectrum_shape, setting.transform_size
    if shape is None and setting.filter_ratio > 0.0:
        raise InvalidParameter(f"{name}.filter_ratio", f"0 for {layer.name} (its weight has no spectrum)", setting.filter_ratio)
    if size is None:
        return
    if shape is None or _transforms_block_or_nothing(layer):
        raise InvalidParameter(f"{name}.transform_size", f"absent for {layer.name} (only convolutions have one)", size)
    if size < max(shape):
        raise InvalidParameter(f"{name}.transform_size", f">= {max(shape)}, the kernel size of {layer.name}", size)


def _spectrum(layer: WeightedLayer, shape: Shape, numbers: int, setting: LayerSetting) -> LayerSpectrum:
    """``numbers``: how many numbers the layer's weight has."""
    transform = shape if setting.transform_size is None else (setting.transform_size,) * len(shape)
    kept = tuple(kept_frequencies(length, setting.filter_ratio) for length in transform)
    return LayerSpectrum(layer=layer.name, signals=numbers // math.prod(shape), shape=shape, transform=transform, kept=kept)
