r"""``python -m benchmarks.recipes NAME ... [--seeds 3]``: each recipe trained, privately and without privacy, beside what its paper prints:
 mean and standard deviation over seeds. Minutes to an hour a recipe: not in ``make bench``. With ``--epsilons 1 2 4`` it is trained to each
 of these instead of its own: what a recipe's ``measured`` holds.

The private runs are the service's own ``train``. The non-private ones use the same network and data with PyTorch's optimizers and
shuffled batches of ``PLAIN_BATCH``; their hyper-parameters are the papers' where those are told.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import nn

from zetadp import accountants
from zetadp.mechanisms import RandomStream
from zetadp.trainer import RuntimeSpec, load_train
from zetadp.trainer.data import data_set_facts
from zetadp.trainer.engine.metrics import classification_metrics, reconstruction_metrics
from zetadp.trainer.models import build, losses_for
from zetadp.trainer.models.front import passed_through, split_front
from zetadp.trainer.recipes import RECIPES, Recipe
from zetadp.trainer.specs.base import TrainingSpec
from zetadp.trainer.specs.network_training import NetworkTraining

PLAIN_BATCH = 64

Device = Literal["cpu", "cuda"]


class Plain(NamedTuple):
    """Non-private training: the paper's where told."""

    optimizer: str
    learning_rate: float
    epochs: int
    momentum: float = 0.0
    weight_decay: float = 0.0
    cosine: bool = False


PLAIN: dict[str, Plain] = {
    "phase_mnist": Plain("sgd", 0.1, 3),
    "phase_mnist_correlated": Plain("sgd", 0.1, 3),
    "phase_mnist_large_lots": Plain("sgd", 0.1, 3),
    "phase_mnist_filters": Plain("sgd", 0.1, 3),
    "phase_mnist_federated": Plain("sgd", 0.1, 3),
    "mnist_real": Plain("sgd", 0.1, 3),
    "mnist_standardised": Plain("sgd", 0.1, 3),
    "mnist_standardised_lenet_5": Plain("sgd", 0.1, 3),
    "mnist_scattering": Plain("sgd", 0.1, 3),
    "cifar10_complex": Plain("sgd", 0.1, 20, 0.9, cosine=True),
    "cifar10_real_pairs": Plain("sgd", 0.1, 20, 0.9, cosine=True),
    "cifar10_real": Plain("sgd", 0.1, 20, 0.9, cosine=True),
    "cifar10_features": Plain("adam", 3e-3, 20, cosine=True),
    "cifar10_scattering": Plain("adam", 1e-3, 20, cosine=True),
    "cifar10_standardised": Plain("adam", 3e-3, 20, cosine=True),
    "ecg_mitbih_beats": Plain("sgd", 0.08, 20, weight_decay=5e-3),
    "ecg_mitbih": Plain("sgd", 0.08, 20, weight_decay=5e-3),
    "speech_commands": Plain("sgd", 0.1, 10),
    "speech_commands_scattering": Plain("adam", 1e-3, 30, cosine=True),
    "spectral_mnist_model_1": Plain("adam", 1e-3, 10, cosine=True),
    "spectral_mnist_model_1_block_16": Plain("adam", 1e-3, 10, cosine=True),
    "spectral_mnist_lenet_5": Plain("adam", 1e-3, 10, cosine=True),
    "spectral_mnist_scatter_circulant": Plain("adam", 1e-3, 5, cosine=True),
    "spectral_mnist_scatter_lenet_5": Plain("adam", 1e-3, 5, cosine=True),
    "spectral_mnist_scatter_linear": Plain("adam", 1e-3, 5, cosine=True),
    "spectral_cifar10_model_2": Plain("adam", 1e-3, 20, cosine=True),
    "spectral_cifar10_model_3": Plain("adam", 1e-3, 20, cosine=True),
    "mri_reconstruction": Plain("rmsprop", 1e-3, 10),
    "mri_sequences": Plain("nadam", 2e-3, 10),
    "mri_sequences_federated": Plain("nadam", 2e-3, 10),
    "mri_sequences_linear": Plain("adam", 1e-3, 20, cosine=True),
    "mri_phantoms_federated": Plain("nadam", 2e-3, 2),
}
DEFAULT = Plain("adam", 1e-3, 10)


def private_run(spec: TrainingSpec, device: Device = "cpu") -> tuple[dict[str, float], float]:
    """Metrics of the final model and seconds trained."""
    with tempfile.TemporaryDirectory() as folder:
        together = 256 if device == "cpu" else 2048
        runtime = RuntimeSpec(device=device, microbatch_size=together, threads=1, checkpoint_seconds=600.0)
        report = load_train(spec)(spec, spec.plan(), runtime, Path(folder), report=lambda _event: None, should_stop=lambda: False)  # pyright: ignore[reportArgumentType]
    metrics = {str(name): value for name, value in (report.metrics or {}).items()}
    # Where held-out records are protected, features are measured on training records that are set apart.
    for figure in () if report.attacks is None else report.attacks.figures:
        if (figure.attack, figure.measure) == ("label_with_key", "accuracy"):
            metrics.setdefault("accuracy", figure.value)
    return metrics, report.training_seconds


def plain_run(spec: NetworkTraining, plain: Plain, seed: int, device: Device = "cpu") -> dict[str, float]:
    """Metrics after ordinary training."""
    facts = data_set_facts(spec.data)
    data = spec.data.read()
    arrays = (data.training_features, data.training_targets, data.test_features, data.test_targets)
    features, targets, test, truth = (torch.from_numpy(array).to(device) for array in arrays)
    front, network = split_front(build(spec.model, facts, RandomStream.from_seed(seed, "non-private")).to(device))
    features, test, losses = passed_through(front, features), passed_through(front, test), losses_for(facts)
    optimizer = _optimizer(plain, network)
    generator = torch.Generator().manual_seed(seed)
    steps = plain.epochs * (len(features) // PLAIN_BATCH + 1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps) if plain.cosine else None
    for _ in range(plain.epochs):
        for rows in torch.randperm(len(features), generator=generator).split(PLAIN_BATCH):
            optimizer.zero_grad()
            losses(network(features[rows]), targets[rows]).mean().backward()
            for parameter in network.parameters():
                # RMSprop refuses a lazily conjugated one.
                parameter.grad = None if parameter.grad is None else parameter.grad.resolve_conj()
            optimizer.step()
            if schedule is not None:
                schedule.step()
    network.eval()
    with torch.no_grad():
        outputs, truth = torch.cat([network(chunk) for chunk in test.split(256)]).cpu(), truth.cpu()
    if facts.task == "classification":
        return classification_metrics(outputs.numpy(), truth.numpy())
    return reconstruction_metrics(outputs.numpy(), truth.numpy())


def _optimizer(plain: Plain, network: nn.Module) -> torch.optim.Optimizer:
    parameters = list(network.parameters())
    match plain.optimizer:
        case "sgd":
            return torch.optim.SGD(parameters, plain.learning_rate, plain.momentum, weight_decay=plain.weight_decay)
        case "rmsprop":
            return torch.optim.RMSprop(parameters, plain.learning_rate)
        case "nadam":
            return torch.optim.NAdam(parameters, plain.learning_rate)
        case _:
            return torch.optim.Adam(parameters, plain.learning_rate)


def report(recipe: Recipe, spec: NetworkTraining, seeds: int) -> Iterator[str]:
    """The recipe's lines: printed, private, non-private."""
    plan = spec.plan()
    bound = accountants.profile(plan.event).epsilon(plan.delta)
    yield f"{recipe.name}: {recipe.title}"
    for printed in recipe.printed_results:
        yield f"  paper     {_row({name: (value, None) for name, value in printed.figures.items()})}  ({printed.of}; {printed.where})"
    for claim in recipe.printed_epsilons:
        yield f"  paper     epsilon {claim.epsilon:g} at delta {claim.delta:g} ({claim.method}; {claim.where})"
    runs = [private_run(spec) for _ in range(seeds)]
    noise = plan.mechanism.noise_scale
    yield f"  private   {_row(_spread([metrics for metrics, _ in runs]))}"
    yield f"            proven epsilon {bound.upper:.6g} at delta {plan.delta:g} for one {spec.privacy.unit}; noise {noise:.4g} a component"
    yield f"            {plan.steps} steps of {statistics.median(seconds for _, seconds in runs) / plan.steps * 1e3:.1f} ms, {seeds} runs"
    plain = [plain_run(spec, PLAIN.get(recipe.name, DEFAULT), seed) for seed in range(seeds)]
    yield f"  no privacy {_row(_spread(plain))}"


def at_epsilons(recipe: Recipe, spec: NetworkTraining, epsilons: list[float], seeds: int) -> Iterator[str]:
    """A line for each epsilon: what the recipe reaches when it is calibrated to that."""
    yield f"{recipe.name}: {seeds} runs each"
    for epsilon in epsilons:
        privacy = {**spec.privacy.model_dump(exclude={"noise_multiplier"}), "epsilon": epsilon}
        changed = type(spec).model_validate({**dict(spec), "privacy": privacy})
        yield f"  epsilon {epsilon:g}  {_row(_spread([private_run(changed)[0] for _ in range(seeds)]))}"


def _spread(runs: list[dict[str, float]]) -> dict[str, tuple[float, float | None]]:
    names = runs[0] if runs else {}
    return {name: (statistics.fmean(run[name] for run in runs), _deviation([run[name] for run in runs])) for name in names}


def _deviation(values: list[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None


def _row(figures: dict[str, tuple[float, float | None]]) -> str:
    return "  ".join(f"{name} {mean:.4f}" + (f" +- {spread:.4f}" if spread is not None else "") for name, (mean, spread) in figures.items())


def main(arguments: list[str]) -> None:
    """Runs the named recipes, or all whose data are here."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recipes", description="Train recipes and print their table.")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epsilons", type=float, nargs="*", default=[])
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for recipe in RECIPES:
        if options.names and recipe.name not in options.names:
            continue
        if not isinstance(recipe.spec, NetworkTraining):
            continue  # an autoencoder of Fitbit days: python -m benchmarks.fitbit
        start = time.perf_counter()
        spec, seeds = recipe.spec, options.seeds
        lines = at_epsilons(recipe, spec, options.epsilons, seeds) if options.epsilons else report(recipe, spec, seeds)
        for text in lines:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()
        sys.stdout.write(f"  ({time.perf_counter() - start:.0f} s)\n")


if __name__ == "__main__":
    main(sys.argv[1:])
