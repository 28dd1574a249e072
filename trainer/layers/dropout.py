r"""Dropout of complex numbers: one mask for real and imaginary part, so that a number is kept whole or dropped whole.

The masks come from torch's generator, not from a noise source. Privacy assumes of them what it assumes of any internal coin of a
per-record gradient: drawn afresh for every record, from the same law, independently of the data. Leaving a record out then leaves the
joint law of the others' masks as it was, and changes the sum by that record's clipped gradient only. It is a statement about the law of
the masks: against somebody who knows the generator's state, leaving a record out also moves the later records' masks by one place. So
torch's generator must be seeded in secret while masks are drawn from it, as the training loop does (a process that never seeds it has a
fixed, public state); a run with a chosen seed is reproducible, with all that this means.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from zetadp.mechanisms.errors import InvalidParameter

INTEGERS = 2**31
"""How many values torch draws of an int32: a mask's probability is met to half of 1 / INTEGERS."""


def complex_dropout(z: Tensor, probability: float, generator: torch.Generator | None) -> Tensor:
    r"""Each complex number is 0 with this probability, else divided by 1 - probability: E is the number itself.

    Args:
      z: complex, any shape, or planes (N, 2C, *space).
      probability: in [0, 1).
      generator: of the masks; None is torch's default, the only one that ``vmap(randomness="different")`` splits by record.
    """
    if not 0.0 <= probability < 1.0:
        raise InvalidParameter("probability", "a number in [0, 1)", probability)
    part = z.real if z.is_complex() else z.unflatten(1, (2, -1))[:, 0]
    # Uniform in 0 .. INTEGERS - 1: a third of the time of ``bernoulli_``.
    uniform = torch.empty_like(part, dtype=torch.int32, requires_grad=False).random_(generator=generator)
    keep = (uniform >= min(round(probability * INTEGERS), INTEGERS - 1)).to(part.dtype).div_(1.0 - probability)
    if z.is_complex():
        return torch.view_as_complex(torch.view_as_real(z) * keep.unsqueeze(-1))
    return (z.unflatten(1, (2, -1)) * keep.unsqueeze(1)).flatten(1, 2)


@final
class ComplexDropout(nn.Module):
    """``complex_dropout`` while training, nothing else: on native complex tensors or planes."""

    def __init__(self, probability: float, generator: torch.Generator | None = None) -> None:
        super().__init__()
        if not 0.0 <= probability < 1.0:
            raise InvalidParameter("probability", "a number in [0, 1)", probability)
        self._probability, self._generator = probability, generator

    def forward(self, z: Tensor) -> Tensor:
        return complex_dropout(z, self._probability, self._generator) if self.training else z
