r"""Networks as values: named in a spec, covered by a certificate's digest and built by ``build``. Free of torch.

Whether a network fits a data set is known only with the data set's facts: ``shapes.check_model`` checks it, also without torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, Self, final

from pydantic import Field, Strict, model_validator

from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.specs.models.layer_numbers import ComplexActivation, DropProbability, Flag, Head, RealActivation, Width
from zetadp.trainer.specs.models.layer_spec import (
    Activation,
    Adapted,
    Columns,
    Dropout,
    FilterBank,
    Flatten,
    Fourier,
    LayerSpec,
    Residual,
    Scattering,
    Unflatten,
)
from zetadp.trainer.specs.models.sequence_layers import Embedding, SelfAttention
from zetadp.trainer.specs.models.weights import FIELD, GivenWeights


@final
class ComplexMlp(Value):
    """Complex linear layers with an activation between, and a head from complex outputs to real class scores."""

    kind: Literal["complex_mlp"] = "complex_mlp"
    hidden: Annotated[tuple[Width, ...], Field(max_length=32)]
    activation: ComplexActivation
    head: Literal["magnitude", "real_part", "magnitude_softmax"]


@final
class Sequential(Value):
    r"""Layers in a row. The last one's outputs are the class scores, or an image of the record's own shape.

    Attributes:
      numbers: ``complex``: complex weights; real data are taken as complex with imaginary part 0. ``real_pairs``: the same network with
        real weights on R^2n, each complex channel as two real ones (all real parts first). ``real``: real weights on real data.
      layers: at most 128.
      head: from complex outputs to real scores; ``none`` for real weights, and for images.
      initial_weights: ``glorot``, or these scaled so that every weighted layer's outputs have mean square 1 on public random records:
        where an activation shrinks what is small, as iGaussian does, a deep network's outputs would start at 0. Or weights from a
        public file, for all or the first layers, and of these the first may be frozen.
    Raises:
      InvalidParameter: an activation, a layer or a head for the other kind of numbers; more given or frozen layers than there are, or a
        dropout among the frozen ones.
    """

    kind: Literal["sequential"] = "sequential"
    numbers: Literal["complex", "real", "real_pairs"]
    layers: Annotated[tuple[LayerSpec, ...], Field(min_length=1, max_length=128)]
    head: Head
    initial_weights: Literal["glorot", "unit_outputs"] | GivenWeights = "glorot"

    @property
    def frozen_layers(self) -> int:
        """How many layers, from the first on, are never trained."""
        return self.initial_weights.frozen_layers if isinstance(self.initial_weights, GivenWeights) else 0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.numbers != "complex" and self.head != "none":
            raise InvalidParameter("model.head", f"none for numbers {self.numbers}", self.head)
        is_fixed = True
        for place, layer in enumerate(self.layers):
            if isinstance(layer, FilterBank | Scattering) and not is_fixed:
                raise InvalidParameter(f"model.layers[{place}]", "before all trainable and dropout layers", layer.kind)
            is_fixed = is_fixed and isinstance(layer, Flatten | Unflatten | Columns | Fourier | FilterBank | Scattering)
            if isinstance(layer, Fourier) and self.numbers == "real":
                raise InvalidParameter(f"model.layers[{place}]", "a layer for numbers real (the output of fourier is complex)", layer.kind)
            if isinstance(layer, Scattering) and self.numbers != "real":
                raise InvalidParameter("model.numbers", "real with a scattering layer, which takes real images", self.numbers)
        for name, layer in _all(self.layers):
            if isinstance(layer, Activation) and (layer.name in RealActivation.__args__) == (self.numbers == "complex"):
                kind = "complex" if self.numbers == "complex" else "real"
                raise InvalidParameter(f"{name}.name", f"a {kind} activation for numbers {self.numbers}", layer.name)
        self._check_embedding()
        self._check_given()
        return self

    def _check_embedding(self) -> None:
        for place, layer in enumerate(self.layers):
            if isinstance(layer, Embedding) and (place or self.numbers == "real_pairs"):
                raise InvalidParameter(f"model.layers[{place}]", "the first layer, for numbers real or complex (embedding)", layer.kind)

    def _check_given(self) -> None:
        given = self.initial_weights
        frozen, read = (given.frozen_layers, given.given_layers) if isinstance(given, GivenWeights) else (0, 0)
        for place, layer in enumerate(self.layers):
            adapted = [name for name, one in one_by_one(f"model.layers[{place}]", layer) if _keeps_given(one)]
            if adapted and not frozen <= place < read:
                # A kept layer of drawn weights, or an adapter that isn't trained, would be a mistake.
                raise InvalidParameter(adapted[0], "among the given layers, behind the frozen ones (adapted)", f"layer {place}")
        if not isinstance(given, GivenWeights):
            return
        if given.given_layers > len(self.layers):
            raise InvalidParameter(f"{FIELD}.given_layers", f"at most {len(self.layers)}, the number of layers", given.given_layers)
        for name, layer in _all(self.layers[: given.frozen_layers]):
            if isinstance(layer, Dropout):
                # A frozen layer is a fixed function of a record, computed once; masks are drawn anew in every step.
                raise InvalidParameter(name, "after the frozen layers", layer.kind)


def _keeps_given(layer: LayerSpec) -> bool:
    """Whether weights in it must be given, since they are never trained."""
    return isinstance(layer, Adapted) or (isinstance(layer, SelfAttention) and layer.adapter_rank is not None)


def one_by_one(name: str, layer: LayerSpec) -> Iterator[tuple[str, LayerSpec]]:
    """A layer and its place, and then those that it is made of in the spec, with theirs."""
    yield name, layer
    rows: tuple[tuple[str, Sequence[LayerSpec]], ...] = ()
    if isinstance(layer, Residual):
        rows = ("layers", layer.layers), ("shortcut", layer.shortcut)
    elif isinstance(layer, Adapted):
        rows = (("adapter", layer.adapter),)
    for row, inside in rows:
        for number, inner in enumerate(inside):
            yield from one_by_one(f"{name}.{row}[{number}]", inner)


def _all(layers: Sequence[LayerSpec]) -> Iterator[tuple[str, LayerSpec]]:
    for place, layer in enumerate(layers):
        yield from one_by_one(f"model.layers[{place}]", layer)


@final
class ComplexUnet(Value):
    r"""The U-Net of fastMRI with complex weights: complex image (channels, height, width) in, complex image of the same shape out.

    Attributes:
      channels: of the first level; each pooling doubles them. fastMRI: 32.
      pools: levels of 2 x 2 average pooling; height and width must be multiples of 2^pools. fastMRI: 4.
      activation: after every norm. The paper: crelu.
      norm_groups: None for instance norm (what batch norm is on single records, errata Z24); else the groups of group norm.
      dropout: probability, after every activation of the convolution blocks.
      residual: the network's output is added to its input: it then learns the correction of the zero-filled image.
    Source: Zbontar et al. 2018, arXiv:1811.08839, section 5.3; zeta-DP paper, A.6.4.
    """

    kind: Literal["complex_unet"] = "complex_unet"
    channels: Annotated[int, Strict(), Field(ge=1, le=1024)]
    pools: Annotated[int, Strict(), Field(ge=1, le=6)]
    activation: ComplexActivation
    norm_groups: Width | None
    dropout: DropProbability
    residual: Flag

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.norm_groups is not None and self.channels % self.norm_groups:
            raise InvalidParameter("model.norm_groups", f"a divisor of channels = {self.channels}", self.norm_groups)
        return self
