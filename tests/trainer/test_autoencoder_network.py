r"""A distributed autoencoder's closed forms against torch's own derivatives, encoder by encoder."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from zetadp.mechanisms.analysis.taylor import loss as exact_loss
from zetadp.mechanisms.analysis.taylor import polynomial
from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.data import DigitsImages
from zetadp.trainer.engine import TrainingState, initial_state
from zetadp.trainer.engine.autoencoders import SLOPES, Autoencoder, HeldOutRows, RowDescent, initial_parameters
from zetadp.trainer.engine.metrics import row_metrics
from zetadp.trainer.errors import TrainingDiverged
from zetadp.trainer.specs.algorithms.spof import Spof
from zetadp.trainer.specs.autoencoder import AutoencoderShape, LossName
from zetadp.trainer.specs.descent import Adam, Sgd

SHAPE = AutoencoderShape(encoders=3, features=5, hidden=2)
ROWS = 7


def _network() -> Autoencoder:
    return Autoencoder.of(SHAPE, torch.device("cpu"))


def _numbers(count: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=count)).to(dtype)


def _batch() -> tuple[Tensor, Tensor]:
    """Rows and places; encoder 2 gets none of them."""
    rows = torch.from_numpy(np.random.default_rng(1).uniform(size=(ROWS, 5)))
    return rows, torch.tensor([0, 1, 1, 0, 1, 0, 1])


def _loss(name: LossName, logits: Tensor, targets: Tensor) -> Tensor:
    """The whole rows' losses, (rows,), from their formulas."""
    if name == "cross_entropy":
        return (torch.nn.functional.softplus(logits) - targets * logits).sum(dim=1)
    return (np.log(2.0) + (0.5 - targets) * logits + logits.square() / 8.0).sum(dim=1)


def _one_by_one(parameters: Tensor, rows: Tensor, places: Tensor) -> Tensor:
    """Logits as the paper writes them: z = What_j^T sigmoid(W_j^T x)."""
    encoders, decoder = parameters.split(SHAPE.weights)
    encoders, decoder = encoders.view(3, 5, 2), decoder.view(3, 2, 5)
    return torch.stack([decoder[j].T @ torch.sigmoid(encoders[j].T @ x) for x, j in zip(rows, places.tolist(), strict=True)])


def test_forward_is_the_papers_network() -> None:
    network, (rows, places) = _network(), _batch()
    parameters = _numbers(SHAPE.coordinates, 2)
    found = network.forward(parameters, rows, network.masks_of(places).double())
    assert torch.allclose(found.logits, _one_by_one(parameters, rows, places), rtol=1e-12)


@pytest.mark.parametrize("name", ["cross_entropy", "taylor"])
def test_gradient_is_torchs_of_the_mean_loss(name: LossName) -> None:
    network, (rows, places) = _network(), _batch()
    parameters = _numbers(SHAPE.coordinates, 3).requires_grad_()
    expected = torch.autograd.grad(_loss(name, _one_by_one(parameters, rows, places), rows).mean(), parameters)[0]
    found = network.gradient(parameters.detach(), rows, rows, network.masks_of(places).double(), SLOPES[name])
    assert torch.allclose(found, expected, rtol=1e-10, atol=1e-14)


def test_an_encoder_without_rows_gets_no_gradient() -> None:
    network, (rows, places) = _network(), _batch()
    gradient = network.gradient(_numbers(SHAPE.coordinates, 4), rows, rows, network.masks_of(places).double(), SLOPES["taylor"])
    parts = network.split(gradient)
    assert not parts["encoders"][2].any()
    assert not parts["decoder"][2].any()
    assert parts["encoders"][:2].all()


def test_slopes_are_the_losses_derivatives() -> None:
    logits = torch.tensor([-2.0, -0.3, 0.0, 1.7], dtype=torch.float64)
    targets = torch.tensor([0.0, 0.9, 0.4, 1.0], dtype=torch.float64)
    step = 1e-5
    for name, formula in (("cross_entropy", exact_loss), ("taylor", lambda x, z: polynomial(x, z, 0.0))):
        expected = [
            (formula(x, z + step) - formula(x, z - step)) / (2.0 * step) for x, z in zip(targets.tolist(), logits.tolist(), strict=True)
        ]
        assert SLOPES[name](logits, targets).tolist() == pytest.approx(expected, abs=1e-9)  # type: ignore[index]


def test_initial_weights_are_of_the_stream_and_public_constants_alone() -> None:
    spec = Spof.example()
    shape = AutoencoderShape(encoders=2, features=64, hidden=16)
    first, again = (initial_parameters(spec, shape, RandomStream.from_seed(5, "weights")) for _ in range(2))
    assert torch.equal(first, again)
    encoders, decoder = first.split(shape.weights)
    # Six standard errors of a standard deviation of 2048 numbers are 9 %.
    assert encoders.std().item() == pytest.approx(1.0 / 8.0, rel=0.1)
    assert decoder.std().item() == pytest.approx(1.0 / 4.0, rel=0.1)


def test_stabilisation_is_a_constant_on_the_decoder() -> None:
    document = Spof.example().model_dump() | {"stabilisation": 2.5}
    shape = AutoencoderShape(encoders=2, features=64, hidden=16)
    with_it = initial_parameters(Spof.model_validate(document), shape, RandomStream.from_seed(5, "weights"))
    without = initial_parameters(Spof.example(), shape, RandomStream.from_seed(5, "weights"))
    difference = (with_it - without).split(shape.weights)
    assert not difference[0].any()
    assert torch.allclose(difference[1], torch.tensor(2.5), rtol=1e-5)


def test_held_out_rows_are_dealt_in_turn() -> None:
    network = _network()
    rows = torch.from_numpy(np.random.default_rng(8).uniform(size=(4, 5))).float()
    parameters = _numbers(SHAPE.coordinates, 9, torch.float32)
    outputs = torch.sigmoid(_one_by_one(parameters, rows, torch.tensor([0, 1, 2, 0])))
    assert HeldOutRows(network, rows).metrics(parameters, 1) == pytest.approx(row_metrics(outputs.numpy(), rows.numpy()), rel=1e-6)


def test_outputs_that_arent_finite_end_the_run() -> None:
    network = _network()
    parameters = torch.full((SHAPE.coordinates,), torch.nan)
    with pytest.raises(TrainingDiverged, match="stopped being finite at step 4"):
        HeldOutRows(network, torch.full((2, 5), 0.5)).metrics(parameters, 4)


def _descent(batch_size: int, steps: int = 6) -> RowDescent:
    rows, places = _batch()
    return RowDescent(
        network=_network(),
        inputs=rows.float(),
        targets=rows.float(),
        places=places,
        slopes_of=SLOPES["cross_entropy"],
        optimizer=Sgd(learning_rate=1.0),
        batch_size=batch_size,
        steps=steps,
    )


def _start() -> TrainingState:
    parameters = _numbers(SHAPE.coordinates, 6, torch.float32)
    return TrainingState(0, parameters, initial_state(Sgd(learning_rate=1.0), parameters), 1.0)


def test_every_row_is_used_once_in_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []

    def watched(self: Autoencoder, parameters: Tensor, inputs: Tensor, *_others: object) -> Tensor:
        del self
        seen.append(inputs)
        return torch.zeros_like(parameters)

    monkeypatch.setattr(Autoencoder, "gradient", watched)
    descent, state = _descent(batch_size=3), _start()
    for _ in range(6):
        state = descent.step(state)
    assert [len(inputs) for inputs in seen] == [3, 3, 1] * 2
    rows = sorted(_batch()[0].float().tolist())
    for epoch in (seen[:3], seen[3:]):
        assert sorted(torch.cat(epoch).tolist()) == rows
    assert torch.cat(seen[:3]).tolist() != torch.cat(seen[3:]).tolist()


def test_a_run_taken_up_in_the_middle_of_an_epoch_goes_on_with_the_same_batches() -> None:
    whole, state = _descent(batch_size=3), _start()
    states = [state]
    for _ in range(6):
        states.append(whole.step(states[-1]))
    resumed = _descent(batch_size=3)
    state = states[2]
    for expected in states[3:]:
        state = resumed.step(state)
        assert torch.equal(state.parameters, expected.parameters)


def test_descent_lowers_the_loss() -> None:
    images = torch.from_numpy(DigitsImages(split_seed=0, test_fraction=0.2).read().training_features)[:200]
    shape = AutoencoderShape(encoders=2, features=64, hidden=16)
    network, optimizer = Autoencoder.of(shape, torch.device("cpu")), Adam(learning_rate=0.02)
    parameters = initial_parameters(Spof.example(), shape, RandomStream.from_seed(1, "weights"))
    descent = RowDescent(
        network=network,
        inputs=images,
        targets=images,
        places=torch.arange(200) % 2,
        slopes_of=SLOPES["cross_entropy"],
        optimizer=optimizer,
        batch_size=50,
        steps=400,
    )
    state = TrainingState(0, parameters, initial_state(optimizer, parameters), 1.0)
    while state.step < 400:
        state = descent.step(state)
    found = HeldOutRows(network, images).metrics(state.parameters, state.step)
    assert found["score"] > 0.5 * (1.0 + found["score_column_means"])
