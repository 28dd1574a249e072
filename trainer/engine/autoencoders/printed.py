r"""The SPOF paper's two algorithms as printed. Neither is private at any epsilon (errata S13 to S16, S29, S31).

Both compute the loss's derivative with respect to each output, add noise to it, and propagate it through the raw row: the result is a
multiple of that row. For comparison and demonstration only; a plan that runs them claims nothing.

Readings where the paper leaves a choice: the environmental noise enters the encoders and is drawn anew whenever a row is drawn; the loss's
targets stay the clean rows; b_j is a coefficient, so nothing is propagated through it; back-propagation uses the inputs the encoders saw.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from zetadp.mechanisms.sampling.source import NoiseSource
from zetadp.trainer.engine.autoencoders.network import Autoencoder, Pass

SMALLEST_UNIT = 2.0**-100
"""Where b_j divides by a hidden unit below this, the unit counts as this: in float32 b_j would be infinite."""


class Sensed(NamedTuple):
    r"""Rows after sensors and encoders.

    Attributes:
      inputs: what the encoders saw, x + n, (rows, n).
      found: hidden units h-hat and logits z-hat of the inputs.
      clean: hidden units of the rows without noise, (rows, m l); zero except in the row's own block.
      factor: b_j, the sum of h-hat / h over the l units, (rows, 1); 1 without noise.
    """

    inputs: Tensor
    found: Pass
    clean: Tensor
    factor: Tensor


def sensed(network: Autoencoder, parameters: Tensor, rows: Tensor, masks: Tensor, noise_std: float, source: NoiseSource[Tensor]) -> Sensed:
    r"""Rows with N(0, noise_std^2) in every feature (section VI), and b_j by (34) and (36).

    Without noise b_j is 1, as the paper assumes there; its own (36) gives l (errata S20).
    """
    clean = network.forward(parameters, rows, masks)
    if noise_std == 0.0:
        return Sensed(rows, clean, clean.hidden, torch.ones_like(rows[:, :1]))
    inputs = rows + source.standard_normal(tuple(rows.shape)).to(rows.dtype) * noise_std
    found = network.forward(parameters, inputs, masks)
    ratios = found.hidden / clean.hidden.clamp(min=SMALLEST_UNIT)
    # 0 / SMALLEST_UNIT outside the row's own block.
    return Sensed(inputs, found, clean.hidden, ratios.sum(dim=1, keepdim=True))


def algorithm_1_slopes(seen: Sensed, targets: Tensor, epsilon: float, stabilisation: float, source: NoiseSource[Tensor]) -> Tensor:
    r"""Steps 3 to 6 of Algorithm 1: the perturbed polynomial's derivative with respect to the logits z-hat, (rows, n).

    (b alpha_2 + M_2) u + (b alpha_3 + M_3) u^2 of (13), u = z - t / b = z-hat / b by (38), alpha_2 = 1/2 - x, alpha_3 = x/2 - 1/4 and
    M_p ~ Lap(Delta / (sqrt(2) epsilon)), Delta = 3 b n / 2 + n c_j (c_j / 2 + 2), c_j = c . h_j(x_j): the scale depends on the row (S13).

    Args:
      seen: computed with weights that already include the constant c: step 3 adds it to the decoder.
      targets: x, (rows, n).
      stabilisation: every entry c of the vector c_j; >= 0.
    """
    features = targets.shape[1]
    constant = stabilisation * seen.clean.sum(dim=1, keepdim=True)
    sensitivity = 1.5 * features * seen.factor + features * constant * (0.5 * constant + 2.0)
    noise = source.standard_laplace((2, *targets.shape)).to(targets.dtype) * (sensitivity / (math.sqrt(2.0) * epsilon))
    linear = seen.factor * (0.5 - targets) + noise[0]
    quadratic = seen.factor * (0.5 * targets - 0.25) + noise[1]
    return (linear + 2.0 * quadratic * (seen.found.logits / seen.factor)) / seen.factor


def algorithm_2_slopes(seen: Sensed, targets: Tensor, epsilon: float, bound: float, source: NoiseSource[Tensor]) -> Tensor:
    r"""Steps 3 to 6 of Algorithm 2: the derivative with respect to z at a = 0, g = 1/2 - x, clipped and perturbed, (rows, n).

    b g / max(1, ||g|| / C) + Lap(Delta / epsilon) with Delta = b n where ||g|| < C, else 2 n C: the branch depends on the row (S29).
    """
    features = targets.shape[1]
    slopes = 0.5 - targets
    norms = torch.linalg.vector_norm(slopes, dim=1, keepdim=True)
    sensitivity = torch.where(norms < bound, features * seen.factor, torch.full_like(norms, 2.0 * features * bound))
    clipped = seen.factor * slopes / (norms / bound).clamp(min=1.0)
    return clipped + source.standard_laplace(tuple(targets.shape)).to(targets.dtype) * (sensitivity / epsilon)


PrintedSlopes = Callable[[Sensed, Tensor, NoiseSource[Tensor]], Tensor]
"""Either algorithm's slopes: rows as sensed, the clean rows and a noise source -> noisy derivatives."""


def printed_gradient(network: Autoencoder, parameters: Tensor, seen: Sensed, slopes: Tensor) -> Tensor:
    """Noisy derivatives with respect to the logits, propagated to all weights; the mean over rows, (coordinates,)."""
    hidden_slopes = network.hidden_slopes(parameters, seen.found, slopes)
    return network.summed(seen.inputs, seen.found, hidden_slopes, slopes) / len(slopes)
