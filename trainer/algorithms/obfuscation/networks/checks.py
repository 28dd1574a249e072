r"""Whether a processing module turns with its input, measured on made-up features before any training."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.algorithms.obfuscation.layers import from_parts, to_parts
from zetadp.trainer.specs.models.parameter_counts import Shape

TOLERANCE = 1e-4
"""Relative to the l2 norm; float32 alone gives about 1e-6 in a network of a hundred layers."""

ANGLES = (0.5, 1.5, 3.0, 4.5)


def turning_error(processing: nn.Module, z: Tensor, theta: float) -> float:
    """|Phi(e^(i theta) z) - e^(i theta) Phi(z)| / |Phi(z)| in l2 norm, of complex features (records, ...), as the module is set."""
    angle = torch.polar(torch.ones(()), torch.tensor(theta)).to(z.device)
    with torch.no_grad():
        plain, turned = (from_parts(processing(to_parts(features))) for features in (z, angle * z))
    return float(torch.linalg.vector_norm(turned - angle * plain) / torch.linalg.vector_norm(plain))


def made_up_features(shape: Shape, seed: int = 1) -> Tensor:
    """Two complex features of standard normal numbers, (2, *shape), always the same."""
    generator = torch.Generator().manual_seed(seed)
    return torch.complex(*torch.randn((2, 2, *shape), generator=generator))


def check_equivariant(processing: nn.Module, shape: Shape) -> None:
    r"""With dropout off and statistics frozen, as the cloud runs it.

    Raises:
      InvalidParameter: the module doesn't turn with its input, or its output is zero or not finite.
    """
    device = next((parameter.device for parameter in processing.parameters()), torch.device("cpu"))
    features = made_up_features(shape).to(device)
    before = processing.training
    processing.eval()
    try:
        worst = max(turning_error(processing, features, theta) for theta in ANGLES)
    finally:
        processing.train(before)
    if not worst <= TOLERANCE:  # a NaN isn't
        expected = f"equivariant to rotations of its input, to a relative error of {TOLERANCE} on made-up features"
        raise InvalidParameter("network.processing", expected, worst)
