r"""Products of float32 in float32, and sums of half precision in float32: no short cut inside a clip, whatever the process has set.

A product in TF32 rounds each factor by up to 2^-11, in bfloat16 by 2^-9, which the proof of clipping's margin doesn't count: a norm that is
too small lets a gradient longer than the bound pass. Libraries take such short cuts where the process allows them, for GPUs and for
processors with bfloat16 units, and choose among algorithms by timing: then a unit's last bits differ from step to step.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, cast, final

import torch

from zetadp.trainer.layers.products import PROCESSOR, is_intels

if not is_intels(PROCESSOR):
    # Read at the first product: else, on AMD's processors, Intel's library multiplies small matrices in an order that depends on where in
    # memory they begin, and a unit's norm had other bits at other places of a microbatch. It takes no more time there.
    os.environ.setdefault("MKL_CBWR", "AUTO")

Read = Callable[[str, str], str]
Write = Callable[[str, str, str], str]

_C: Any = torch._C
# torch's own functions and attributes read and write by these, ten times as slowly: each clip asks for all of them.
_precision, _set_precision = cast("Read", _C._get_fp32_precision_getter), cast("Write", _C._set_fp32_precision_setter)

OPERATIONS: Final = tuple((backend, operation) for backend in ("cuda", "mkldnn") for operation in ("matmul", "conv", "rnn"))
"""Kinds of products that torch lets a process shorten, by library."""

WHOLE: Final = "ieee"


@final
class WholeProducts:
    r"""A context without short cuts, which leaves the process's settings as they were.

    >>> torch.set_float32_matmul_precision("medium")
    >>> with WholeProducts():
    ...     torch.get_float32_matmul_precision(), torch.backends.cuda.matmul.fp32_precision
    ('highest', 'ieee')
    >>> torch.get_float32_matmul_precision(), torch.backends.cuda.matmul.fp32_precision
    ('medium', 'tf32')
    >>> torch.set_float32_matmul_precision("highest")
    """

    def __enter__(self) -> None:
        self._before = settings()
        if self._before != SETTINGS:
            put(SETTINGS)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._before != SETTINGS:
            put(self._before)


Settings = tuple[object, ...]
"""What ``torch.get_float32_matmul_precision`` says (None where torch refuses to); a precision for each of ``OPERATIONS``; whether sums of
half precision, of bfloat16 and in half precision may be narrow; whether cuDNN times its algorithms, and takes only those that give the same
bits each time."""

SETTINGS: Final[Settings] = ("highest", *(WHOLE for _ in OPERATIONS), (False, False), (False, False), False, False, True)


def settings() -> Settings:
    """The process's own."""
    try:
        matmul = _C._get_float32_matmul_precision()
    except RuntimeError:
        matmul = None  # set operation by operation, to what one word doesn't say
    return (
        matmul,
        *(_precision(*operation) for operation in OPERATIONS),
        _C._get_cublas_allow_fp16_reduced_precision_reduction(),
        _C._get_cublas_allow_bf16_reduced_precision_reduction(),
        _C._get_cublas_allow_fp16_accumulation(),
        _C._get_cudnn_benchmark(),
        _C._get_cudnn_deterministic(),
    )


def put(wanted: Settings) -> None:
    """Makes these the process's."""
    matmul, *precisions = wanted[: 1 + len(OPERATIONS)]
    # First: these set precisions too, and torch refuses to say what they are where they don't fit together.
    if matmul is not None:
        _C._set_float32_matmul_precision(matmul)
    _C._set_cudnn_allow_tf32("tf32" in precisions[1:3])
    for (backend, operation), precision in zip(OPERATIONS, precisions, strict=True):
        _set_precision(backend, operation, cast("str", precision))
    half, bfloat, accumulation, benchmark, deterministic = wanted[-5:]
    _C._set_cublas_allow_fp16_reduced_precision_reduction(*cast("tuple[bool, bool]", half))
    _C._set_cublas_allow_bf16_reduced_precision_reduction(*cast("tuple[bool, bool]", bfloat))
    _C._set_cublas_allow_fp16_accumulation(accumulation)
    _C._set_cudnn_benchmark(benchmark)
    _C._set_cudnn_deterministic(deterministic)
