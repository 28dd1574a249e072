r"""Samplings, noise and audits that fit no data set are refused when a job is submitted, by the fields that were given."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import ZetaDpSgd
from zetadp.trainer.specs import network_training

STEPS, LOT = 12, 100
BANDED = {"kind": "banded", "bands": 3}
INVERSE = {"kind": "banded_inverse", "bands": 3}
CYCLIC = {"kind": "cyclic_poisson", "groups": 3, "seed": 2}
CYCLIC_TWO = {"kind": "cyclic_poisson", "groups": 2, "seed": 2}
ALLOCATED = {"kind": "cyclic_allocation", "groups": 3, "seed": 2}
AUDIT = {"kind": "marks", "canaries": 1000}
NO_TURNS = (
    r"noise must be independent with {} samples "
    r"\(correlated noise needs cyclic_poisson or cyclic_allocation samples of at least {} groups, .*\), got '{}'"
)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"noise": BANDED}, NO_TURNS.format("poisson", 3, "banded")),
        ({"noise": INVERSE}, NO_TURNS.format("poisson", 1, "banded_inverse")),
        (
            {"noise": {"kind": "lambda_cgd", "decay": 0.8}, "sampling": {"kind": "fixed_size"}},
            NO_TURNS.format("fixed_size", 1, "lambda_cgd"),
        ),
        ({"noise": BANDED, "sampling": ALLOCATED | {"groups": 2}}, "sampling.groups must be >= 3, the noise's bands, got 2"),
        ({"sampling": ALLOCATED, "declared_units": 150}, "expected_batch_size must be <= 50, one group's share of 150 units, got 100"),
        ({"noise": BANDED, "sampling": CYCLIC_TWO}, "sampling.groups must be >= 3, the noise's bands, got 2"),
        (
            {"noise": {"kind": "banded_inverse", "coefficients": [0.25, 0.5]}, "sampling": CYCLIC_TWO},
            "noise.coefficients must be such that no column of the strategy matrix rises within 12 steps",
        ),
        ({"noise": INVERSE, "sampling": CYCLIC, "steps": 10**9}, "steps must be <= 1000000 with noise that is charged as one release"),
        (
            {"noise": {"kind": "lambda_cgd", "decay": 0.5}, "sampling": CYCLIC, "steps": 10**9},
            "steps must be <= 1000000 with noise that is charged as one release",
        ),
        (
            {"sampling": {"kind": "truncated_poisson", "largest_batch": LOT - 1}},
            f"sampling.largest_batch must be >= the {LOT} units expected in a sample, got {LOT - 1}",
        ),
        ({"sampling": {"kind": "fixed_size"}, "declared_units": 1000}, "declared_units must be absent with fixed_size samples"),
        ({"sampling": CYCLIC_TWO, "declared_units": 150}, "expected_batch_size must be <= 75, one group's share of 150 units, got 100"),
        ({"sampling": {"kind": "fixed_size"}, "audit": AUDIT}, "audit must be canaries with samples of a fixed size"),
    ],
)
def test_what_no_data_set_makes_possible_is_refused_before_any_is_read(
    changes: dict[str, Any], told: str, spec_json: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_training, "data_set_facts", lambda _data: pytest.fail("the data were read"))
    spec = ZetaDpSgd.model_validate(spec_json | {"expected_batch_size": LOT, "steps": STEPS} | changes)
    with pytest.raises((InvalidParameter, ValidationError), match=told):
        spec.check_request()


@pytest.mark.parametrize(
    "changes",
    [
        {"sampling": {"kind": "truncated_poisson", "largest_batch": LOT}},
        {"sampling": {"kind": "fixed_size"}},
        {"sampling": {"kind": "random_allocation"}, "declared_units": 1000},
        {"sampling": CYCLIC, "noise": BANDED},
        {"sampling": ALLOCATED, "noise": BANDED},
        {"sampling": ALLOCATED, "noise": INVERSE, "declared_units": 300},
        {"sampling": CYCLIC, "noise": INVERSE, "declared_units": 300},
    ],
)
def test_what_some_data_set_makes_possible_is_not(changes: dict[str, Any], spec_json: dict[str, Any]) -> None:
    ZetaDpSgd.model_validate(spec_json | {"expected_batch_size": LOT, "steps": STEPS} | changes).check_request()
