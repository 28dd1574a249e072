"""Ledgers from the command line, against a real server."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner, Result

from tests.app.forked import Command
from tests.app.jobs_harness import ADMIN_KEY, settings
from tests.app.jobs_harness import environment as variables
from tests.app.ledgers_harness import definition, gaussian
from tests.selection import thinned
from zetadp.app.cli import app


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Generator[dict[str, str]]:
    """Address and key of a server in a process of its own: this one's standard output belongs to the commands."""
    of = settings(tmp_path_factory.mktemp("service"))
    service = Command(tmp_path_factory.mktemp("streams"), "serve", "--port", "0", env={**os.environ, **variables(of)})
    yield {"ZETADP_ADDRESS": service.first_line().removeprefix("zetadp is at "), "ZETADP_KEY": ADMIN_KEY}
    service.kill()


def run(environment: dict[str, str], *arguments: str, body: object = None, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["ledger", *arguments], input=None if body is None else json.dumps(body), env=environment)
    assert result.exit_code == code, result.output
    return result


def told(environment: dict[str, str], *arguments: str, body: object = None) -> Any:
    return json.loads(run(environment, *arguments, "--json", body=body).stdout)


@pytest.fixture(scope="module")
def ledger(environment: dict[str, str]) -> str:
    body = definition(name="shell").model_dump(mode="json") | {"budget": {"kind": "gdp", "mu": 1.0}}
    return told(environment, "create", "-", body=body)["id"]


def test_a_budget_is_used_to_its_end(environment: dict[str, str], ledger: str, tmp_path: Path) -> None:
    event = gaussian(4.0, 8).model_dump(mode="json")
    made = told(environment, "reserve", ledger, "-", body={"spend": event})
    part = tmp_path / "part.json"
    part.write_text(gaussian(4.0, 4).model_dump_json())
    assert told(environment, "commit", ledger, made["id"], "--released", str(part))["state"] == "committed"
    again = told(environment, "reserve", ledger, "-", body={"spend": event, "expiry": {"seconds": 60.0, "then": "spent"}})
    assert told(environment, "release", ledger, again["id"])["state"] == "released"
    assert run(environment, "project", ledger, "-", body=gaussian(4.0).model_dump(mode="json")).stdout == (
        "12 more, one after the other; 12 in a single reservation\n"
    )
    shown = run(environment, "show", ledger).stdout
    assert "mu: committed 0.5, reserved 0.0, remaining 0.8660254037844386 of 1.0" in shown
    assert run(environment, "list").stdout.startswith(f"{ledger}  open  shell")
    assert [line.split()[3] for line in run(environment, "history", ledger).stdout.splitlines()] == [
        "opened",
        "reserved",
        "committed",
        "reserved",
        "released",
    ]


def test_the_history_is_checked_here_against_a_noted_digest(environment: dict[str, str], ledger: str) -> None:
    first = told(environment, "show", ledger)["head"]
    run(environment, "reserve", ledger, "-", body={"spend": {"kind": "gdp", "mu": 0.01}})
    noted = f"{first['number']}:{first['sha256']}"
    assert run(environment, "verify", ledger, "--head", noted).stdout.endswith("verdict: sound\n")
    assert told(environment, "verify", ledger, "--head", noted)["problems"] == []
    forged = f"{first['number']}:{'0' * 64}"
    result = run(environment, "verify", ledger, "--head", forged, code=1)
    assert f"FAIL entry {first['number']}, as noted: expected the digest {'0' * 64}" in result.stdout
    assert f"ledger {ledger} is NOT sound" in result.stderr


def test_a_check_that_left_something_out_says_so_and_fails(environment: dict[str, str], ledger: str) -> None:
    result = run(environment, "verify", ledger, "--seconds", "0", code=1)
    assert "NOT CHECKED" in result.stdout
    assert result.stdout.endswith("verdict: incomplete\n")
    assert f"ledger {ledger} is NOT verified: not everything was checked within 0 s" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    thinned(
        [
            (("show", "0" * 32), 4, "No such ledger."),
            (("verify", "x", "--head", "5"), 2, "--head must be NUMBER:SHA256 with 64 hexadecimal digits, got '5'"),
            (("project", "x"), 2, "project: give a file with a spend, or a job with --job"),
            (("create", "/nowhere.json"), 2, "/nowhere.json: No such file or directory"),
        ],
        every=3,
    ),
)
def test_what_is_wrong_is_one_line_and_a_code(environment: dict[str, str], arguments: tuple[str, ...], code: int, line: str) -> None:
    assert line in run(environment, *arguments, code=code).stderr


def test_a_spend_that_does_not_fit_is_told_with_the_numbers(environment: dict[str, str], ledger: str) -> None:
    result = run(environment, "reserve", ledger, "-", body={"spend": {"kind": "gdp", "mu": 2.0}}, code=1)
    assert "the spend needs mu = 2.0, but only 0.8" in result.stderr


def test_a_closed_ledger_says_so(environment: dict[str, str]) -> None:
    made = told(environment, "create", "-", body=definition(name="short").model_dump(mode="json"))["id"]
    assert run(environment, "close", made).stdout.startswith(f"ledger {made}  closed  short")


@pytest.mark.slow
def test_a_second_key_approves_what_a_first_reserves_within_its_quota(environment: dict[str, str], tmp_path: Path) -> None:
    headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
    with httpx2.Client(base_url=environment["ZETADP_ADDRESS"], headers=headers) as client:
        ann, ben = (client.post("/v1/keys", json={"name": name, "scopes": ["ledger"]}).json() for name in ("ann", "ben"))
    by_ann, by_ben = (environment | {"ZETADP_KEY": one["text"]} for one in (ann, ben))
    rules = {"quotas": [{"key": ann["key"]["id"], "share": 0.5}], "purposes": ["staffing"], "approval": "second_key"}
    body = definition(name="ruled").model_dump(mode="json") | {"rules": rules, "renews_after_days": 90}
    ledger = told(environment, "create", "-", body=body)["id"]
    spend = {"kind": "pure", "epsilon": 0.5}
    made = told(by_ann, "reserve", ledger, "-", body={"spend": spend, "purpose": "staffing"})
    assert "no approval" in run(by_ann, "commit", ledger, made["id"], code=1).output
    assert "approved by key" in run(by_ben, "approve", ledger, made["id"]).stdout
    assert told(by_ann, "commit", ledger, made["id"])["approved_by"] == ben["key"]["id"]
    assert "quota of key" in run(by_ann, "reserve", ledger, "-", body={"spend": spend, "purpose": "staffing"}, code=1).output
    assert "somebody whose data stay for k periods" in run(environment, "show", ledger).stdout
    run(environment, "export", ledger, str(tmp_path / "spends.csv"))
    head, line = (tmp_path / "spends.csv").read_text().splitlines()
    assert head.startswith("entry,time,period,key,purpose")
    assert line.endswith(f",0,{ann['key']['id']},staffing,,committed,{ben['key']['id']},epsilon,0.5")
    assert json.loads(run(environment, "export", ledger, "--json").stdout)["state"] == "committed"
    assert "verdict: sound" in run(environment, "verify", ledger).stdout
