r"""Private steps of others: torch.func, right on every network, and Opacus where it is installed (``pip install opacus==1.6.0``)."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap  # pyright: ignore[reportPrivateImportUsage]

from benchmarks.networks import Case


def per_sample_step(case: Case) -> Callable[[], object]:
    """vmap(grad) on PyTorch's own network, clip and sum, update; no noise: what a careful user writes."""
    network = case.native()
    features, targets = case.records(case.batch)
    parameters = {name: value.detach() for name, value in network.named_parameters()}

    def loss(values: dict[str, Tensor], record: Tensor, target: Tensor) -> Tensor:
        return case.losses(functional_call(network, values, (record[None],)), target[None])[0]

    per_sample = vmap(grad(loss), in_dims=(None, 0, 0))

    def step() -> None:
        gradients = per_sample(parameters, features, targets)
        pairs = {name: torch.view_as_real(g) if g.is_complex() else g for name, g in gradients.items()}
        norms = torch.stack([pair.flatten(1).square().sum(dim=1) for pair in pairs.values()]).sum(dim=0).sqrt()
        factors = (1.0 / norms).clamp(max=1.0)
        for name, pair in pairs.items():
            total = torch.einsum("n,n...->...", factors, pair)
            parameters[name] = parameters[name] - (1e-3 / case.batch) * (
                torch.view_as_complex(total) if gradients[name].is_complex() else total
            )

    return step


def opacus_step(case: Case, mode: Literal["hooks", "ghost"]) -> Callable[[], object]:
    """Opacus 1.6 on a real network, with its noise."""
    opacus = importlib.import_module("opacus")
    network = case.native()
    features, targets = case.records(case.batch)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(features, targets), batch_size=case.batch)
    squared = case.outputs == 1
    criterion = torch.nn.MSELoss() if squared else torch.nn.CrossEntropyLoss()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        private = opacus.PrivacyEngine().make_private(
            module=network,
            optimizer=optimizer,
            data_loader=data,
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            poisson_sampling=False,
            grad_sample_mode=mode,
            **({"criterion": criterion} if mode == "ghost" else {}),
        )
    model, private_optimizer, used = private[0], private[1], private[2] if mode == "ghost" else criterion

    def step() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            private_optimizer.zero_grad()
            used(model(features), targets).backward()
            private_optimizer.step()

    return step
