"""zetadp inside Opacus: the registry, an engine's run, checkpoints, and Opacus's own accountants beside ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import zetadp
from zetadp.mechanisms import InvalidParameter

pytest.importorskip("opacus", reason="Opacus isn't installed: pip install 'zetadp[opacus]'")

import torch
from opacus import PrivacyEngine
from opacus.accountants import IAccountant, PRVAccountant, RDPAccountant, create_accountant
from torch.utils.data import DataLoader, TensorDataset

from zetadp.integrations.opacus import NAME, ZetaAccountant, event_of_history, register

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::FutureWarning", "ignore::RuntimeWarning", "ignore::DeprecationWarning"
)
HISTORIES = [
    [(1.0, 0.01, 1000)],
    [(0.8, 0.05, 200)],
    [(4.0, 0.3, 50)],
    [(1.2, 0.02, 300), (0.9, 0.04, 100)],
]


@pytest.fixture(autouse=True)
def registered() -> None:
    register()


def engine(**named: object) -> tuple[PrivacyEngine, torch.nn.Module, torch.optim.Optimizer, DataLoader]:
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(64, 3), torch.randint(0, 2, (64,)))
    model = torch.nn.Linear(3, 2)
    found = PrivacyEngine(accountant="zetadp")
    given = {"noise_multiplier": 1.5, "max_grad_norm": 1.0, **named}
    return (
        found,
        *found.make_private(module=model, optimizer=torch.optim.SGD(model.parameters(), 0.1), data_loader=DataLoader(data, 8), **given),
    )


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader, backwards: int = 1) -> int:
    steps = 0
    for number, (x, y) in enumerate(loader):
        torch.nn.functional.cross_entropy(model(x), y).backward()
        if number % backwards == backwards - 1:
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
    return steps


def test_the_registry_makes_it_by_name() -> None:
    register()  # twice is as good as once
    found = create_accountant(NAME)
    assert isinstance(found, ZetaAccountant)
    assert isinstance(found, IAccountant)
    assert found.mechanism() == "zetadp"


def test_an_engine_counts_its_steps_and_answers_with_our_epsilon() -> None:
    private, model, optimizer, loader = engine()
    steps = train(model, optimizer, loader)
    assert private.accountant.history == [(1.5, 0.125, steps)]
    assert len(private.accountant) == steps == 8
    expected = zetadp.epsilon(noise_multiplier=1.5, sampling_probability=0.125, steps=8, delta=1e-5)
    assert private.get_epsilon(1e-5) == expected.upper


def test_the_engine_finds_noise_for_a_target() -> None:
    model = torch.nn.Linear(3, 2)
    private = PrivacyEngine(accountant="zetadp")
    data = TensorDataset(torch.randn(64, 3), torch.randint(0, 2, (64,)))
    _, optimizer, _ = private.make_private_with_epsilon(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), 0.1),
        data_loader=DataLoader(data, 8),
        target_epsilon=3.0,
        target_delta=1e-5,
        epochs=2,
        max_grad_norm=1.0,
    )
    least = zetadp.noise_multiplier(epsilon=3.0, delta=1e-5, sampling_probability=0.125, steps=16).value
    assert least <= optimizer.noise_multiplier <= 1.05 * least  # Opacus searches until it is within 0.01 of the target


@pytest.mark.parametrize("history", HISTORIES, ids=str)
def test_our_interval_lies_within_prvs_and_below_renyis(history: list[tuple[float, float, int]]) -> None:
    ours, renyi, prv = ZetaAccountant(), RDPAccountant(), PRVAccountant()
    ours.history = renyi.history = prv.history = history
    delta = 1e-5
    low, estimate, high = prv._get_dprv(eps_error=0.01, delta_error=delta / 1000).compute_epsilon(delta, delta / 1000, 0.01)
    found = zetadp.profile(event_of_history(history)).epsilon(delta)
    assert ours.get_epsilon(delta) == found.upper
    assert low <= found.lower <= found.upper <= high
    assert abs(estimate - found.upper) <= 0.01  # the error that PRV was asked for
    assert found.upper <= renyi.get_epsilon(delta)


def test_a_step_of_several_batches_is_refused() -> None:
    # With Poisson sampling Opacus itself refuses it.
    private, model, optimizer, loader = engine(poisson_sampling=False)
    with pytest.raises(InvalidParameter, match="accumulated_iterations must be 1: each step made from one sample, got 2"):
        train(model, optimizer, loader, backwards=2)
    assert private.accountant.history == []


def test_adaptive_clipping_is_refused() -> None:
    settings = {
        "target_unclipped_quantile": 0.5,
        "clipbound_learning_rate": 0.2,
        "max_clipbound": 10.0,
        "min_clipbound": 0.01,
        "unclipped_num_std": 2.0,
    }
    private, model, optimizer, loader = engine(clipping="adaptive", **settings)
    with pytest.raises(InvalidParameter, match="clipping must be a bound that doesn't depend on the data, got 'adaptive clipping'"):
        train(model, optimizer, loader)
    assert private.accountant.history == []


def test_steps_before_the_first_cost_nothing_and_delta_is_still_checked() -> None:
    assert ZetaAccountant().get_epsilon(1e-5) == 0.0
    with pytest.raises(InvalidParameter, match=r"delta must be in \(0, 1\), got 1.0"):
        ZetaAccountant().get_epsilon(1.0)


def test_steps_without_noise_have_no_guarantee() -> None:
    found = ZetaAccountant()
    found.step(noise_multiplier=0.0, sample_rate=0.1)
    assert found.get_epsilon(1e-5) == float("inf")


def test_equal_steps_are_one_stretch() -> None:
    found = ZetaAccountant()
    for multiplier, rate in [(1.0, 0.1), (1.0, 0.1), (2.0, 0.1), (1.0, 0.1)]:
        found.step(noise_multiplier=multiplier, sample_rate=rate)
    assert found.history == [(1.0, 0.1, 2), (2.0, 0.1, 1), (1.0, 0.1, 1)]
    assert len(found) == 4


def test_a_checkpoint_goes_on_where_it_was(tmp_path: Path) -> None:
    private, model, optimizer, loader = engine()
    train(model, optimizer, loader)
    private.save_checkpoint(path=tmp_path / "run.pt", module=model, optimizer=optimizer)
    again, other, optimizer, _ = engine()
    again.load_checkpoint(path=tmp_path / "run.pt", module=other, optimizer=optimizer)
    assert again.accountant.history == private.accountant.history
    assert again.get_epsilon(1e-5) == private.get_epsilon(1e-5)


def test_state_of_another_accountant_is_refused_and_read_as_a_history() -> None:
    renyi = RDPAccountant()
    renyi.step(noise_multiplier=1.0, sample_rate=0.1)
    state = renyi.state_dict()
    with pytest.raises(ValueError, match="state_dict of rdp cannot be loaded"):
        ZetaAccountant().load_state_dict(state)
    assert event_of_history(state["history"]) == zetadp.dp_sgd(noise_multiplier=1.0, sampling_probability=0.1)


def test_a_broken_state_is_refused_and_changes_nothing() -> None:
    found = ZetaAccountant()
    found.step(noise_multiplier=1.0, sample_rate=0.1)
    with pytest.raises(InvalidParameter, match=r"history\[0\].sample_rate"):
        found.load_state_dict({"history": [[1.0, 2.0, 3]], "mechanism": "zetadp"})
    assert found.history == [(1.0, 0.1, 1)]
    found.load_state_dict({"history": [[1.0, 0.5, 3]], "mechanism": "zetadp"})
    assert found.history == [(1.0, 0.5, 3)]


def test_reading_histories_needs_no_opacus() -> None:
    code = "import sys, zetadp.integrations.opacus_history; sys.exit(any(name in sys.modules for name in ('opacus', 'torch')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
