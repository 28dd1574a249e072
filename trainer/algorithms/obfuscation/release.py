r"""The sound form's release: clipped features of the protected records with Gaussian noise, each query drawn once and never again.

Proof: mechanisms/proofs/feature_release.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Literal, final

import torch
from pydantic import ValidationError
from torch import Tensor

from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.engine import NoiseWatch, TorchSource
from zetadp.trainer.engine.checkpoint import discard_unfinished, read_tensors, write_tensors
from zetadp.trainer.engine.noise.randomness import Streams, write_down
from zetadp.trainer.engine.noise.run_key import ONCE
from zetadp.trainer.errors import CheckpointRefused
from zetadp.trainer.specs.plans import FeatureReleasePlan

ENCODINGS = "artifacts/encodings.safetensors"
"""In the run's folder: ``sent_real``, ``sent_imaginary``, float32 (records, queries, *feature), ``theta``, float64 (records, queries)."""

NO_ENCODINGS = "it is damaged, or it isn't a file of encodings of this version"

MARGIN = 2.0**-20
"""Relative: rounding of a norm of fewer than 2^30 numbers in float64 stays below it."""

LARGEST_FILE = 4 * 2**30
BYTES = 8
"""Bytes of one complex number as stored."""

RECORDS_AT_ONCE = 64


@final
class EncodingsHeader(Value):
    """Metadata of the file; ``digest``: of spec, plan and data, so that no other run mistakes these encodings for its own."""

    format: Literal["zetadp encodings 1"] = "zetadp encodings 1"
    digest: str


def check_size(plan: FeatureReleasePlan, coordinates: int) -> None:
    """Raises InvalidParameter if all encodings together are too large for a file; ``coordinates``: of one feature."""
    size = plan.records * plan.queries * coordinates * BYTES
    if size > LARGEST_FILE:
        raise InvalidParameter("method.queries", f"such that all encodings together take at most {LARGEST_FILE} bytes", size)


def clipped(features: Tensor, bound: float) -> Tensor:
    r"""Each record's feature, scaled down to l2 norm ``bound`` where it is longer; one that isn't finite counts as zero.

    Args:
      features: real (records, *feature).
    Returns:
      float64, of the same shape, each of norm at most ``bound``, rounding included.

    >>> clipped(torch.tensor([[3.0, 4.0], [0.0, 0.5], [math.inf, 1.0]]), 1.0)[1:].tolist()
    [[0.0, 0.5], [0.0, 0.0]]
    """
    flat = features.to(torch.float64).flatten(1)
    flat = torch.where(flat.isfinite().all(dim=1, keepdim=True), flat, torch.zeros_like(flat))
    norms = torch.linalg.vector_norm(flat, dim=1, keepdim=True)
    scale = (bound * (1.0 - MARGIN) / norms.clamp_min(torch.finfo(torch.float64).tiny)).clamp_max(1.0)
    return (flat * scale).reshape(features.shape)


def release_encodings(
    workdir: Path,
    digest: str,
    plan: FeatureReleasePlan,
    images: Tensor,
    features: Callable[[Tensor], Tensor],
    counterparts: Callable[[int], Tensor],
    noisy_counterparts: bool,
    streams: Streams,
    tick: Callable[[], None],
) -> NoiseWatch:
    r"""Writes every query of every record to ``ENCODINGS``, unless an earlier attempt did: x = e^(i theta) ((clip(a) + noise) + i b).

    The file is whole and durable before anything about it is published. If an attempt lost a draw before that, nobody saw it.

    Args:
      images: of the protected records, (records, channels, height, width).
      features: a = g(I) of some of them.
      counterparts: gives this many public or made-up features, float32.
      noisy_counterparts: whether these get noise of the same deviation.
      streams: noise and angles come from these.
      tick: called between batches; raises to stop.
    Returns:
      what was seen of the noise, nothing if the file already existed.
    Raises:
      CheckpointRefused: the file is damaged, or belongs to another run.
    """
    path = workdir / ENCODINGS
    discard_unfinished(path)
    watch = NoiseWatch(plan.mechanism)
    if path.exists():
        _check(path, digest)
        return watch
    angles = streams("angles of the encodings").uniform(plan.records * plan.queries)
    theta = 2.0 * math.pi * torch.from_numpy(angles).reshape(plan.records, plan.queries)
    real: list[Tensor] = []
    imaginary: list[Tensor] = []
    for start in range(0, plan.records, RECORDS_AT_ONCE):
        tick()
        safe = clipped(features(images[start : start + RECORDS_AT_ONCE]).cpu(), plan.clipping_norm)
        # One vector for all queries of these records: each is a separate release with its own noise.
        rows = safe.unsqueeze(1).expand(-1, plan.queries, *safe.shape[1:])
        source = TorchSource(streams(f"noise of the encodings from {start}", rows), rows.device)
        noisy = plan.mechanism.release(rows.contiguous(), source)
        watch.see(rows, noisy)
        beside = counterparts(len(rows) * plan.queries).cpu().to(torch.float64).reshape(rows.shape)
        if noisy_counterparts:
            beside += plan.mechanism.noise(tuple(beside.shape), source)
        turn = theta[start : start + RECORDS_AT_ONCE].reshape(*rows.shape[:2], *(1 for _ in safe.shape[1:]))
        cosine, sine = turn.cos(), turn.sin()
        real.append((noisy * cosine - beside * sine).float())
        imaginary.append((noisy * sine + beside * cosine).float())
    tensors = {"sent_real": torch.cat(real), "sent_imaginary": torch.cat(imaginary), "theta": theta}
    write_down(ONCE, list(tensors.values()))
    write_tensors(path, tensors, EncodingsHeader(digest=digest).model_dump_json())
    return watch


def _check(path: Path, digest: str) -> None:
    text, _ = read_tensors(path, NO_ENCODINGS)
    try:
        header = EncodingsHeader.model_validate_json(text)
    except ValidationError as error:
        raise CheckpointRefused(path.name, NO_ENCODINGS) from error
    if header.digest != digest:
        raise CheckpointRefused(path.name, "it was written for another spec, plan or data set")
