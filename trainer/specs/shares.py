r"""The grid on which a plan's shares of noise are, from public numbers alone. Free of torch."""

from __future__ import annotations

from zetadp.mechanisms.sampling.shares import ShareGrid
from zetadp.trainer.specs.execution_plan import ExecutionPlan


def share_grid(plan: ExecutionPlan, numbers: int) -> ShareGrid:
    r"""Proof: mechanisms/proofs/shared_noise.md.

    Args:
      plan: with secure aggregation.
      numbers: real numbers of a release.
    Raises:
      InvalidParameter: the noise is too large for its sensitivity and so many numbers.
    """
    assert plan.aggregation is not None  # of such a plan
    sampling = plan.sampling
    return ShareGrid.of(
        std=plan.mechanism.noise_scale,
        distance=plan.mechanism.least_distance(),
        numbers=numbers,
        parties=sampling.nodes,
        honest=plan.aggregation.honest(sampling.nodes),
        bound=plan.clipping.sensitivity,
        expected=float(sampling.expected_batch_size * sampling.nodes),
    )
