r"""Gated activations g(z) z with a real gain g, written once on (re, im) pairs, with their derivatives, for native tensors and planes.

By hand, for three reasons: autograd's own chain divides 0 by 0 at z = 0; it keeps every intermediate result, this only the input; and it
takes about twice the time. |z| is ``hypot``, which neither overflows nor underflows; below the smallest normal number it is taken
as that number, so that every quotient is finite. For a cotangent (a, b) of the output, p = a Re z/|z| + b Im z/|z| is its part along z.

The cardioid of native tensors in single precision has a loop in C besides, five times as fast, and the same bits without a compiler.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, final

import torch
from torch import Tensor

from zetadp.trainer.layers.planes import join, split

MODRELU_FLOOR = 2.0**-20
"""Below this magnitude modReLU's z/|z| goes to 0 in proportion to |z|: with a positive bias it would jump at 0, with no bounded slope."""

FARTHEST = 1e4
"""Magnitudes over this many standard deviations have the same inverted Gaussian: exp(-FARTHEST^2 / 2) is 0 in float64 too."""

HALF = {dtype: torch.tensor(0.5, dtype=dtype) for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)}
"""Made beforehand: making a tensor takes as long as adding it to a small one."""


WORTH_THREADS = 2**17
"""Numbers from which on a loop in C shares them out: below, starting threads takes as long."""


def compiled(name: str) -> Any:
    """A C module of this folder; None if there was no compiler."""
    try:
        return import_module(f"zetadp.trainer.layers.{name}")
    except ImportError:
        return None


COMPILED: Any = compiled("_gates")
"""The C module; None if there was no compiler."""


class Gate(Protocol):
    """One gated activation. ``bias`` is None, or broadcasts against the parts."""

    def gain(self, re: Tensor, im: Tensor, bias: Tensor | None) -> Tensor:
        """g, of the parts' shape."""
        ...

    def pullback(self, re: Tensor, im: Tensor, a: Tensor, b: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """The gradient of a Re(g z) + b Im(g z) in Re z, in Im z and, elementwise and of the parts' shape, in the bias."""
        ...


def gated(z: Tensor, gate: Gate, bias: Tensor | None) -> Tensor:
    """g(z) z of a complex tensor of any shape, or of planes; ``bias`` broadcasts against the real part."""
    result = _Gated.apply(z, bias, gate)
    assert isinstance(result, Tensor)
    return result


def parts(z: Tensor) -> tuple[Tensor, Tensor]:
    """Real and imaginary part of either format, laid out so that the kernels that follow run over unbroken memory."""
    if z.is_complex():
        return z.real.contiguous(), z.imag.contiguous()
    re, im = split(z)
    # In the channels-last layout a part has gaps; ``clone`` keeps the order of the axes and closes them.
    return (re, im) if z.is_contiguous() else (re.clone(), im.clone())


def like(z: Tensor, re: Tensor, im: Tensor) -> Tensor:
    """The parts in the format of z."""
    return torch.complex(re, im) if z.is_complex() else join(re, im)


def plus_product(fresh: Tensor, x: Tensor, y: Tensor, factor: float = 1.0) -> Tensor:
    """fresh + factor x y, in the memory of ``fresh``, which nobody else holds, where no derivative of it can be requested."""
    # torch.func always asks (and has no batching rule for the operation in place); an ordinary backward pass doesn't.
    return fresh.addcmul(x, y, value=factor) if torch.is_grad_enabled() else fresh.addcmul_(x, y, value=factor)


@final
class _Gated(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(z: Tensor, bias: Tensor | None, gate: Gate) -> Tensor:
        if _is_plain_cardioid(gate, bias, z):
            return _cardioid(z)
        re, im = parts(z)
        gain = gate.gain(re, im, bias)
        if z.is_complex():
            return torch.complex(re * gain, im * gain)
        return (z.unflatten(1, (2, -1)) * gain.unsqueeze(1)).flatten(1, 2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor | None, Gate], output: Tensor) -> None:  # noqa: ARG004
        z, bias, ctx.gate = inputs
        ctx.save_for_backward(z, bias)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor, Tensor | None, None]:
        z, bias = ctx.saved_tensors
        if not torch.is_grad_enabled() and _is_plain_cardioid(ctx.gate, bias, z, cotangents[0]):
            return _cardioid_pullback(z, cotangents[0]), None, None
        re, im, slopes = ctx.gate.pullback(*parts(z), *parts(cotangents[0]), bias)
        return like(z, re, im), None if slopes is None else slopes.sum_to_size(bias.shape), None


def _is_plain_cardioid(gate: Gate, bias: Tensor | None, *values: Tensor) -> bool:
    return bias is None and type(gate) is Cardioid and all(is_plain(value, torch.complex64) and value.is_contiguous() for value in values)


def is_plain(value: Tensor, dtype: torch.dtype) -> bool:
    """Whether loops may take its memory. What torch.func wraps, and what is traced, needs operations that torch knows."""
    return (
        type(value) is Tensor
        and value.dtype == dtype
        and value.device.type == "cpu"
        and not value.is_conj()
        and not value.is_neg()
        and not torch._C._functorch.is_functorch_wrapped_tensor(value)  # pyright: ignore[reportAttributeAccessIssue]
        and not torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage]
    )


def _cardioid(z: Tensor) -> Tensor:
    if COMPILED is None:
        gain, re, im = _direction(z)[0] * 0.5 + 0.5, z.real, z.imag
        return torch.complex(gain * re, gain * im)
    result = torch.empty_like(z)
    COMPILED.cardioid(z.detach().numpy(), result.numpy())
    return result


def _cardioid_pullback(z: Tensor, slope: Tensor) -> Tensor:
    if COMPILED is None:
        (u, w), (a, b) = _direction(z), parts(slope)
        gain, across = u * 0.5 + 0.5, (a * u + b * w) * 0.5 * w
        return torch.complex(gain * a + across * w, gain * b - across * u)
    result = torch.empty_like(z)
    COMPILED.cardioid_pullback(z.detach().numpy(), slope.detach().numpy(), result.numpy())
    return result


def _direction(z: Tensor) -> tuple[Tensor, Tensor]:
    """The parts of z / |z|, 0 at z = 0, by the operations of the loop: first by the larger part, then by what is left of the length."""
    re, im = parts(z)
    larger = torch.maximum(re.abs(), im.abs()).clamp_min_(torch.finfo(re.dtype).tiny)
    u, w = re / larger, im / larger
    # Rounded from double precision: torch leaves float32 roots to a library that errs in the last bit.
    inverse = (u * u + w * w).double().sqrt_().to(re.dtype).clamp_min_(1.0).reciprocal_()
    return u * inverse, w * inverse


# Torch asks for it at every call, and Python would work it out anew each time: a tenth of a small network's forward pass.
_Gated.forward.__signature__ = inspect.signature(_Gated.forward)  # pyright: ignore[reportFunctionMemberAccess]


def _polar(re: Tensor, im: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """|z|, Re z/|z| and Im z/|z|, the last two 0 at z = 0."""
    length = torch.hypot(re, im).clamp_min(torch.finfo(re.dtype).tiny)
    return length, re / length, im / length


def _half_of_one_plus(cosine: Tensor) -> Tensor:
    """(1 + cosine) / 2 in one pass over memory."""
    return torch.add(HALF[cosine.dtype], cosine, alpha=0.5)


def _turned(gain: Tensor, a: Tensor, b: Tensor, along: Tensor, u: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """The two parts of gain (a, b) + along (u, w)."""
    return plus_product(gain * a, along, u), plus_product(gain * b, along, w)


@final
@dataclass(frozen=True)
class Cardioid:
    """(1 + cos(arg z + bias)) / 2."""

    def gain(self, re: Tensor, im: Tensor, bias: Tensor | None) -> Tensor:
        length = torch.hypot(re, im).clamp_min_(torch.finfo(re.dtype).tiny)
        return _half_of_one_plus(re / length if bias is None else (re * bias.cos() - im * bias.sin()) / length)

    def pullback(self, re: Tensor, im: Tensor, a: Tensor, b: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        length, u, w = _polar(re, im)
        cosine, sine = (u, w) if bias is None else (u * bias.cos() - w * bias.sin(), u * bias.sin() + w * bias.cos())
        across, gain = plus_product(a * u, b, w) * sine, _half_of_one_plus(cosine)
        slopes = None if bias is None else across * length * -0.5
        # The gain's derivative is sine / (2 |z|) across z, along (w, -u).
        return plus_product(gain * a, across, w, 0.5), plus_product(gain * b, across, u, -0.5), slopes


@final
@dataclass(frozen=True)
class ModRelu:
    """max(|z| + bias, 0) / |z|."""

    def gain(self, re: Tensor, im: Tensor, bias: Tensor | None) -> Tensor:
        assert bias is not None  # the function and the module always give one
        length = torch.hypot(re, im)
        return torch.relu(length + bias) / length.clamp_min(MODRELU_FLOOR)

    def pullback(self, re: Tensor, im: Tensor, a: Tensor, b: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        assert bias is not None
        length, u, w = _polar(re, im)
        floored = length.clamp_min(MODRELU_FLOOR)
        rectified = torch.relu(length + bias)
        # |z| over the floored |z| is 1 from the floor on; |z| times the gain's derivative is that, less the gain where the floor isn't met.
        share = length / floored
        slope, gain = share * (rectified > 0), rectified / floored
        along = plus_product(a * u, b, w)
        return *_turned(gain, a, b, along * (slope - gain * (share >= 1.0)), u, w), along * slope


@final
@dataclass(frozen=True)
class InvertedGaussian:
    """(1 - exp(-|z|^2 / (2 sigma^2))) / |z|."""

    sigma: float

    def gain(self, re: Tensor, im: Tensor, bias: Tensor | None) -> Tensor:
        assert bias is None
        length = torch.hypot(re, im).clamp_min_(torch.finfo(re.dtype).tiny)
        return -torch.expm1((length / self.sigma).clamp_max(FARTHEST).square() * -0.5) / length

    def pullback(self, re: Tensor, im: Tensor, a: Tensor, b: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        assert bias is None
        length, u, w = _polar(re, im)
        scaled = (length / self.sigma).clamp_max(FARTHEST)
        missing = torch.expm1(scaled.square() * -0.5)
        gain = -missing / length
        # The magnitude's slope, |z| / sigma^2 exp(...), less the gain: |z| times the gain's derivative.
        excess = (missing + 1.0).mul_(scaled).mul_(1.0 / self.sigma).sub_(gain)
        return *_turned(gain, a, b, plus_product(a * u, b, w) * excess, u, w), None


@final
@dataclass(frozen=True)
class SigLog:
    """1 / (c + |z| / r)."""

    c: float
    r: float

    def gain(self, re: Tensor, im: Tensor, bias: Tensor | None) -> Tensor:
        assert bias is None
        return (torch.hypot(re, im) / self.r + self.c).reciprocal()

    def pullback(self, re: Tensor, im: Tensor, a: Tensor, b: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        gain = self.gain(re, im, bias)
        _, u, w = _polar(re, im)
        # The gain's derivative is -gain^2 / r; gain times z stays below r where gain^2 would underflow.
        along = plus_product(a * u, b, w) * gain * (-1.0 / self.r)
        return *_turned(gain, a, b, along, re * gain, im * gain), None


@final
@dataclass(frozen=True)
class FirstQuadrant:
    """1 where Re z >= 0 and Im z >= 0, else 0."""

    def gain(self, re: Tensor, im: Tensor, bias: Tensor | None) -> Tensor:
        assert bias is None
        return ((re >= 0) & (im >= 0)).to(re.dtype)

    def pullback(self, re: Tensor, im: Tensor, a: Tensor, b: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        gain = self.gain(re, im, bias)
        return gain * a, gain * b, None
