"""The SPOF paper's algorithms as printed: what they do, that nothing is claimed of them, and what one of their updates gives away."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.selection import thinned
from zetadp import accountants
from zetadp.mechanisms.analysis.record_recovery import recovered
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.published import spof as published
from zetadp.mechanisms.sampling.source import RandomOrigin, RandomStream
from zetadp.trainer import RuntimeSpec, load_train
from zetadp.trainer.data.digits_images import DigitsImages
from zetadp.trainer.engine.autoencoders import Autoencoder
from zetadp.trainer.engine.autoencoders.demonstration import EPSILONS, Demonstration
from zetadp.trainer.engine.autoencoders.printed import algorithm_1_slopes, algorithm_2_slopes, printed_gradient, sensed
from zetadp.trainer.engine.noise.torch_source import TorchSource
from zetadp.trainer.errors import TrainingDiverged, TrainingStopped
from zetadp.trainer.specs.algorithms.dp_sgd_laplace_printed import DpSgdLaplacePrinted
from zetadp.trainer.specs.algorithms.functional_mechanism import FunctionalMechanism
from zetadp.trainer.specs.algorithms.spof_printed import SpofPrinted
from zetadp.trainer.specs.autoencoder import AutoencoderShape
from zetadp.trainer.specs.plans import ComparedPlan, ComparisonPlan, UnprotectedPlan

ENCODERS, FEATURES, HIDDEN, ROWS = 2, 5, 3, 6
SHAPE = AutoencoderShape(encoders=ENCODERS, features=FEATURES, hidden=HIDDEN)
BOTH = (SpofPrinted, DpSgdLaplacePrinted)


class FixedNoise:
    """A source that gives what it was made with, in turn, in whatever shape is asked for."""

    origin = RandomOrigin.USER_SEED

    def __init__(self, laplace=(), normal=()):
        self._laplace, self._normal = list(laplace), list(normal)

    def standard_laplace(self, shape):
        return self._laplace.pop(0).reshape(shape)

    def standard_normal(self, shape):
        return self._normal.pop(0).reshape(shape)


def network():
    found = Autoencoder.of(SHAPE, torch.device("cpu"))
    return Autoencoder(found.shape, found.masks.double())


def numbers(count, seed):
    return torch.from_numpy(RandomStream.from_seed(seed, "printed").normal(count))


def parameters(c=0.0):
    weights = numbers(SHAPE.coordinates, 1)
    weights[SHAPE.weights :] += c
    return weights


def rows():
    return torch.from_numpy(RandomStream.from_seed(2, "printed").uniform(ROWS * FEATURES)).view(ROWS, FEATURES)


def laplace(count, seed=3):
    return torch.from_numpy(RandomStream.from_seed(seed, "printed").grid_laplace(count))


def source(seed=4):
    return TorchSource(RandomStream.from_seed(seed, "printed"), torch.device("cpu"))


def masks(net):
    return net.masks_of(torch.arange(ROWS) % ENCODERS)


# --- the arithmetic, beside the calculators' ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("c", thinned([0.0, 0.4, 2.5], every=3))
def test_algorithm_1_is_the_published_formulas_on_every_row(c):
    net, epsilon, drawn = network(), 0.7, laplace(2 * ROWS * FEATURES).view(2, ROWS, FEATURES)
    weights = parameters(c)
    seen = sensed(net, weights, rows(), masks(net), 0.0, FixedNoise())
    found = net.split(printed_gradient(net, weights, seen, algorithm_1_slopes(seen, rows(), epsilon, c, FixedNoise([drawn]))) * ROWS)
    wanted = {name: np.zeros(tuple(value.shape)) for name, value in found.items()}
    plain = net.split(parameters())
    for row in range(ROWS):
        j, x = row % ENCODERS, rows()[row].numpy()
        encoder, decoder = plain["encoders"][j].numpy(), plain["decoder"][j].numpy()
        c_j = c * (1.0 / (1.0 + np.exp(-(encoder.T @ x)))).sum()
        scale = published.algorithm_1_scale(FEATURES, c_j, epsilon)
        by_encoder, by_decoder = published.algorithm_1_gradients(x, encoder, decoder, c, tuple(scale * drawn[:, row].numpy()))
        wanted["encoders"][j] += by_encoder
        wanted["decoder"][j] += by_decoder
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name].numpy(), value, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("bound", thinned([4.0, 0.3], every=2))
def test_algorithm_2_is_the_published_formulas_on_every_row(bound):
    net, epsilon, drawn = network(), 0.7, laplace(ROWS * FEATURES).view(ROWS, FEATURES)
    seen = sensed(net, parameters(), rows(), masks(net), 0.0, FixedNoise())
    slopes = algorithm_2_slopes(seen, rows(), epsilon, bound, FixedNoise([drawn]))
    found = net.split(printed_gradient(net, parameters(), seen, slopes) * ROWS)
    wanted = {name: np.zeros(tuple(value.shape)) for name, value in found.items()}
    weights = net.split(parameters())
    for row in range(ROWS):
        j, x = row % ENCODERS, rows()[row].numpy()
        scale = published.gradient_sensitivity(FEATURES, 0.0, bound, float(np.linalg.norm(0.5 - x))) / epsilon
        gradients = published.algorithm_2_gradients(
            x, weights["encoders"][j].numpy(), weights["decoder"][j].numpy(), 0.0, bound, scale * drawn[row].numpy()
        )
        for name, gradient in zip(("encoders", "decoder"), gradients, strict=True):
            wanted[name][j] += gradient
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name].numpy(), value, rtol=1e-9, atol=1e-9)


def test_both_branches_of_the_scale_are_taken_by_some_row():
    norms = torch.linalg.vector_norm(0.5 - rows(), dim=1)
    assert bool((norms < 0.8).any())
    assert bool((norms >= 0.3).all())


def test_environmental_noise_enters_the_encoders_and_b_is_the_sum_of_ratios():
    net, drawn = network(), numbers(ROWS * FEATURES, 5).view(ROWS, FEATURES)
    seen = sensed(net, parameters(), rows(), masks(net), 0.5, FixedNoise(normal=[drawn]))
    assert torch.equal(seen.inputs, rows() + 0.5 * drawn)
    encoders = net.split(parameters())["encoders"]
    for row in range(ROWS):
        encoder = encoders[row % ENCODERS]
        clean, noisy = (torch.sigmoid(encoder.T @ x[row]) for x in (rows(), seen.inputs))
        assert seen.factor[row].item() == pytest.approx((noisy / clean).sum().item(), rel=1e-12)


def test_the_noisy_polynomials_slope_is_the_derivative_of_equation_13():
    """By autograd over z-hat, b a constant, from (13) with its printed b alpha_3."""
    net, epsilon, c, drawn = network(), 2.0, 0.4, laplace(2 * ROWS * FEATURES).view(2, ROWS, FEATURES)
    seen = sensed(net, parameters(c), rows(), masks(net), 0.5, FixedNoise(normal=[numbers(ROWS * FEATURES, 5)]))
    found = algorithm_1_slopes(seen, rows(), epsilon, c, FixedNoise([drawn]))
    constant = c * seen.clean.sum(dim=1, keepdim=True)
    scale = (1.5 * FEATURES * seen.factor + FEATURES * constant * (constant / 2 + 2)) / (math.sqrt(2) * epsilon)
    logits = seen.found.logits.clone().requires_grad_()
    shifted = logits / seen.factor
    linear = seen.factor * (0.5 - rows()) + scale * drawn[0]
    quadratic = seen.factor * (0.5 * rows() - 0.25) + scale * drawn[1]
    (linear * shifted + quadratic * shifted.square()).sum().backward()
    torch.testing.assert_close(found, logits.grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("deviation", thinned([0.5, 2.0], every=2))
def test_environmental_noise_has_its_deviation(deviation):
    net = Autoencoder.of(SHAPE, torch.device("cpu"))
    many = rows().repeat(2000, 1)
    seen = sensed(net, parameters(), many, net.masks_of(torch.zeros(len(many), dtype=torch.int64)), deviation, source())
    # 60000 numbers: within 1.5 %; 30 % off is refused.
    assert (seen.inputs - many).std().item() == pytest.approx(deviation, rel=0.015)


def test_laplace_noise_of_algorithm_1_has_the_printed_scale():
    net, epsilon = Autoencoder.of(SHAPE, torch.device("cpu")), 0.5
    many = torch.full((20_000, FEATURES), 0.5, dtype=torch.float64)
    weights = torch.zeros(SHAPE.coordinates, dtype=torch.float64)  # h = 1/2 and z = 0: the slope is M_2 alone
    seen = sensed(net, weights, many, net.masks_of(torch.zeros(len(many), dtype=torch.int64)), 0.0, source())
    noise = algorithm_1_slopes(seen, many, epsilon, 2.0, source())
    scale = published.algorithm_1_scale(FEATURES, 2.0 * HIDDEN / 2, epsilon)
    assert noise.abs().mean().item() == pytest.approx(scale, rel=0.02)


# --- as jobs ------------------------------------------------------------------------------------------------------------------------


def small(kind, **changes):
    document = kind.example().model_dump(mode="json") | {"steps": 30, "reproducible": True, "seed": 3}
    return kind.model_validate(document | changes)


def run(spec, folder):
    runtime = RuntimeSpec(device="cpu", threads=1)
    return load_train(spec)(spec, spec.plan(), runtime, folder, report=lambda _event: None, should_stop=lambda: False)


@pytest.mark.parametrize("kind", thinned(BOTH, every=2))
def test_nothing_is_claimed_of_a_printed_algorithm(kind, tmp_path):
    spec = small(kind, epsilon=1e-3, optimizer={"kind": "sgd", "learning_rate": 1e-9})
    plan = spec.plan()
    assert isinstance(plan, UnprotectedPlan)
    assert math.isinf(accountants.profile(plan.event).epsilon(plan.delta).upper)
    report = run(spec, tmp_path)
    assert (report.event, report.noise_std, report.steps_released) == (plan.event, 0.0, 30)


@pytest.mark.parametrize(
    ("kind", "rows_named"), [(SpofPrinted, ("S7", "S8", "S13", "S14", "S15", "S16")), (DpSgdLaplacePrinted, ("S16", "S29", "S30", "S31"))]
)
def test_the_reason_names_the_errata(kind, rows_named):
    reason = small(kind).plan().reason
    assert len(reason) <= 1000
    assert all(row in reason and row in kind.ERRATA for row in rows_named)
    assert "isn't private at any epsilon" in reason


@pytest.mark.parametrize("kind", thinned(BOTH, every=2))
def test_a_step_of_the_job_gives_its_row_away(kind, tmp_path):
    """Two published states and the learning rate: the difference is one update, in float32."""
    rate = 1e-4
    optimizer = {"kind": "sgd", "learning_rate": rate}
    states = []
    for steps in (1, 2):
        spec = small(
            kind, steps=steps, epsilon=100.0, optimizer=optimizer, data={"kind": "digits_images", "split_seed": 0, "test_fraction": 0.2}
        )
        run(spec, tmp_path / str(steps))
        states.append({name: value.double() for name, value in load_file(tmp_path / str(steps) / "artifacts/model.safetensors").items()})
    update = {name: (states[0][name] - states[1][name]) / rate for name in states[0]}
    place = int(update["encoders"].abs().sum(dim=(1, 2)).argmax())
    found, _ = recovered(update["encoders"][place].numpy(), update["decoder"][place].numpy(), states[0]["decoder"][place].numpy())
    table = DigitsImages(split_seed=0, test_fraction=0.2).read().training_features
    cosines = table @ found / np.linalg.norm(found) / np.linalg.norm(table, axis=1)
    assert np.sort(cosines)[-1] > 0.999 > np.sort(cosines)[-2]


@pytest.mark.parametrize("kind", thinned(BOTH, every=2))
def test_the_demonstration_recovers_its_synthetic_record_at_every_epsilon(kind, tmp_path):
    run(small(kind), tmp_path)
    shown = Demonstration.model_validate_json((tmp_path / "artifacts/demonstration.json").read_bytes())
    assert [one.epsilon for one in shown.recovered] == list(EPSILONS) == [1.0, 0.01, 1e-6]
    for one in shown.recovered:
        assert one.relative_error < 1e-6
        assert one.cosine == pytest.approx(1.0, abs=1e-12)
        assert one.rank_one < 1e-12
        assert one.told_apart == one.trials == 200
    np.testing.assert_allclose(shown.found, shown.record, atol=1e-6)
    assert shown.algorithm == kind.algorithm_name()
    assert {"S14", "S31"} & set(shown.errata)


@pytest.mark.parametrize("kind", thinned(BOTH, every=4))
def test_the_demonstration_never_uses_the_jobs_data(kind, tmp_path):
    """Other rows of the same sizes give the same file."""
    files = []
    for split in (0, 1):
        run(small(kind, data={"kind": "digits_images", "split_seed": split, "test_fraction": 0.2}), tmp_path / str(split))
        files.append((tmp_path / str(split) / "artifacts/demonstration.json").read_bytes())
    assert files[0] == files[1]
    record = json.loads(files[0])["record"]
    table = DigitsImages(split_seed=0, test_fraction=0.2).read().training_features
    assert np.abs(table - np.array(record)).max(axis=1).min() > 0.5


def test_a_comparison_stands_the_printed_beside_the_sound_at_one_delta():
    plans = [ComparedPlan(name=kind.algorithm_name(), plan=small(kind, delta=1e-4).plan()) for kind in BOTH]
    privacy = {"adjacency": "add_remove", "unit": "record", "delta": 1e-4, "noise_multiplier": 2.0}
    sound = FunctionalMechanism.model_validate(FunctionalMechanism.example().model_dump(mode="json") | {"privacy": privacy}).plan()
    whole = ComparisonPlan(parts=(*plans, ComparedPlan(name="sound", plan=sound)))
    assert math.isinf(accountants.profile(whole.event).epsilon(whole.delta).upper)


def test_no_demonstration_where_none_was_asked_for(tmp_path):
    run(small(SpofPrinted, recovery_demonstration=False), tmp_path)
    assert not (tmp_path / "artifacts/demonstration.json").exists()


@pytest.mark.parametrize(
    ("noise", "kind"),
    [
        (0.0, DpSgdLaplacePrinted),
        pytest.param(5.0, SpofPrinted, marks=pytest.mark.slow),
        pytest.param(0.0, SpofPrinted, marks=pytest.mark.slow),
        pytest.param(5.0, DpSgdLaplacePrinted, marks=pytest.mark.slow),
    ],
)
def test_a_run_taken_up_again_ends_as_an_uninterrupted_one(kind, noise, tmp_path):
    spec = small(kind, environmental_noise_std=noise, optimizer={"kind": "sgd", "learning_rate": 1e-7})
    run(spec, tmp_path / "whole")
    asked = iter([False] * 11 + [True] * 100)
    runtime = RuntimeSpec(device="cpu", threads=1)
    train = load_train(spec)
    with pytest.raises(TrainingStopped):
        train(spec, spec.plan(), runtime, tmp_path / "parts", report=lambda _event: None, should_stop=lambda: next(asked))
    run(spec, tmp_path / "parts")
    whole, parts = (load_file(tmp_path / name / "artifacts/model.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_divergence_is_told_and_not_hidden(tmp_path):
    """As printed the noise multiplies the weights: a usual learning rate at a small epsilon blows them up."""
    with pytest.raises(TrainingDiverged):
        run(small(SpofPrinted, epsilon=0.01, stabilisation=2.5, steps=2000, optimizer={"kind": "sgd", "learning_rate": 0.1}), tmp_path)


@pytest.mark.parametrize(
    ("kind", "changes", "text"),
    [
        (SpofPrinted, {"stabilisation": -0.1}, "stabilisation must be >= 0"),
        (SpofPrinted, {"recovery_demonstration": 1}, "valid boolean"),
        (DpSgdLaplacePrinted, {"clipping_bound": 0.0}, "greater than or equal to"),
        (SpofPrinted, {"epsilon": -1.0}, "greater than or equal to"),
    ],
)
def test_what_makes_no_sense_is_refused(kind, changes, text):
    with pytest.raises(ValueError, match=text):
        small(kind, **changes)


def test_a_unit_that_the_data_do_not_know_is_refused():
    with pytest.raises(InvalidParameter, match="unit must be 'record'"):
        small(SpofPrinted, data_unit="patient").plan()
