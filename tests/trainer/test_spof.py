r"""What a SPOF spec asks for: the plan and its event, and what is refused before anything is released."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.trainer.autoencoder_jobs import USERS, for_users, run, spof, table_under
from zetadp import accountants
from zetadp.accountants.events import Grouped, Release
from zetadp.mechanisms import DuchiLinf, LocalLaplace
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import RuntimeSpec
from zetadp.trainer.engine.autoencoders import RELEASED
from zetadp.trainer.specs.plans import RecordReleasePlan


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return table_under(tmp_path, monkeypatch)


# The plan


def test_the_event_is_one_release_of_a_row_however_long_training_goes_on(table: dict[str, Any]) -> None:
    short, long = spof(table).plan(), spof(table, steps=10**6).plan()
    assert isinstance(short, RecordReleasePlan)
    assert short.event == long.event == Release(mechanism=short.mechanism)
    assert short.event_after(1) == short.event
    assert (short.unit, short.units, short.records, short.records_per_unit) == ("record", 60, 60, 1)


@pytest.mark.parametrize("mechanism", ["local_laplace", "local_gaussian", "duchi_linf"])
@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_noise_is_calibrated_to_the_units_epsilon(table: dict[str, Any], mechanism: str, epsilon: float) -> None:
    for privacy, rows in ((for_users(unit="record"), None), (for_users(), 4)):
        spec = spof(table, privacy=privacy | {"epsilon": epsilon}, method={"mechanism": mechanism}, records_per_user=rows)
        event = spec.plan().event
        found = accountants.profile(event).epsilon_upper(1e-5)
        assert 0.999 * epsilon < found <= epsilon


def test_a_users_budget_is_split_over_the_rows(table: dict[str, Any]) -> None:
    one = spof(table, privacy=for_users(), records_per_user=1).plan()
    four = spof(table, privacy=for_users(), records_per_user=4).plan()
    assert isinstance(four, RecordReleasePlan)
    assert four.event == Grouped(size=4, unit="user", event=Release(mechanism=four.mechanism))
    assert (four.unit, four.units, four.records_per_unit) == ("user", USERS, 4)
    # Pure epsilons add up; at delta 1e-5 little is gained.
    assert four.noise_std / one.noise_std == pytest.approx(4.0, rel=0.05)


def test_a_given_scale_is_the_mechanisms(table: dict[str, Any]) -> None:
    privacy = {"adjacency": "replace_one", "unit": "record", "delta": 1e-5, "scale": 6.0}
    laplace = spof(table, privacy=privacy).plan()
    duchi = spof(table, privacy=privacy, method={"mechanism": "duchi_linf"}).plan()
    assert isinstance(laplace, RecordReleasePlan)
    assert isinstance(duchi, RecordReleasePlan)
    assert isinstance(laplace.mechanism, LocalLaplace)
    assert isinstance(duchi.mechanism, DuchiLinf)
    # Three features of width 1: epsilon 3 / 6.
    assert laplace.mechanism.privacy_loss().pure_epsilon == 0.5
    assert duchi.mechanism.epsilon == 1.0 / 6.0


def test_gaussian_noise_of_a_users_rows_grows_with_their_root(table: dict[str, Any]) -> None:
    method = {"mechanism": "local_gaussian"}
    one, four = (spof(table, privacy=for_users(), method=method, records_per_user=rows).plan().noise_std for rows in (1, 4))
    assert four / one == pytest.approx(2.0, rel=1e-6)


# What is refused


@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out", None])
def test_no_adjacency_but_replace_one_is_accepted_and_none_is_assumed(table: dict[str, Any], adjacency: str | None) -> None:
    privacy = {"unit": "record", "delta": 1e-5, "epsilon": 2.0} | ({} if adjacency is None else {"adjacency": adjacency})
    with pytest.raises(ValidationError, match="adjacency"):
        spof(table, privacy=privacy)


@pytest.mark.parametrize(("given", "got"), [({}, "neither"), ({"epsilon": 1.0, "scale": 1.0}, "both")])
def test_exactly_one_of_epsilon_and_scale_is_given(table: dict[str, Any], given: dict[str, float], got: str) -> None:
    with pytest.raises(ValidationError, match=f"exactly one of epsilon and scale, got '{got}'"):
        spof(table, privacy={"adjacency": "replace_one", "unit": "record", "delta": 1e-5} | given)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoders": 13}, "encoders must be <= the 12 users"),
        ({"hidden": 4}, "hidden must be <= the 3 features"),
        ({"records_per_user": 2}, "records_per_user must be absent where the unit is one row"),
        ({"privacy": for_users()}, "records_per_user must be given where the unit is 'user'"),
        ({"privacy": for_users(unit="patient")}, r"method.privacy.unit must be 'record' \(one row of this data set\) or 'user'"),
    ],
)
def test_specs_that_dont_fit_the_data_are_refused(table: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        spof(table, **changes).plan()


def test_without_users_there_may_be_as_many_encoders_as_rows(table: dict[str, Any]) -> None:
    nobody = table | {"user_column": None}
    assert spof(nobody, encoders=60).plan()
    with pytest.raises(InvalidParameter, match="encoders must be <= the 60 training rows"):
        spof(nobody, encoders=61).plan()
    with pytest.raises(InvalidParameter, match=r"unit must be 'record' \(one row of this data set\), got 'user'"):
        spof(nobody, privacy=for_users(), records_per_user=1).plan()


def test_data_to_be_classified_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="rows of real numbers to be reconstructed"):
        spof({"kind": "digits_phase_pairs", "split_seed": 0, "test_fraction": 0.2}).plan()


def test_features_outside_the_unit_box_are_refused(table: dict[str, Any]) -> None:
    columns = [{"name": name, "lower": 0.0, "upper": 0.5} for name in "abc"]
    with pytest.raises(InvalidParameter, match="within their public bounds"):
        spof(table | {"columns": columns}).plan()


@pytest.mark.parametrize(
    ("runtime", "message"),
    [
        (RuntimeSpec(processes=2), "runtime.processes must be 1"),
        (RuntimeSpec(precision="bfloat16"), "runtime.precision must be 'float32'"),
    ],
)
def test_settings_an_autoencoder_has_no_use_for_are_refused(
    table: dict[str, Any], tmp_path: Path, runtime: RuntimeSpec, message: str
) -> None:
    with pytest.raises(InvalidParameter, match=message):
        run(spof(table), tmp_path / "job", runtime=runtime)
    assert not (tmp_path / "job" / RELEASED).exists()


def test_a_plan_of_another_spec_is_refused(table: dict[str, Any], tmp_path: Path) -> None:
    calibrated = spof(table)
    for other in (
        spof(table, steps=13),
        spof(table, method={"mechanism": "duchi_linf"}),
        spof(table, privacy=for_users(), records_per_user=2),
        spof(table | {"columns": table["columns"][:2]}),
    ):
        with pytest.raises(InvalidParameter, match="plan must be the one that follows from the spec"):
            run(calibrated, tmp_path / "job", plan=other.plan())
    scaled = spof(table, privacy={"adjacency": "replace_one", "unit": "record", "delta": 1e-5, "scale": 6.0})
    with pytest.raises(InvalidParameter, match="plan must be the one that follows from the spec"):
        run(scaled, tmp_path / "job", plan=calibrated.plan())
