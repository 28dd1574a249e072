r"""Real networks make rows of real numbers again: shapes, losses and metrics of a reconstruction that has no images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.autoencoder_jobs import run, table_under
from tests.trainer.made_up import built, facts_of
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import ZetaDpSgd
from zetadp.trainer.models import losses_for
from zetadp.trainer.specs.models.layer_spec import Activation, Linear
from zetadp.trainer.specs.models.model_spec import Sequential
from zetadp.trainer.specs.models.shapes import check_model

FACTS = facts_of((3,), None, is_complex=False)


def _model(outputs: int = 3, **changes: Any) -> Sequential:
    layers = (Linear(outputs=2), Activation(name="tanh"), Linear(outputs=outputs))
    return Sequential.model_validate({"numbers": "real", "layers": layers, "head": "none"} | changes)


def test_a_real_network_that_ends_as_wide_as_the_rows_fits() -> None:
    check_model(_model(), FACTS)
    rows = torch.rand(4, 3, generator=torch.Generator().manual_seed(1))
    outputs = built(_model(), FACTS)(rows)
    assert outputs.shape == rows.shape
    assert outputs.dtype == torch.float32


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (_model(outputs=2), r"such that the output has the shape of the input real rows, \(3,\)"),
        (
            Sequential.model_validate({"numbers": "complex", "layers": (Linear(outputs=3),), "head": "none"}),
            "model.numbers must be real where real rows are reconstructed, got 'complex'",
        ),
    ],
)
def test_networks_that_dont_fit_are_refused(model: Sequential, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        check_model(model, FACTS)


def test_losses_are_mean_squared_errors_of_each_row_by_itself() -> None:
    outputs, rows = torch.tensor([[0.0, 1.0, 1.0], [0.5, 0.5, 0.5]]), torch.tensor([[0.0, 0.0, 1.0], [0.5, 0.5, 0.2]])
    assert losses_for(FACTS)(outputs, rows).tolist() == pytest.approx([1.0 / 3.0, 0.03])


def test_a_private_training_of_rows_runs_and_is_scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ZetaDpSgd.model_validate(
        {
            "data": table_under(tmp_path, monkeypatch),
            "model": _model().model_dump(),
            "optimizer": {"kind": "adam", "learning_rate": 0.02},
            "privacy": {"adjacency": "add_remove", "unit": "record", "delta": 1e-4, "noise_multiplier": 1.0},
            "clipping_bound": 1.0,
            "expected_batch_size": 30,
            "steps": 5,
            "reproducible": True,
            "seed": 1,
            "evaluation": {"kind": "public_held_out"},
        }
    )
    report = run(spec, tmp_path / "job")
    assert report.metrics is not None
    assert report.metrics.keys() == {"score", "score_all_zero", "score_column_means"}
