r"""Matrix products of float32 on processors, by oneDNN where that pays.

torch's own go to a library that uses AVX2 on AMD's processors where there is AVX-512. On those that have registers of that width (Zen 5),
oneDNN takes .44 of the time, for 512 x 784 x 256; where AVX-512 is done in two halves (Zen 4), .93, and 1.07 for complex numbers. On
Intel's, whose library it is, oneDNN takes 1.0 to 1.8 of its time. Both multiply and add in float32, in an order of their own that depends
on shapes and threads, not on values;
``trainer.engine.products`` switches short cuts off for both.
"""

from __future__ import annotations

import platform
import re
from pathlib import Path
from typing import Any, Final, cast, final

import torch
from torch import Tensor, nn

FEWEST_ROWS, LARGE_WEIGHT = 128, 2**15
"""Rows, and multiplications for each of them, from which on it pays: of a few million together, a network's small products saved less than
their calls took. Not by their product: a lot's sizes of microbatches would be on both sides of it, and a row's bits differ there."""

FAST_DOUBLES = frozenset({(6, 0), (7, 0), (8, 0), (9, 0), (10, 0)})
"""Kinds of accelerators ("compute capabilities") that multiply in float64 at least half as fast as in float32; others take up to 64 times
as long."""

_HAS_WIDE = torch.backends.mkldnn.is_available() and torch.backends.cpu.get_cpu_capability() == "AVX512"  # type: ignore[no-untyped-call]
_WIDE: Any = torch.ops.mkldnn._linear_pointwise if _HAS_WIDE else None


_HALVES = 25
"""The last family of AMD's processors that does AVX-512 in two halves (Zen 4)."""


def gains(processor: str) -> bool:
    r"""Whether oneDNN is the faster one on this processor, of which the system says so, as in Linux's /proc/cpuinfo.

    >>> gains("vendor_id: AuthenticAMD\ncpu family: 26"), gains("vendor_id: AuthenticAMD\ncpu family: 25")
    (True, False)
    """
    family = re.search(r"cpu family\s*:\s*(\d+)", processor)
    is_in_halves = "AuthenticAMD" in processor and family is not None and int(family[1]) <= _HALVES
    return not is_intels(processor) and not is_in_halves


def is_intels(processor: str) -> bool:
    """Whether it is one of Intel's, as far as the system says."""
    return "GenuineIntel" in processor


def _processor() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]  # the first of them
    except OSError:
        return platform.processor()


PROCESSOR: Final = _processor()
"""What the system says of this machine's."""

_LINEAR: Any = _WIDE if gains(PROCESSOR) else None
"""oneDNN's product where it pays."""


def doubles_are_fast(device: torch.device) -> bool:
    """Whether a sum in float64 there takes less than several in float32: on accelerators of ``FAST_DOUBLES``."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) in FAST_DOUBLES


def is_fast(rows: int, columns: int, common: int, *of: Tensor) -> bool:
    """Whether ``product`` is the faster way for products of these sizes, and can be called with these tensors."""
    parts = 4 if of[0].is_complex() else 1
    if _LINEAR is None or rows < FEWEST_ROWS or parts * common * columns < LARGE_WEIGHT:
        return False
    dtype = of[0].dtype
    return dtype in (torch.float32, torch.complex64) and all(one.device.type == "cpu" and one.dtype == dtype for one in of)


def product(first: Tensor, second: Tensor, bias: Tensor | None = None) -> Tensor:
    """first @ second + bias: (m, k) and (k, n) -> (m, n), float32 on a processor. Without autograd."""
    return cast("Tensor", _LINEAR(first, second.t(), bias, "none", [], ""))


def planes(values: Tensor) -> Tensor:
    """(m, n) complex -> (2 m, n): real parts above imaginary ones."""
    return torch.cat((values.real, values.imag))


def turned(values: Tensor) -> Tensor:
    """(m, n) complex -> (2 m, 2 n), pairs: conj(z) above i conj(z), whose products with a w in pairs are Re(z w) and Im(z w)."""
    pair = values.new_empty(2, *values.shape)
    torch.conj_physical(values, out=pair[0])
    torch.mul(pair[0], 1j, out=pair[1])
    return pairs(pair.flatten(0, 1))


def pairs(values: Tensor) -> Tensor:
    """(m, n) complex -> (m, 2 n), a view where it isn't lazily conjugated: each real part before its imaginary one."""
    return torch.view_as_real(values.resolve_conj()).flatten(1)


def linear(values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    r"""``nn.functional.linear``, real or complex, by ``product`` where that is the faster way.

    Only the gradient of ``values`` passes: weight and bias are constants, and the output counts as differentiable all the same.
    """
    if _LINEAR is None:
        return nn.functional.linear(values, weight, bias)
    # What doesn't fit together is refused by torch's own, in its words.
    fits = values.dim() == 2 and values.shape[1] == weight.shape[1] and not torch.is_autocast_enabled("cpu")
    if not fits or not is_fast(len(values), weight.shape[0], weight.shape[1], values, weight):
        return nn.functional.linear(values, weight, bias)
    constants = (weight.detach(), None if bias is None else bias.detach())
    return cast("Tensor", _Linear.apply(values, *constants, torch.empty(0, requires_grad=True)))  # type: ignore[no-untyped-call]


@final
class _Linear(torch.autograd.Function):
    """The last argument makes autograd follow an output whose input needs no gradient."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, weight: Tensor, bias: Tensor | None, _anchor: Tensor) -> Tensor:
        ctx.weight = weight
        if not weight.is_complex():
            return product(values, weight.t(), bias)
        output = torch.complex(*product(turned(values), pairs(weight).t()).chunk(2))
        return output if bias is None else output.add_(bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (gradient,), weight = gradients, ctx.weight
        if not ctx.needs_input_grad[0]:
            return None, None, None, None
        if not weight.is_complex():
            return product(gradient, weight), None, None, None
        # g conj(w) = conj(g_r w) + i conj(g_i w)
        found = torch.view_as_complex(product(planes(gradient), pairs(weight)).unflatten(1, (-1, 2)))
        of_real, of_imaginary = found.conj().chunk(2)
        return torch.add(of_real, of_imaginary, alpha=1j), None, None, None
