r"""Which function builds which network."""

from __future__ import annotations

from torch import nn

from mechanisms.sampling.source import RandomStream
from trainer.data.base import DataSetFacts
from trainer.models.complex_unet import build_complex_unet
from trainer.models.sequential import build_sequential
from trainer.models.shapes import as_sequential, check_model
from trainer.models.spec import ComplexMlp, ComplexUnet, ModelSpec


def network(spec: ModelSpec, facts: DataSetFacts, stream: RandomStream) -> nn.Module:
    """See ``trainer.models.build``."""
    check_model(spec, facts)
    if isinstance(spec, ComplexUnet):
        return build_complex_unet(spec, facts, stream)
    if isinstance(spec, ComplexMlp):
        assert facts.classes is not None  # checked with the model
        return build_sequential(as_sequential(spec, facts.classes), facts, stream)
    return build_sequential(spec, facts, stream)
