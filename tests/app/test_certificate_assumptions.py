"""What a guarantee takes for granted of its algorithm, in the certificates of what ran."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest

from app.certificates.caveats import RESTS, SEEDED, of_run
from app.certificates.issue import issue_certificate
from app.certificates.verification import read
from app.settings import Settings
from tests.app.certificate_kinds import KINDS, run_of, write_table
from tests.app.certificates_harness import finished_run

OWNERS = "whose record each one is, is as the data set says; which of a user's records are used depends on its own records alone"


@pytest.fixture(scope="module", autouse=True)
def _table(folder: Path) -> Generator[None]:
    write_table(folder / "sets")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZETADP_DATA_SETS_DIR", str(folder / "sets"))
        yield


def _envelope(name: str, folder: Path, settings: Settings) -> bytes:
    document = json.loads(json.dumps(KINDS[name]))
    return issue_certificate(replace(run_of(document, folder / "assumptions" / name), job_id=name), settings)


def test_sums_over_users_rest_on_whose_rows_are_whose(folder: Path, settings: Settings) -> None:
    of_users, of_rows = (read(_envelope(name, folder, settings)).assumptions for name in ("sums_users", "sums"))
    assert OWNERS in of_users
    assert OWNERS not in of_rows


def test_a_run_is_told_with_what_voids_its_epsilon_the_gravest_first(folder: Path) -> None:
    runs = {name: finished_run(folder / "caveats" / name, **changes).spec for name, changes in SPECS.items()}
    told = {name: of_run(spec) for name, spec in runs.items()}
    assert told["nothing"] == (RESTS,)
    assert told["seeded"] == (SEEDED, *told["public"])
    (of_public, rests) = told["public"]
    assert of_public.startswith("the held-out records: whoever submitted the job declared the held-out records public")
    assert rests == RESTS


SPECS: dict[str, dict[str, object]] = {
    "nothing": {"evaluation": None},
    "public": {},
    "seeded": {"reproducible": True, "seed": 3},
}
