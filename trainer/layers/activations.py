r"""Activations without parameters, elementwise on complex tensors of any shape and on planes, and those of real networks.

A separable one applies a real function to the real and the imaginary part: on planes and on a real network's numbers, it is that
function. The others distinguish the formats by the dtype. Every gradient is finite, from z = 0 to 1e30.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor, nn

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.layers.gates import (
    COMPILED,
    WORTH_THREADS,
    Cardioid,
    FirstQuadrant,
    InvertedGaussian,
    ModRelu,
    SigLog,
    gated,
    is_plain,
    like,
    parts,
    plus_product,
)

SATURATED = 20.0
"""tanh(softplus(x)) is 1 in float64 from here on, and (1 + e^x)^4 still fits float32."""


def separable(function: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    """A real elementwise function of the real and of the imaginary part."""
    if not z.is_complex():
        return function(z)
    return torch.view_as_complex(function(torch.view_as_real(z.resolve_conj().contiguous())))


def crelu(z: Tensor) -> Tensor:
    """max(Re z, 0) + i max(Im z, 0). Trabelsi et al. 2018."""
    return separable(torch.relu, z)


def separable_sigmoid(z: Tensor) -> Tensor:
    """sigmoid(Re z) + i sigmoid(Im z), between 0 and 1 + i. Nitta 1997."""
    return separable(torch.sigmoid, z)


def separable_tanh(z: Tensor) -> Tensor:
    """tanh(Re z) + i tanh(Im z): what the tanh of Papernot et al. 2020 becomes with complex weights."""
    return separable(torch.tanh, z)


def mish(x: Tensor) -> Tensor:
    r"""x tanh(log(1 + e^x)) of real x. Misra 2019.

    With n = e^x (e^x + 2) the hyperbolic tangent is n / (n + 2): one exponential, nothing cancels. On a CPU in single precision it is one
    loop in C; its numbers may differ from those of torch's operations in the last bits.
    """
    result = _Mish.apply(x, False)
    assert isinstance(result, Tensor)
    return result


def conj_mish(z: Tensor) -> Tensor:
    r"""(1 + i) Mish(Re z) - (1 - i) Mish(Im z) = (1 + i) (Mish(Re z) + i Mish(Im z)).

    With the true Mish x tanh(log(1 + e^x)). Complex federated learning paper, eq. (6), which prints log(1 + e^x) / x there (errata C15).
    """
    result = _Mish.apply(z, True)
    assert isinstance(result, Tensor)
    return result


def zrelu(z: Tensor) -> Tensor:
    """z where Re z >= 0 and Im z >= 0 (arg z in [0, pi / 2]), else 0. Guberman 2016."""
    return gated(z, FirstQuadrant(), None)


def siglog(z: Tensor, c: float = 1.0, r: float = 1.0) -> Tensor:
    """z / (c + |z| / r), of magnitude below r; c, r > 0. Georgiou and Koutsougeras 1992."""
    _check_positive(c=c, r=r)
    return gated(z, SigLog(c, r), None)


def cardioid(z: Tensor, bias: Tensor | None = None) -> Tensor:
    r"""(1 + cos(arg z + bias)) z / 2; without bias the positive real axis passes, the negative one is stopped.

    The cosine is taken as 0 at z = 0, where the angle has no derivative; the gradient there is that of z / 2.

    Args:
      z: complex, any shape, or planes.
      bias: radians, broadcasting against Re z; None is 0.
    Source: Virtue, Yu and Lustig 2017, eq. (3); with a bias: zeta-DP paper, Table 4.
    """
    return gated(z, Cardioid(), bias)


def modrelu(z: Tensor, bias: Tensor) -> Tensor:
    r"""max(|z| + bias, 0) z / |z|: the phase is kept.

    Below |z| = 2^-20 the unit vector z / |z| is replaced by 2^20 z: with a positive bias too the function is then continuous, and its slope
    at most 1 + 2^20 bias.

    Args:
      z: complex, any shape, or planes.
      bias: broadcasting against Re z.
    Source: Arjovsky, Shah and Bengio 2016, eq. (8).
    """
    return gated(z, ModRelu(), bias)


def igaussian(z: Tensor, sigma: float = 1.0) -> Tensor:
    """(1 - exp(-|z|^2 / (2 sigma^2))) z / |z|: the phase is kept, the magnitude is below 1; sigma > 0. Virtue, Yu and Lustig 2017."""
    _check_positive(sigma=sigma)
    return gated(z, InvertedGaussian(sigma), None)


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not 0.0 < value < float("inf"):
            raise InvalidParameter(name, "a positive number", value)


@final
class _Mish(torch.autograd.Function):
    """Of real numbers; or of both parts of complex tensors or planes, turned by 1 + i."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, turned: bool) -> Tensor:
        if (looped := _looped(x, None, turned)) is not None:
            return looped
        if not turned:
            return x * _mish_gain(x)
        re, im = (part * _mish_gain(part) for part in parts(x))
        return like(x, re - im, re + im)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, bool], output: Tensor) -> None:  # noqa: ARG004
        x, ctx.turned = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor, None]:
        (x,), along = ctx.saved_tensors, cotangents[0]
        if not torch.is_grad_enabled() and (looped := _looped(x, along, ctx.turned)) is not None:
            return looped, None
        if not ctx.turned:
            return _mish_slope(x) * along, None
        (re, im), (a, b) = parts(x), parts(along)
        return like(x, _mish_slope(re) * (a + b), _mish_slope(im) * (b - a)), None


# Torch asks for it at every call, and Python would work it out anew each time.
_Mish.forward.__signature__ = inspect.signature(_Mish.forward)  # pyright: ignore[reportFunctionMemberAccess]


def _mish_gain(x: Tensor) -> Tensor:
    power = x.clamp_max(SATURATED).exp()
    n = (power + 2.0) * power
    return n / (n + 2.0)


def _mish_slope(x: Tensor) -> Tensor:
    # A large x beyond saturation would be multiplied by a slope that is only nearly 0.
    x = x.clamp_max(SATURATED)
    power = x.exp()
    n = (power + 2.0) * power
    below = n + 2.0
    # The slope of n / (n + 2) is 4 e^x (e^x + 1) / (n + 2)^2, and e^x (e^x + 1) = n - e^x.
    return plus_product(n / below, x, (n - power) / below / below, 4.0)


def _looped(x: Tensor, along: Tensor | None, turned: bool) -> Tensor | None:
    """Mish, or the pullback of a cotangent, by the loop in C; None where it can't take these numbers."""
    dtype = torch.complex64 if turned and x.is_complex() else torch.float32
    if COMPILED is None or not is_plain(x, dtype) or (along is not None and not is_plain(along, dtype)) or not (row := _row(x, turned)):
        return None
    result = torch.empty_like(x)
    if along is not None and along.stride() != x.stride():
        along = torch.empty_like(x).copy_(along)
    memory = [None if value is None else _as_it_lies(value.detach()).numpy() for value in (x, along, result)]
    COMPILED.mish(*memory, row if turned else 0, torch.get_num_threads() if x.numel() >= WORTH_THREADS else 1)
    return result


def _as_it_lies(x: Tensor) -> Tensor:
    return x if x.is_contiguous() else x.movedim(1, -1)


def _row(x: Tensor, turned: bool) -> int:
    """After how many real parts in memory as many imaginary ones follow, 0 where that isn't so; of real numbers, 1 if there are no gaps."""
    is_whole = x.is_contiguous() or (x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last))
    if not turned or x.is_complex():
        return int(is_whole)
    is_planes = is_whole and x.ndim >= 2 and x.shape[1] % 2 == 0 and x.numel() > 0
    return (x[0].numel() if x.is_contiguous() else x.shape[1]) // 2 if is_planes else 0


@final
class Elementwise(nn.Module):
    """A function of each number as a module without state."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self._function = function

    def forward(self, x: Tensor) -> Tensor:
        return self._function(x)

    def extra_repr(self) -> str:
        return getattr(self._function, "__name__", "")
