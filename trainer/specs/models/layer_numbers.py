r"""The numbers and names that layers are described by. Free of torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Strict

Width = Annotated[int, Strict(), Field(ge=1, le=65536)]
Extent = Annotated[int, Strict(), Field(ge=1, le=512)]
"""A kernel, stride, dilation or pooled size, the same along every spatial axis."""
Padding = Annotated[int, Strict(), Field(ge=0, le=512)]
Flag = Annotated[bool, Strict()]
Wavelength = Annotated[float, Strict(), Field(ge=2.0, le=512.0, allow_inf_nan=False)]
DropProbability = Annotated[float, Strict(), Field(ge=0.0, lt=1.0, allow_inf_nan=False)]

ComplexActivation = Literal[
    "cardioid",
    "trainable_cardioid",
    "trainable_cardioid_per_feature",
    "conj_mish",
    "crelu",
    "igaussian",
    "modrelu",
    "modrelu_per_feature",
    "separable_sigmoid",
    "separable_tanh",
    "siglog",
    "zrelu",
]
"""Elementwise functions from complex to complex numbers; the trainable ones have one bias, or one for each feature or channel."""
RealActivation = Literal["relu", "tanh", "sigmoid", "mish"]
Head = Literal["magnitude", "real_part", "magnitude_softmax", "none"]
