r"""What is made of released rows: estimates that the noise's known variance makes better, of the released rows alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from zetadp.mechanisms import LocalLaplace, Sensitivity
from zetadp.mechanisms.base import Adjacency
from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.engine import TorchSource
from zetadp.trainer.engine.autoencoders import column_means, denoised
from zetadp.trainer.specs.denoising import AsReleased, Clamped, Shrunk

N, ROWS = 14, 457
MEANS = torch.linspace(0.05, 0.7, N, dtype=torch.float64)


def _mechanism(epsilon: float, dimension: int = N) -> LocalLaplace:
    sensitivity = Sensitivity(l1=float(dimension), adjacency=Adjacency.REPLACE_ONE, unit="day")
    return LocalLaplace(lower=0.0, upper=1.0, dimension=dimension, scale=dimension / epsilon, sensitivity=sensitivity)


def _released(epsilon: float, seed: int) -> Tensor:
    """Rows whose columns have ``MEANS``, each released."""
    rows = MEANS.expand(ROWS, N)
    return _mechanism(epsilon).release(rows, TorchSource(RandomStream.from_seed(seed, "rows"), rows.device))


def test_rows_can_be_taken_as_they_were_released() -> None:
    released = _released(5.0, 1)
    assert denoised(released, _mechanism(5.0), AsReleased()) is released


def test_clamped_rows_lie_in_the_box_and_are_the_released_ones_there() -> None:
    released = _released(5.0, 1)
    clamped = denoised(released, _mechanism(5.0), Clamped())
    assert clamped.min() == 0.0
    assert clamped.max() == 1.0
    inside = (released > 0.0) & (released < 1.0)
    assert torch.equal(clamped[inside], released[inside])


@pytest.mark.parametrize("epsilon", [1.0, 4.0, 10.0])
def test_means_by_james_and_stein_are_nearer_than_the_released_ones(epsilon: float) -> None:
    plain, drawn = [], []
    for seed in range(40):
        released = _released(epsilon, seed)
        plain.append((released.mean(dim=0) - MEANS).square().mean().item())
        drawn.append((column_means(released, _mechanism(epsilon)) - MEANS).square().mean().item())
    assert np.mean(drawn) < np.mean(plain)
    if epsilon == 1.0:
        # There noise is most of what columns differ by.
        assert np.mean(drawn) < 0.4 * np.mean(plain)


def test_with_little_noise_the_means_are_the_rows_own() -> None:
    assert torch.allclose(column_means(_released(1e6, 3), _mechanism(1e6)), MEANS, atol=1e-5)


def test_a_single_column_is_drawn_to_the_centre_of_the_box() -> None:
    released, mechanism = torch.tensor([[0.25], [1.75]], dtype=torch.float64), _mechanism(1.0, 1)
    # A uniform prior has variance 1/12, the mean of two rows noise of 2 b^2 / 2 = 1.
    assert column_means(released, mechanism).tolist() == pytest.approx([0.5 + (1.0 / 12.0) / (1.0 / 12.0 + 1.0) * 0.5])


def test_shrunk_rows_keep_the_means_and_the_asked_spread() -> None:
    released, mechanism = _released(2.0, 5), _mechanism(2.0)
    rows = denoised(released, mechanism, Shrunk(spread=0.02))
    means = column_means(released, mechanism)
    kept = (rows > 0.0) & (rows < 1.0)
    factor = 0.02 / mechanism.worst_variance**0.5
    assert torch.allclose(rows[kept], (means + factor * (released - means))[kept], rtol=1e-12)
    # Laplace's kurtosis of 6: a standard error of 2.5 % / sqrt(14) in the mean of columns.
    inner = (means > 0.2) & (means < 0.8)
    assert rows[:, inner].std(dim=0).mean().item() == pytest.approx(0.02, rel=0.1)


def test_rows_with_less_noise_than_the_spread_are_left_as_they_are() -> None:
    released = _released(1e6, 7)
    assert torch.allclose(denoised(released, _mechanism(1e6), Shrunk(spread=1.0)), released, rtol=1e-9)


def test_under_a_tiny_epsilon_the_rows_make_no_difference() -> None:
    mechanism, outcomes = _mechanism(1e-6), list[Tensor]()
    for rows in (MEANS.expand(ROWS, N), 1.0 - MEANS.expand(ROWS, N)):
        source = TorchSource(RandomStream.from_seed(9, "rows"), rows.device)
        released = mechanism.release(rows, source)
        outcomes.append(denoised(released, mechanism, Shrunk(spread=0.2)))
    assert torch.allclose(outcomes[0], outcomes[1], atol=1e-5)


def test_noise_alone_doesnt_choose_the_mean_of_all_columns() -> None:
    centres = [column_means(_released(1e-6, seed), _mechanism(1e-6)).mean().item() for seed in range(20)]
    # Of columns' means that noise drew apart some are clamped; without the prior every centre would be at an end of the box.
    assert np.mean([0.2 < centre < 0.8 for centre in centres]) > 0.9
