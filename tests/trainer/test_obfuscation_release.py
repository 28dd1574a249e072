"""The sound form's release: features of bounded norm, noise of the stated scale, drawn once."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy import stats
from torch import Tensor

from zetadp.mechanisms import Gaussian, RandomStream, Sensitivity
from zetadp.mechanisms.base import Adjacency
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.algorithms.obfuscation.release import ENCODINGS, check_size, clipped, release_encodings
from zetadp.trainer.errors import CheckpointRefused, TrainingStopped
from zetadp.trainer.specs.plans import FeatureReleasePlan

RECORDS, QUERIES, SIDE = 90, 3, 8
BOUND, STD = 2.0, 1.5


def plan(queries: int = QUERIES, records: int = RECORDS) -> FeatureReleasePlan:
    sensitivity = Sensitivity(l2=2.0 * BOUND, adjacency=Adjacency.REPLACE_ONE, unit="image")
    return FeatureReleasePlan(
        mechanism=Gaussian(std=STD, sensitivity=sensitivity), clipping_norm=BOUND, records=records, queries=queries, steps=10, delta=1e-5
    )


def images() -> Tensor:
    return torch.from_numpy(RandomStream.from_seed(1, "images").normal(RECORDS * SIDE * SIDE)).reshape(RECORDS, 1, SIDE, SIDE)


def features(of: Tensor) -> Tensor:
    """Of very different lengths, some below the bound."""
    return (of * torch.linspace(0.01, 1.0, len(of)).reshape(-1, 1, 1, 1)).float()


def streams(purpose: str, *_vectors: Tensor) -> RandomStream:
    return RandomStream.from_seed(7, purpose)


def ones(count: int) -> Tensor:
    return torch.ones(count, 1, SIDE, SIDE)


def released(folder: Path, of: FeatureReleasePlan | None = None) -> dict[str, Tensor]:
    release_encodings(folder, "digest", of or plan(), images(), features, ones, False, streams, lambda: None)
    return load_file(folder / ENCODINGS)


def turned_back(found: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Real and imaginary part of x e^(-i theta): noisy feature and counterpart."""
    theta = found["theta"].reshape(RECORDS, QUERIES, 1, 1, 1)
    real, imaginary = found["sent_real"].double(), found["sent_imaginary"].double()
    return real * theta.cos() + imaginary * theta.sin(), imaginary * theta.cos() - real * theta.sin()


def exactly_clipped() -> Tensor:
    """What is expected without noise, record by record, in batches as the release takes them."""
    parts = [clipped(features(part), BOUND) for part in images().split(64)]
    return torch.cat(parts).unsqueeze(1)


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 7.0, 1e30])
def test_no_clipped_feature_is_longer_than_the_bound_and_short_ones_stay(scale: float) -> None:
    rows = scale * features(images())
    found = clipped(rows, BOUND)
    exact = np.array([math.fsum(value * value for value in row) for row in found.flatten(1).tolist()])
    assert np.all(np.sqrt(exact) <= BOUND)
    short = rows.double().flatten(1).norm(dim=1) < 0.99 * BOUND
    assert torch.equal(found[short], rows[short].double())


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_feature_that_isnt_finite_counts_as_zero(bad: float) -> None:
    rows = features(images())
    rows[3, 0, 2, 2] = bad
    found = clipped(rows, BOUND)
    assert torch.equal(found[3], torch.zeros_like(found[3]))
    assert torch.equal(found[4], clipped(features(images()), BOUND)[4])


def test_turned_back_it_is_the_clipped_feature_with_noise_of_the_stated_scale(tmp_path: Path) -> None:
    noisy, counterpart = turned_back(released(tmp_path))
    noise = ((noisy - exactly_clipped()) / STD).flatten()
    # 17280 numbers: a 2 % wrong scale is 3.7 standard errors, 30 % would be seen at once.
    assert float(noise.std()) == pytest.approx(1.0, abs=0.02)
    assert stats.kstest(noise.numpy(), "norm").pvalue > 1e-3
    assert torch.allclose(counterpart, torch.ones_like(counterpart), atol=1e-5)


def test_every_query_has_noise_and_an_angle_of_its_own(tmp_path: Path) -> None:
    found = released(tmp_path)
    noise = (turned_back(found)[0] - exactly_clipped()).flatten(2)
    across = torch.corrcoef(torch.stack([noise[:, query].flatten() for query in range(QUERIES)]))
    assert float((across - torch.eye(QUERIES)).abs().max()) < 0.06
    assert len(found["theta"].unique()) == RECORDS * QUERIES
    assert stats.kstest(found["theta"].flatten().numpy() / (2.0 * math.pi), "uniform").pvalue > 1e-3


def test_the_second_attempt_draws_nothing_anew(tmp_path: Path) -> None:
    first = released(tmp_path)

    def other(purpose: str) -> RandomStream:
        return RandomStream.from_seed(8, purpose)

    watch = release_encodings(tmp_path, "digest", plan(), images(), features, ones, False, other, lambda: None)
    again = load_file(tmp_path / ENCODINGS)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert watch.numbers == 0


def test_what_an_attempt_left_half_written_is_deleted(tmp_path: Path) -> None:
    path = tmp_path / ENCODINGS
    path.parent.mkdir()
    half = path.with_name(f".{path.name}.123.tmp")
    half.write_bytes(b"half")
    released(tmp_path)
    assert not half.exists()


def test_another_runs_encodings_are_refused(tmp_path: Path) -> None:
    released(tmp_path)
    with pytest.raises(CheckpointRefused, match="another spec"):
        release_encodings(tmp_path, "other", plan(), images(), features, ones, False, streams, lambda: None)
    (tmp_path / ENCODINGS).write_bytes(b"not tensors")
    with pytest.raises(CheckpointRefused, match="isn't a file of encodings"):
        release_encodings(tmp_path, "digest", plan(), images(), features, ones, False, streams, lambda: None)


def test_a_stop_leaves_nothing(tmp_path: Path) -> None:
    def stop() -> None:
        raise TrainingStopped(10)

    with pytest.raises(TrainingStopped):
        release_encodings(tmp_path, "digest", plan(), images(), features, ones, False, streams, stop)
    assert not (tmp_path / ENCODINGS).exists()


def test_the_noise_watch_sees_every_number(tmp_path: Path) -> None:
    watch = release_encodings(tmp_path, "digest", plan(), images(), features, ones, False, streams, lambda: None)
    assert watch.is_as_claimed
    assert watch.numbers == RECORDS * QUERIES * SIDE * SIDE


def test_counterparts_have_noise_of_their_own_where_that_is_asked(tmp_path: Path) -> None:
    release_encodings(tmp_path, "digest", plan(), images(), features, ones, True, streams, lambda: None)
    noisy, counterpart = turned_back(load_file(tmp_path / ENCODINGS))
    beside, own = ((counterpart - 1.0) / STD).flatten(), ((noisy - exactly_clipped()) / STD).flatten()
    assert stats.kstest(beside.numpy(), "norm").pvalue > 1e-3
    assert abs(float(torch.corrcoef(torch.stack([beside, own]))[0, 1])) < 0.03


def test_too_large_a_file_is_refused_before_anything_is_drawn() -> None:
    with pytest.raises(InvalidParameter, match=r"method\.queries"):
        check_size(plan(queries=10**6, records=10**4), 64)
    check_size(plan(), 64)


# The plan


def test_the_plan_holds_its_sensitivity_to_twice_the_norm() -> None:
    with pytest.raises(ValueError, match="2 C"):
        FeatureReleasePlan.model_validate(plan().model_dump() | {"clipping_norm": 1.0})
    with pytest.raises(ValueError, match="replace_one"):
        FeatureReleasePlan(
            mechanism=Gaussian(std=STD, sensitivity=Sensitivity(l2=2.0 * BOUND, adjacency=Adjacency.ADD_REMOVE, unit="image")),
            clipping_norm=BOUND,
            records=3,
            queries=1,
            steps=1,
            delta=1e-5,
        )
