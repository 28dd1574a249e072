r"""Networks that are asked for by name and size: reading a spec turns them into their layers. Without torch.

What is stored, planned and certified is a ``sequential`` model: its description stays whole if a name should mean other layers one day.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from typing import Annotated, Literal, final

from pydantic import BeforeValidator, Field, Strict, TypeAdapter

from zetadp.mechanisms.base import Value
from zetadp.trainer.specs.models.layer_numbers import DropProbability, Flag, Width
from zetadp.trainer.specs.models.model_spec import ComplexMlp, ComplexUnet, Sequential
from zetadp.trainer.specs.models.parameter_counts import Numbers
from zetadp.trainer.specs.models.residual_networks import resnet_18, resnext_29, wide_resnet
from zetadp.trainer.specs.models.transformers import recurrent, transformer
from zetadp.trainer.specs.models.weights import GivenWeights

Few = Annotated[int, Strict(), Field(ge=1, le=64)]


class NamedNetwork(Value, ABC):
    """What a name stands for."""

    @abstractmethod
    def network(self) -> Sequential:
        """Its layers. Raises InvalidParameter where there are none of this size."""


@final
class ResNet18(NamedNetwork):
    r"""ResNet-18 with group norm: He, Zhang, Ren and Sun 2016.

    Attributes:
      width: channels of the first convolutions; a multiple of 16.
      for_large_images: begins with a 7 x 7 convolution of stride 2 and a max pool; else with a 3 x 3 convolution, for 32 x 32.
      normalises_sums: a norm after each block's sum too (ScaleNorm, Klause et al. 2022).
    """

    kind: Literal["resnet18"] = "resnet18"
    classes: Width
    numbers: Numbers
    width: Width = 64
    for_large_images: Flag = False
    normalises_sums: Flag = False

    def network(self) -> Sequential:
        large, sums = self.for_large_images, self.normalises_sums
        return resnet_18(self.classes, self.numbers, self.width, for_large_images=large, normalises_sums=sums)


@final
class ResNext29(NamedNetwork):
    r"""ResNeXt-29 with group norm, for images of 32 x 32: Xie, Girshick, Dollar, Tu and He 2017.

    Attributes:
      cardinality: groups of each block's middle convolution.
      width: channels of each group in the first stage.
    """

    kind: Literal["resnext29"] = "resnext29"
    classes: Width
    numbers: Numbers
    cardinality: Width = 8
    width: Width = 64

    def network(self) -> Sequential:
        return resnext_29(self.classes, self.cardinality, self.width, self.numbers)


@final
class WideResNet(NamedNetwork):
    r"""A wide residual network with group norm, for images of 32 x 32: Zagoruyko and Komodakis 2016; WRN-28-10 unless it says otherwise.

    Attributes:
      depth: 10, 16, 22, 28, ...
      widening: how many times 16, 32 and 64 channels the three stages have.
      standardises: every convolution's filters are standardised (De et al. 2022).
    """

    kind: Literal["wide_resnet"] = "wide_resnet"
    classes: Width
    numbers: Numbers
    depth: Width = 28
    widening: Width = 10
    standardises: Flag = False

    def network(self) -> Sequential:
        return wide_resnet(self.classes, self.depth, self.widening, self.numbers, standardises=self.standardises)


@final
class Transformer(NamedNetwork):
    r"""A transformer encoder and class scores of the mean over places: Vaswani et al. 2017, norms first (Xiong et al. 2020).

    Attributes:
      layers: of the encoder; each is attention and then two layers, four times as wide between.
      channels: of every place; a multiple of ``heads``, at least 3.
      entries: for records of whole numbers, rows of their table; None for sequences of numbers, (channels, length).
      dropout: probability, behind attention and behind the layers between.
      columns: records are images, whose columns are the places; ``entries`` is then None.
    """

    kind: Literal["transformer"] = "transformer"
    classes: Width
    numbers: Literal["complex", "real"]
    layers: Few
    channels: Width
    heads: Few
    entries: Width | None
    dropout: DropProbability = 0.0
    columns: Flag = False

    def network(self) -> Sequential:
        return transformer(
            self.classes,
            self.numbers,
            layers=self.layers,
            channels=self.channels,
            heads=self.heads,
            entries=self.entries,
            dropout=self.dropout,
            columns=self.columns,
        )


@final
class RecurrentNetwork(NamedNetwork):
    r"""Recurrent layers, one behind the other, and class scores of the last state.

    Attributes:
      cell: of every layer.
      layers: how many.
      channels: of a state, and of a row of the table.
      entries, columns: as a transformer's.
    """

    kind: Literal["recurrent_network"] = "recurrent_network"
    classes: Width
    numbers: Literal["complex", "real"]
    cell: Literal["rnn", "gru"]
    layers: Few
    channels: Width
    entries: Width | None
    columns: Flag = False

    def network(self) -> Sequential:
        layers, channels, entries = self.layers, self.channels, self.entries
        return recurrent(self.classes, self.numbers, self.cell, layers=layers, channels=channels, entries=entries, columns=self.columns)


Written = Annotated[
    ComplexMlp | Sequential | ComplexUnet | ResNet18 | ResNext29 | WideResNet | Transformer | RecurrentNetwork,
    Field(discriminator="kind"),
]
"""How a network may be written in a request."""


@cache
def _written() -> TypeAdapter[Written]:
    return TypeAdapter(Written)


def in_layers(asked: object) -> object:
    """The layers that a named network stands for; any other network as it is. Raises ValidationError, InvalidParameter."""
    found = _written().validate_python(asked)
    return found.network() if isinstance(found, NamedNetwork) else found


ModelSpec = Annotated[
    ComplexMlp | Sequential | ComplexUnet, Field(discriminator="kind"), BeforeValidator(in_layers, json_schema_input_type=Written)
]


def given_weights_of(model: ModelSpec) -> tuple[str, ...]:
    """SHA-256 of the weights that the network starts from instead of drawing its own; none where it draws them."""
    given = model.initial_weights if isinstance(model, Sequential) else None
    return (given.sha256,) if isinstance(given, GivenWeights) else ()
