r"""Half precision inside the network, and nowhere else."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from zetadp.trainer.engine.environment import autocast
from zetadp.trainer.specs.base import RuntimeSpec


def compute_in(runtime: RuntimeSpec, network: nn.Module) -> None:
    r"""Makes the network's forward pass run in the requested precision; its outputs are float32 again.

    The context covers the forward pass alone. Over the backward pass and the clipping it would make products of per-unit gradients
    bfloat16: their weighted sum would be rounded to 2^-8 of itself, by more than the bound if a lot is large.

    Raises:
      InvalidParameter: half precision for a layer that multiplies complex numbers.
    """
    if runtime.precision == "float32":
        return
    _ = autocast(runtime, network)  # refuses before training what it would refuse in the first step
    plain = network.forward

    def forward(features: Tensor) -> Tensor:
        with autocast(runtime, network):
            outputs: Tensor = plain(features)
        return outputs.float() if outputs.dtype == torch.bfloat16 else outputs

    network.forward = forward
