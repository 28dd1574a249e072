"""``zetadp.train``: a caller's own module, trained with the clipped sums that autograd gives, and a certificate that verifies."""

from __future__ import annotations

import base64
import hashlib
import importlib
import inspect
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")

import zetadp  # noqa: E402
from tests.app.forked import run_command  # noqa: E402
from tests.selection import chosen, thinned  # noqa: E402
from zetadp.app.kit.settings import Settings  # noqa: E402
from zetadp.mechanisms.errors import InvalidParameter  # noqa: E402
from zetadp.trainer.algorithms.own_module.preparation import code_of, weights_of  # noqa: E402
from zetadp.trainer.errors import CheckpointRefused  # noqa: E402

nn, Tensor = torch.nn, torch.Tensor
ROOT = Path(__file__).parents[2]
HARDLY_ANY_NOISE = 1e-3
"""Of the bound: much less is lost among the digits of the sum, which a run finds and doesn't certify."""


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """One signing key for all."""
    return Settings(data_dir=tmp_path_factory.mktemp("keys"))


@pytest.fixture
def train(settings: Settings, tmp_path: Path) -> Callable[..., zetadp.Trained]:
    """``zetadp.train`` with small numbers in place of what a test doesn't care about."""

    def run(module: Any, loss: Any, data: Any, **changed: Any) -> zetadp.Trained:
        usual: dict[str, Any] = {
            "noise_multiplier": 1.0,
            "delta": 1e-5,
            "unit": "record",
            "clipping_bound": 0.5,
            "expected_batch_size": 8,
            "steps": 3,
            "optimizer": partial(torch.optim.SGD, lr=0.5),
            "folder": tmp_path / "run",
            "settings": settings,
        }
        return zetadp.train(module, loss, data, **(usual | changed))

    return run


def seeded(make: Callable[[], Any]) -> Any:
    with torch.random.fork_rng([]):
        torch.manual_seed(3)
        return make()


class Mixed(nn.Module):
    """Complex weights, a real scale, and a magnitude."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(6, 4, dtype=torch.cfloat))
        self.scale = nn.Parameter(torch.ones(4))
        self.last = nn.Linear(4, 3)

    def forward(self, signals: Any) -> Any:
        return self.last((signals @ self.first).abs() * self.scale)


def real() -> tuple[Any, tuple[Any, Any]]:
    module = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    return module, (torch.randn(32, 6), torch.randint(0, 3, (32,)))


def mixed() -> tuple[Any, tuple[Any, Any]]:
    return Mixed(), (torch.randn(32, 6, dtype=torch.cfloat), torch.randint(0, 3, (32,)))


def frozen() -> tuple[Any, tuple[Any, Any]]:
    module, data = real()
    module[0].requires_grad_(requires_grad=False)
    return module, data


def double() -> tuple[Any, tuple[Any, Any]]:
    module, (signals, labels) = mixed()
    for parameter in module.parameters():
        parameter.data = parameter.data.to(torch.cdouble if parameter.is_complex() else torch.double)
    return module, (signals.to(torch.cdouble), labels)


def clipped_step(module: Any, data: tuple[Any, Any], bound: float, units: Sequence[Sequence[int]], lr: float) -> dict[str, Any]:
    """The parameters after one step of plain descent on the mean of clipped gradients, each unit's by autograd alone."""
    trained = {name: value for name, value in module.named_parameters() if value.requires_grad}
    total = {name: torch.zeros_like(value) for name, value in trained.items()}
    for rows in units:
        losses = nn.functional.cross_entropy(module(data[0][list(rows)]), data[1][list(rows)], reduction="sum")
        slopes = dict(zip(trained, torch.autograd.grad(losses, list(trained.values())), strict=True))
        norm = torch.sqrt(sum(value.abs().square().sum() for value in slopes.values()))
        for name, slope in slopes.items():
            total[name] += slope * min(1.0, bound / float(norm))
    return {name: value.detach() - lr * total[name] / len(units) for name, value in trained.items()}


@pytest.mark.parametrize(
    ("make", "is_lazy"),
    chosen(product((real, mixed, frozen, double), (False, True)), [(mixed, False), (mixed, True), (double, False)]),
)
def test_a_step_on_everybody_without_noise_is_that_of_autograd(make: Any, is_lazy: bool, train: Any) -> None:
    module, data = seeded(make)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    given = list(zip(*data, strict=True)) if is_lazy else data
    changed = {"expected_batch_size": 32, "steps": 1, "noise_multiplier": HARDLY_ANY_NOISE}
    found = dict(train(module, nn.CrossEntropyLoss(), given, **changed).module.named_parameters())
    # Clipping aims 2^-8 below the bound.
    expected = clipped_step(module, data, 0.5 * (1.0 - 2.0**-8), [[row] for row in range(32)], 0.5)
    for name, value in found.items():
        wanted = expected.get(name, before[name])
        assert torch.allclose(value, wanted, rtol=1e-4, atol=1e-4), name
        assert (name in expected) == (not torch.equal(value, before[name]))
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())  # the caller's own stays as it was


def test_a_gradient_whose_square_overflows_in_double_precision_is_left_out(train: Any) -> None:
    module = nn.Linear(4, 2, dtype=torch.double)
    signals = torch.ones(8, 4, dtype=torch.double)
    signals[0] = 1e200
    done = train(
        module, lambda outputs, _targets: outputs.sum(dim=1), (signals, torch.zeros(8)), steps=1, noise_multiplier=HARDLY_ANY_NOISE
    )
    moved = (done.module.bias - module.bias).detach()
    own = 0.5 * (1.0 - 2.0**-8) / (2 * 5) ** 0.5  # each of the other seven, of two weights' rows and biases
    assert torch.allclose(moved, torch.full((2,), -0.5 * 7 * own / 8, dtype=torch.double), rtol=1e-2)


def test_users_are_clipped_as_one(train: Any) -> None:
    module, data = seeded(real)
    users = [row % 8 for row in range(32)]
    changed = {"unit": "patient", "users": users, "records_per_user": 3, "expected_batch_size": 8, "steps": 1}
    done = train(module, nn.functional.cross_entropy, data, **changed, noise_multiplier=HARDLY_ANY_NOISE)
    expected = clipped_step(module, data, 0.5 * (1.0 - 2.0**-8), [[user, user + 8, user + 16] for user in range(8)], 0.5)
    for name, value in done.module.named_parameters():
        assert torch.allclose(value, expected[name], rtol=1e-4, atol=3e-4), name
    assert done.report.training_units == 8


@pytest.mark.parametrize("dtype", thinned([torch.cfloat, torch.cdouble], every=2))
def test_the_noise_of_a_step_has_the_planned_scale_in_each_component(dtype: Any, train: Any) -> None:
    module = nn.Linear(400, 20, bias=False, dtype=dtype)
    data = (torch.zeros(32, 400, dtype=dtype), torch.zeros(32, 20, dtype=dtype))

    def loss(outputs: Any, targets: Any) -> Any:
        return (outputs - targets).abs().square().sum(dim=1)

    changed = {"noise_multiplier": 2.0, "steps": 1, "optimizer": partial(torch.optim.SGD, lr=1.0), "seed": 5}
    found = train(module, loss, data, **changed).module.weight - module.weight
    for part in (found.real, found.imag):  # of 8000 numbers the deviation is off by .8 % (one standard error)
        assert float(part.detach().std()) == pytest.approx(2.0 * 0.5 / 8, rel=0.04)


class Drawn(torch.utils.data.Dataset):
    """Records that are made when they are asked for, and counted."""

    def __init__(self, count: int) -> None:
        self.count, self.asked = count, 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Any, int]:
        if not 0 <= index < self.count:
            raise IndexError(index)
        self.asked += 1
        return torch.sin(torch.arange(6) * (index + 1.0)), index % 3


def test_a_map_style_data_set_is_read_record_by_record(train: Any) -> None:
    module, _ = seeded(real)
    records = Drawn(600)
    done = train(module, nn.CrossEntropyLoss(), records, expected_batch_size=6, steps=4)
    assert done.report.training_records == 600
    assert 600 <= records.asked < 600 + 200  # once for the digest, then only who is sampled, and the first checks


@pytest.mark.slow
def test_memory_maps_train_the_same_module_as_arrays(train: Any, tmp_path: Path) -> None:
    module, (features, targets) = seeded(mixed)
    np.save(tmp_path / "features.npy", features.numpy())
    given = {"arrays": (features.numpy(), targets.numpy()), "maps": (np.load(tmp_path / "features.npy", mmap_mode="r"), targets.numpy())}
    asked = {"expected_batch_size": 8, "steps": 3, "seed": 3}
    found = [
        dict(train(module, nn.CrossEntropyLoss(), data, folder=tmp_path / name, **asked).module.named_parameters())
        for name, data in given.items()
    ]
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
    with pytest.raises(InvalidParameter, match="inputs and targets of as many records each"):
        train(module, nn.CrossEntropyLoss(), (given["maps"][0], targets.numpy()[1:]))


def test_an_epsilon_is_kept_and_the_certificate_verifies_offline(train: Any) -> None:
    module, data = seeded(mixed)
    told: list[Any] = []
    done = train(module, nn.CrossEntropyLoss(), data, noise_multiplier=None, epsilon=3.0, steps=60, callback=told.append)
    assert told[-1].step == 60
    assert 2.99 < told[-1].epsilon <= 3.0
    checked = run_command("verify", str(done.folder / "certificate.json"), "--json")
    report = json.loads(checked.stdout)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    status = {check["name"]: check["status"] for check in report["checks"]}
    for name in (
        "signature",
        "plan",
        "accountants",
        "recomputation",
        "file model.safetensors",
        "file module-code.sha256",
        "file spec.json",
    ):
        assert status[name] == "passed", name
    [envelope] = [json.loads(done.certificate)]
    assert b"own_module" in base64.b64decode(envelope["payload"])


def test_what_is_written_beside_the_certificate_tells_nothing_of_the_data(train: Any, tmp_path: Path) -> None:
    module, (features, targets) = seeded(real)
    done = train(module, nn.CrossEntropyLoss(), (features, targets), declared_units=40)
    found = done.spec.data.known_facts()
    other = train(module, nn.CrossEntropyLoss(), (features + 1.0, targets), declared_units=40, folder=tmp_path / "other")
    assert other.spec.data.known_facts().sha256 != found.sha256
    written = {path.name: path.read_bytes() for path in done.folder.iterdir() if path.is_file() and path.name != "model.safetensors"}
    assert set(written) == {"certificate.json", "jwks.json", "module-code.sha256", "spec.json"}
    payload = base64.b64decode(json.loads(written["certificate.json"])["payload"])
    for content in (*written.values(), payload):
        assert found.sha256.encode() not in content
    assert "training_records" not in json.loads(payload)["predicate"]["data"]  # a number of units was declared
    assert b"training_records" not in written["spec.json"]
    # The same spec on other data: everything is the same beside the certificate and the model.
    assert (other.folder / "spec.json").read_bytes() == written["spec.json"]


@pytest.mark.slow
def test_dropout_is_on_whatever_mode_the_caller_left_the_module_in(train: Any) -> None:
    module = seeded(lambda: nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.999), nn.Linear(5, 3))).eval()
    data = (torch.ones(32, 6), torch.zeros(32, dtype=torch.int64))  # all gradients add up
    changed = {"expected_batch_size": 32, "steps": 1, "noise_multiplier": HARDLY_ANY_NOISE}
    done = train(module, nn.CrossEntropyLoss(), data, **changed)
    moved = (done.module[2].weight - module[2].weight).detach().abs().max()
    assert float(moved) < 0.03  # each of the few records that keep a number moves it by at most .5 * .5 / 32
    assert not done.module.training


def test_a_changed_model_is_found(train: Any) -> None:
    module, data = seeded(real)
    done = train(module, nn.CrossEntropyLoss(), data)
    with (done.folder / "model.safetensors").open("ab") as file:
        file.write(b" ")
    assert run_command("verify", str(done.folder / "certificate.json")).returncode == 1


def test_the_code_of_the_module_is_what_its_digest_says(train: Any) -> None:
    module, data = seeded(mixed)
    done = train(module, nn.CrossEntropyLoss(), data)
    lines = (done.folder / "module-code.sha256").read_text().splitlines()
    source = hashlib.sha256(inspect.getsource(Mixed).encode()).hexdigest()
    assert f"{source}  {Mixed.__module__}.Mixed" in lines
    parts = [number for number, line in enumerate(lines) if line.startswith("#")]
    found = {line.split("  ")[1].rpartition(".")[2] for line in lines[1 : parts[1]]}
    assert found == {"Mixed", "Linear", "CrossEntropyLoss", "SGD", "(structure)"}
    assert hashlib.sha256("".join(f"{line}\n" for line in lines[1 : parts[1]]).encode()).hexdigest() == done.spec.module.code_sha256
    file = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    loaded = lines[parts[1] : parts[2]]
    assert f"{file}  {__name__}" in loaded  # this file, and whatever else of the caller's own was loaded
    assert not [line for line in loaded if line.endswith(("  torch", "  json", "  zetadp.training"))]
    assert lines[parts[2] + 1 :] == [f"torch=={torch.__version__}"]


def own_loss(outputs: Any, targets: Any) -> Any:
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


@pytest.mark.slow
def test_the_code_of_a_function_is_listed_and_a_changed_file_is_added(train: Any, tmp_path: Path, monkeypatch: Any) -> None:
    module, data = seeded(real)
    monkeypatch.syspath_prepend(tmp_path)
    helper = tmp_path / "helper_that_changes.py"
    helper.write_text("first = 1\n")
    importlib.import_module("helper_that_changes")
    train(module, own_loss, data)
    helper.write_text("second = 2\n")
    done = train(module, own_loss, data)  # nothing is left to do but to list the code of this attempt, too
    lines = (done.folder / "module-code.sha256").read_text().splitlines()
    source = hashlib.sha256(inspect.getsource(own_loss).encode()).hexdigest()
    assert f"{source}  {__name__}.own_loss" in lines
    for text in (b"first = 1\n", b"second = 2\n"):
        assert f"{hashlib.sha256(text).hexdigest()}  helper_that_changes" in lines
    monkeypatch.delitem(sys.modules, "helper_that_changes")


def test_a_class_without_source_has_no_digest() -> None:
    typed = type("Typed", (nn.Module,), {"__module__": "builtins"})()
    assert code_of(typed).splitlines()[0] == f"{'-' * 64}  builtins.Typed"


def adam(parameters: Any) -> Any:
    return torch.optim.Adam(parameters, lr=0.1)


@pytest.mark.parametrize("make", thinned([mixed, double], every=2))
def test_a_run_that_was_interrupted_goes_on_to_the_same_module(make: Any, train: Any, tmp_path: Path) -> None:
    module, data = seeded(make)
    settings = {"steps": 6, "seed": 11, "optimizer": adam, "scheduler": partial(torch.optim.lr_scheduler.StepLR, step_size=2, gamma=0.5)}
    whole = train(module, nn.CrossEntropyLoss(), data, **settings)

    def interrupt(progress: Any) -> None:
        if progress.step < 6:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match="goes on from there"):
        train(module, nn.CrossEntropyLoss(), data, **settings, folder=tmp_path / "again", callback=interrupt)
    resumed = train(module, nn.CrossEntropyLoss(), data, **settings, folder=tmp_path / "again")
    assert resumed.report.resumptions == 1
    for name, value in whole.module.state_dict().items():
        assert torch.equal(value, resumed.module.state_dict()[name]), name


@pytest.mark.slow
def test_an_interrupted_run_goes_on_though_the_program_draws_other_weights(train: Any) -> None:
    _, data = seeded(real)
    first, second, third = (nn.Linear(6, 3) for _ in range(3))

    def interrupt(_progress: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(first, nn.CrossEntropyLoss(), data, steps=4, callback=interrupt)
    done = train(second, nn.CrossEntropyLoss(), data, steps=4)
    assert done.report.resumptions == 1
    assert done.spec.module.weights_sha256 == weights_of(first)
    with pytest.raises(CheckpointRefused, match="has ended and began with other weights; give another folder"):
        train(third, nn.CrossEntropyLoss(), data, steps=4)


def test_another_run_doesnt_go_on_from_the_same_folder(train: Any) -> None:
    module, data = seeded(real)
    train(module, nn.CrossEntropyLoss(), data)
    with pytest.raises(CheckpointRefused):
        train(module, nn.CrossEntropyLoss(), data, noise_multiplier=2.0)


REFUSED: dict[str, tuple[Callable[[], Any], dict[str, Any], str]] = {
    "batch norm": (lambda: nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)), {}, "doesn't mix records"),
    "frozen": (lambda: nn.Linear(6, 3).requires_grad_(requires_grad=False), {}, "parameters that require a gradient"),
    "softmax over records": (lambda: nn.Sequential(nn.Linear(6, 3), nn.Softmax(dim=0)), {}, "one that mixes records"),
    "too many": (lambda: nn.Linear(6, 3), {"expected_batch_size": 33}, "expected_batch_size"),
    "two targets": (lambda: nn.Linear(6, 3), {"epsilon": 1.0}, "exactly one of noise_multiplier and epsilon"),
    "labels": (lambda: nn.Linear(6, 2), {}, "classes from 0 to 1"),
    "closure": (lambda: nn.Linear(6, 3), {"optimizer": torch.optim.LBFGS}, "takes no arguments"),
    "clipping": (lambda: nn.Linear(6, 3), {"clipping": "adaptive"}, "clipping must be 'flat' or 'per_layer', got 'adaptive'"),
    "users": (lambda: nn.Linear(6, 3), {"unit": "patient", "users": [1, 2]}, "one for each record"),
}


@pytest.mark.parametrize("name", thinned(REFUSED, every=3))
def test_what_cant_be_trained_privately_is_refused_before_anything_is_released(name: str, train: Any, tmp_path: Path) -> None:
    make, changed, text = REFUSED[name]
    _, data = seeded(real)
    with pytest.raises((InvalidParameter, ValueError), match=text):
        train(make(), nn.CrossEntropyLoss(), data, **changed)
    assert not (tmp_path / "run" / "certificate.json").exists()
    assert not (tmp_path / "run" / "training" / "checkpoint.safetensors").exists()


def test_an_averaged_loss_of_ones_own_is_refused(train: Any) -> None:
    module, data = seeded(real)

    def averaged(outputs: Any, targets: Any) -> Any:
        return nn.functional.cross_entropy(outputs, targets)

    with pytest.raises(InvalidParameter, match="one real number for each record"):
        train(module, averaged, data)
