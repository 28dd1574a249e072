r"""Which function builds which network."""

from __future__ import annotations

import torch
from torch import nn

from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.data.base import DataSetFacts
from zetadp.trainer.layers.convolution import PlanarConv2d
from zetadp.trainer.layers.standardised import StandardisedPlanarConv2d
from zetadp.trainer.models.complex_unet import build_complex_unet
from zetadp.trainer.models.sequential import build_sequential
from zetadp.trainer.specs.models.model_spec import ComplexMlp, ComplexUnet
from zetadp.trainer.specs.models.named_networks import ModelSpec
from zetadp.trainer.specs.models.shapes import as_sequential, check_model


def build(spec: ModelSpec, facts: DataSetFacts, stream: RandomStream) -> nn.Module:
    """The network with fresh weights from ``stream``, which is public. No layer mixes records.

    It takes features (n, *shape) as in the data set, and returns real class scores (n, classes) or complex images (n, *shape).

    Raises:
      InvalidParameter: the network doesn't fit the data set; ``check_model`` says so without torch.
    """
    check_model(spec, facts)
    if isinstance(spec, ComplexUnet):
        return build_complex_unet(spec, facts, stream)
    if isinstance(spec, ComplexMlp):
        assert facts.classes is not None  # checked with the model
        return build_sequential(as_sequential(spec, facts.classes), facts, stream)
    network = build_sequential(spec, facts, stream)
    convolutions = [module for module in network.modules() if isinstance(module, PlanarConv2d | StandardisedPlanarConv2d)]
    if len(convolutions) == 1:
        # What follows, mostly linear layers, would bring its output into torch's usual order, which takes longer than the other one saves.
        convolutions[0].order = torch.contiguous_format
    return network
