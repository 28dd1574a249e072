"""``zetadp tune``: every combination is tried on public data, the best one is ready to be sent, and a private selection has its price."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from zetadp.accountants import profile
from zetadp.app.cli import app
from zetadp.app.cli.local.tune import WARNING
from zetadp.trainer import tuning
from zetadp.trainer.recipes import recipe
from zetadp.trainer.specs.algorithms.private_selection import PrivateSelection
from zetadp.trainer.specs.algorithms.zeta_dp_sgd import ZetaDpSgd
from zetadp.trainer.tuning import Tried, Tuned, best_of, grid

pytest.importorskip("torch")

PUBLIC = {"kind": "digits_phase_pairs", "split_seed": 3, "test_fraction": 0.5}
SHORT = ("--set", "spec.steps=6", "--set", "spec.model.hidden[0]=16", "--threads", "1")
RATES = ("--try", "spec.optimizer.learning_rate=0.0001,.05")


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["tune", *arguments])


def _tuned(*arguments: str) -> Tuned:
    done = _run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return Tuned.model_validate_json(done.stdout)


@pytest.fixture(scope="module")
def found() -> Tuned:
    return _tuned("digits", *SHORT, *RATES, "--try", "spec.clipping_bound=1,2")


def test_every_combination_is_tried_and_the_best_is_ready_to_be_sent(found: Tuned) -> None:
    names = "spec.optimizer.learning_rate", "spec.clipping_bound"
    assert [tuple(one.settings[name] for name in names) for one in found.tried] == [(0.0001, 1), (0.0001, 2), (0.05, 1), (0.05, 2)]
    best = max(found.tried, key=lambda one: one.metrics["accuracy"])
    assert best.settings["spec.optimizer.learning_rate"] == 0.05
    assert found.best == best.settings
    assert found.changes == tuple(f"{name}={best.settings[name]!r}" for name in names)


def test_a_private_selection_among_them_costs_what_its_own_spec_says(found: Tuned) -> None:
    known = recipe("digits")
    assert known is not None
    assert isinstance(known.spec, ZetaDpSgd)
    document = known.spec.model_dump(mode="json", exclude_none=True) | {"steps": 6}
    document["model"]["hidden"] = [16]
    candidates = [
        {"name": f"number-{n}", "spec": document | {"optimizer": document["optimizer"] | {"learning_rate": rate}, "clipping_bound": bound}}
        for n, (rate, bound) in enumerate((rate, bound) for rate in (0.0001, 0.05) for bound in (1.0, 2.0))
    ]
    runs = {"kind": "geometric", "mean": 4.0}
    spec = PrivateSelection.model_validate(
        {"algorithm": "private_selection", "data": document["data"], "candidates": candidates, "runs": runs}
    )
    cost, plan = found.selection, spec.plan()
    assert cost is not None
    assert (cost.candidates, cost.delta, cost.unit, cost.runs) == (4, 1e-5, "record", spec.runs)
    assert cost.epsilon == pytest.approx(profile(plan.event).epsilon_upper(1e-5), rel=1e-6)
    assert cost.epsilon == pytest.approx(4.0, rel=1e-4)
    assert cost.epsilon > cost.epsilon_of_one_run


def test_the_table_says_that_the_data_are_treated_as_public() -> None:
    done = _run("digits", *SHORT, "--try", "spec.optimizer.learning_rate=.05")
    assert done.exit_code == 0
    assert WARNING in done.stderr
    assert "Tried on public data (digits_phase_pairs):" in done.stdout
    sent = "zetadp submit --recipe digits --set spec.steps=6 --set 'spec.model.hidden[0]=16' --set spec.optimizer.learning_rate=0.05"
    assert sent in done.stdout
    assert "A private selection among the 1 on the private data instead" in done.stdout


def test_a_file_is_tuned_on_the_public_data_that_are_named_and_never_on_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[Any] = []
    original = tuning.load_train

    def watched(spec: Any) -> Any:
        trained.append(spec)
        return original(spec)

    monkeypatch.setattr(tuning, "load_train", watched)
    document = ZetaDpSgd.example().model_dump(mode="json", exclude_none=True)
    (tmp_path / "job.json").write_text(json.dumps({"spec": document}))
    (tmp_path / "public.json").write_text(json.dumps(PUBLIC))
    found = _tuned(str(tmp_path / "job.json"), *SHORT, *RATES, "--public-data", str(tmp_path / "public.json"), "--repetitions", "2")
    assert found.public_data.model_dump(exclude_none=True).items() >= PUBLIC.items()
    assert [spec.data for spec in trained] == [found.public_data] * 4
    assert found.selection is not None


def test_a_recipe_that_was_changed_to_other_data_is_still_tuned_on_its_own_public_ones() -> None:
    found = _tuned("digits", *SHORT, "--set", "spec.data.split_seed=9", "--try", "spec.clipping_bound=1")
    known = recipe("digits")
    assert known is not None
    assert found.public_data == known.spec.data


def test_steps_have_no_event_in_common_and_that_is_said() -> None:
    found = _tuned("digits", "--set", "spec.model.hidden[0]=16", "--threads", "1", "--try", "spec.steps=3,4")
    assert found.selection is None
    assert found.no_selection is not None
    assert "candidates.candidate-2" in found.no_selection


def test_settings_that_fail_are_told_and_never_the_best() -> None:
    found = _tuned("digits", *SHORT, "--try", "spec.optimizer.learning_rate=1e36,0.01")
    assert found.tried[0].failed is not None
    assert "stopped being finite" in found.tried[0].failed
    assert found.best == {"spec.optimizer.learning_rate": 0.01}
    done = _run("digits", *SHORT, "--try", "spec.optimizer.learning_rate=1e36")
    assert done.exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("digits", "--try", "spec.steps"), "--try must be of the form path=value,value"),
        (("digits", "--try", "spec.stepps=1,2"), "spec.stepps=1: stepps"),
        (("nothing.json", "--try", "spec.steps=1"), "--public-data must be given for a file"),
        (("digits", "--try", f"spec.steps={','.join(map(str, range(1, 66)))}"), "at most 64 combinations, got 65"),
        (("mri_phantoms_federated", "--try", "spec.steps=1"), "algorithm"),
    ],
)
def test_what_can_not_be_tuned_is_refused(arguments: tuple[str, ...], told: str) -> None:
    done = _run(*arguments)
    assert done.exit_code == 2
    assert told in done.stderr


def test_an_error_is_better_if_it_is_smaller() -> None:
    tried = [Tried(settings={"n": n}, metrics={"nmse": error}) for n, error in enumerate((0.5, 0.2, 0.9))]
    best = best_of([*tried, Tried(settings={}, metrics={}, failed="no")])
    assert best is not None
    assert best.settings == {"n": 1}


def test_a_grid_has_every_combination() -> None:
    assert grid({"a": [1, 2], "b": ["x"]}) == ({"a": 1, "b": "x"}, {"a": 2, "b": "x"})
