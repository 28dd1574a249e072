"""Policies: what they demand, what they refuse and by what name, before a run and of its certificate."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.app.certificates_harness import CANARIES, altered, lied, statement_of
from tests.app.forked import run_command
from tests.app.jobs_harness import AUTHORIZED, spec
from tests.app.jobs_harness import settings as service_settings
from tests.selection import thinned
from zetadp.app.certificates.facts.report import Check, PolicyVerdict, Status, passed
from zetadp.app.certificates.facts.statement import Statement
from zetadp.app.certificates.issuing.issue import CertificateInput
from zetadp.app.certificates.policy.judging import verdict_before, verdict_on
from zetadp.app.certificates.policy.reading import PolicyUnreadable, policy_in
from zetadp.app.certificates.policy.schema import Policy, policy_schema
from zetadp.app.certificates.signing.keys import PublicKeySet
from zetadp.app.certificates.verification.verify import verify
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app
from zetadp.app.worker.preparer import PreparingRequest, prepared
from zetadp.trainer import OwnModule

PAGE = Path(__file__).parents[2] / "docs" / "policies.md"
LEAST: dict[str, object] = {
    "name": "test", "unit": ["record"], "adjacency": ["add_remove"], "largest_epsilon": 100, "largest_delta": 1e-5
}  # fmt: skip
LEDGER: dict[str, object] = {"ledger": "a" * 32, "reservation": "b" * 32, "entry": 3, "sha256": "0" * 64}
CHECKED = (passed("log", ""), passed("recomputation", ""))


def policy(**changes: object) -> Policy:
    return Policy.model_validate_json(json.dumps(LEAST | changes))


def written(**changes: str) -> str:
    """A policy's file, its values as they stand there."""
    least = {"name": "test", "unit": "[record]", "adjacency": "[add_remove]", "largest_epsilon": "100", "largest_delta": "1e-5"}
    return "".join(f"{name}: {value}\n" for name, value in (least | changes).items())


@pytest.fixture(scope="module")
def document(envelope: bytes) -> dict[str, Any]:
    return statement_of(envelope)


def judged(document: dict[str, Any], demanded: Policy, changes: dict[str, object], checks: tuple[Check, ...] = CHECKED) -> PolicyVerdict:
    copy = json.loads(json.dumps(document))
    altered(copy["predicate"], changes)
    return verdict_on(demanded, Statement.model_validate_json(json.dumps(copy)).predicate, checks)


def epsilon_of(document: dict[str, Any]) -> float:
    return float(document["predicate"]["guarantee"]["epsilon"])


def test_a_certificate_that_meets_every_demand_is_accepted(document: dict[str, Any]) -> None:
    demanded = policy(
        exact_release="required", noise_test="required", least_canaries=500, ledger="required", public_held_out="forbidden",
        given_weights="forbidden", checks=["log"],
    )  # fmt: skip
    run = document["predicate"]["run"] | {"canaries": CANARIES, "noise_numbers": 1000, "held_out": "none"}
    del run["metrics"]
    verdict = judged(document, demanded, {"ledger": LEDGER, "run": run})
    assert verdict.failing == ()
    assert verdict.accepted


@pytest.mark.parametrize(
    ("demand", "changes", "name"),
    thinned(
        [
            ({"unit": ["patient", "ward"]}, {}, "unit"),
            ({"adjacency": ["replace_one"]}, {}, "adjacency"),
            ({"largest_epsilon": 0.01}, {}, "largest_epsilon"),
            ({"largest_delta": "1e-300"}, {}, "largest_delta"),
            ({"exact_release": "required"}, {"run.arithmetic": ["unclaimed"]}, "exact_release"),
            ({"exact_release": "required"}, {"run.arithmetic": ["compared_signs"]}, "exact_release"),
            ({"noise_test": "required"}, {}, "noise_test"),
            ({"least_canaries": 1}, {}, "least_canaries"),
            ({"least_canaries": 501}, {"run.canaries": CANARIES}, "least_canaries"),
            ({"least_canaries": 1}, {"run.canaries": CANARIES | {"kind": "marks"}}, "least_canaries"),
            ({"least_marks": 1}, {"run.canaries": CANARIES}, "least_marks"),
            ({"least_marks": 500}, {"run.canaries": CANARIES | {"kind": "marks"}}, None),
            ({"least_marks": 501}, {"run.canaries": CANARIES | {"kind": "marks"}}, "least_marks"),
            ({"ledger": "required"}, {}, "ledger"),
            ({"ledger": "may_be_renewed"}, {}, "ledger"),
            ({"ledger": "required"}, {"ledger": LEDGER | {"renews_after_days": 90}}, "ledger"),
            ({"ledger": "may_be_renewed"}, {"ledger": LEDGER | {"renews_after_days": 90}}, None),
            ({"ledger": "may_be_renewed"}, {"ledger": LEDGER}, None),
            ({"public_held_out": "forbidden"}, {}, "public_held_out"),
            ({"given_weights": "forbidden"}, {"run.given_weights": ["0" * 64]}, "given_weights"),
            ({"checks": ["log"]}, {}, None),
            ({"checks": ["revocation"]}, {}, "checks: revocation"),
        ],
        every=3,
    ),
)
def test_what_is_not_met_is_named_and_nothing_else(
    document: dict[str, Any], demand: dict[str, object], changes: dict[str, object], name: str | None
) -> None:
    verdict = judged(document, policy(**demand), changes)
    assert [rule.name for rule in verdict.rules if not rule.is_met] == ([] if name is None else [name])
    assert verdict.accepted is (name is None)


def test_epsilon_at_the_limit_is_accepted_and_a_digit_above_it_refused(document: dict[str, Any]) -> None:
    epsilon = document["predicate"]["guarantee"]["epsilon"]
    assert judged(document, policy(largest_epsilon=epsilon), {}).accepted
    below = f"{epsilon[:-1]}{int(epsilon[-1]) - 1}" if epsilon[-1] != "0" else f"{epsilon[:-2]}"
    assert not judged(document, policy(largest_epsilon=below), {}).accepted


def test_another_point_of_the_curve_may_meet_it_only_if_all_of_the_curve_was_recomputed(document: dict[str, Any]) -> None:
    epsilon, delta = document["predicate"]["guarantee"]["delta_curve"][-1]
    smaller = policy(largest_epsilon=epsilon, largest_delta=delta)
    assert judged(document, smaller, {}).accepted
    missed = Check(name="curve", status=Status.NOT_CHECKED, detail="")
    refused = judged(document, smaller, {}, (*CHECKED, missed))
    assert [rule.name for rule in refused.rules if not rule.is_met] == ["largest_delta"]


def test_no_guarantee_meets_no_figure(document: dict[str, Any]) -> None:
    verdict = judged(document, policy(exact_release="required"), {"guarantee": {"kind": "none", "reason": "a seed"}})
    assert [rule.name for rule in verdict.rules if not rule.is_met] == ["largest_epsilon", "largest_delta", "exact_release"]
    assert "no guarantee: a seed" in verdict.failing[0]
    # The certificate's own words on the sums before the noise are of tests, not of proofs.
    assert "whatever was computed before it was added" in verdict.failing[2]


def test_a_certificate_that_is_not_valid_is_accepted_by_no_policy(envelope: bytes, settings: Settings, keys: PublicKeySet) -> None:
    forged = lied(envelope, settings, {"guarantee.epsilon": "0.001", "guarantee.epsilon_lower": "0"})
    report = verify(forged, keys, None, policy=policy())
    assert report.verdict == "invalid"
    assert report.policy == PolicyVerdict(policy="test", accepted=False, rules=())


@pytest.mark.parametrize(
    ("text", "expected"),
    thinned([
        ("name: a\nname: b\n", "names a key twice"),
        (json.dumps(LEAST | {"largest_epsilom": 1}), "largest_epsilom"),
        (json.dumps({**LEAST, "largest_epsilon": -1}), "largest_epsilon"),
        (json.dumps({**LEAST, "largest_epsilon": "Infinity"}), "largest_epsilon"),
        (json.dumps({**LEAST, "largest_delta": 1}), "largest_delta"),
        (json.dumps({**LEAST, "unit": []}), "unit"),
        (json.dumps({**LEAST, "adjacency": ["neighbours"]}), "adjacency"),
        (json.dumps({**LEAST, "exact_release": "yes"}), "exact_release"),
        (json.dumps({name: value for name, value in LEAST.items() if name != "largest_delta"}), "largest_delta"),
        ("- a list", "policy: must be"),
        ("!!python/object/apply:os.system [true]", "isn't YAML that can be read"),
        ("a: [" * 5000, "isn't YAML that can be read"),
        ("x" * 70_000, "at most 65536 bytes"),
        ("a: &a [1]\nb: *a\n", "has an alias"),
        ("a: {<<: *a}\n", "isn't YAML that can be read"),
        ("? [a, b]\n: c\n", "has a key that isn't a word"),
        ("? {a: b}\n: c\n", "has a key that isn't a word"),
        ('name: !!binary "YQ=="\n', "has a tag"),
        ('name: "\\UFFFFFFFF"\n', "isn't YAML that can be read"),
        ('name: "\\uD800"\n', "policy: must be JSON"),
        ("%YAML " + "9" * 5000 + ".1\n--- a\n", "isn't YAML that can be read"),
        (written(largest_epsilon="010"), "largest_epsilon"),
        (written(largest_epsilon="1_0"), "largest_epsilon"),
        (written(largest_epsilon="1:30"), "largest_epsilon"),
        (written(least_canaries="0x10"), "least_canaries"),
        (written(least_canaries="1e3"), "least_canaries"),
        (written(least_canaries="true"), "least_canaries"),
        (written(most_earlier_runs="9" * 5000), "most_earlier_runs"),
        (written(least_canaries="100", least_marks="100"), "least_marks"),
    ], every=3),
    ids=range(29),
)  # fmt: skip
def test_a_file_that_is_no_policy_is_refused_with_what_is_wrong(text: str, expected: str) -> None:
    with pytest.raises(PolicyUnreadable, match=re.escape(expected)):
        policy_in(text.encode())


def test_a_number_in_a_file_is_what_is_written_there() -> None:
    found = policy_in(written(largest_delta="0.0000010000000000000000001", least_canaries="100", most_earlier_runs="0").encode())
    assert (found.largest_delta, found.least_canaries, found.most_earlier_runs) == ("0.0000010000000000000000001", 100, 0)
    assert policy_in(written(name="2026-01-01").encode()).name == "2026-01-01"


def test_whatever_the_bytes_are_a_policy_is_read_or_refused() -> None:
    chosen, page = random.Random(3), re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    parts = [
        "&a ",
        "*a",
        "!!int ",
        "<<: ",
        "? ",
        "- ",
        "{",
        "]",
        ": ",
        "\n",
        "\t",
        "--- ",
        "|9",
        '"\\UFFFFFFFF"',
        "~",
        ".inf",
        "9" * 5000,
        "\x85",
        "%TAG ! x\n",
    ]
    outcomes: set[type] = set()
    for _ in range(300):
        text = chosen.choice(page)
        for _ in range(chosen.randrange(1, 4)):
            place = chosen.randrange(len(text))
            text = text[:place] + chosen.choice([*parts, chr(chosen.randrange(0x2100))]) + text[place + chosen.randrange(3) :]
        try:
            outcomes.add(type(policy_in(text.encode())))
        except PolicyUnreadable:
            outcomes.add(PolicyUnreadable)
    assert outcomes == {Policy, PolicyUnreadable}


def test_every_policy_of_the_handbook_can_be_read() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert [policy_in(block.encode()).name for block in blocks] == [
        "City Hospital, models that leave the house", "what a first look asks"
    ]  # fmt: skip
    assert policy_in(blocks[0].encode()).largest_delta == "1e-6"


def test_the_handbooks_table_and_the_schema_name_every_field() -> None:
    fields = set(policy_schema()["properties"])
    named = set(re.findall(r"`([a-z_]+)(?:: [a-z]+)?`", PAGE.read_text()))
    assert fields - {"name"} <= named


# The command


@pytest.mark.parametrize(
    ("epsilon", "code", "line"), [(100, 0, "accepted"), (0.01, 6, "refused by the policy 'test': largest_epsilon: at most")]
)
def test_verify_says_what_fails_and_exits_with_its_own_code(
    envelope: bytes, keys: PublicKeySet, tmp_path: Path, epsilon: float, code: int, line: str
) -> None:  # fmt: skip
    (tmp_path / "certificate.json").write_bytes(envelope)
    (tmp_path / "jwks.json").write_text(keys.model_dump_json(exclude_none=True))
    (tmp_path / "policy.yaml").write_text(json.dumps(LEAST | {"largest_epsilon": epsilon}))
    given = ("verify", str(tmp_path / "certificate.json"), "--policy", str(tmp_path / "policy.yaml"))
    done = run_command(*given, "--keys", str(tmp_path / "jwks.json"))
    assert (done.returncode, line in done.stdout + done.stderr) == (code, True), done.stderr
    without = run_command(*given)
    assert (without.returncode, "accepted\n" in without.stdout) == (2, False)
    assert "--policy needs --keys" in without.stderr


def test_verify_without_a_readable_policy_checks_nothing(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("name: half of one")
    done = run_command("verify", str(tmp_path / "certificate.json"), "--policy", str(tmp_path / "policy.yaml"))
    assert done.returncode == 2
    assert "policy.yaml: " in done.stderr
    assert "largest_epsilon" in done.stderr


# The service


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = tmp_path_factory.mktemp("strict")
    demands = {"largest_epsilon": 2, "ledger": "any", "public_held_out": "forbidden", "least_canaries": 0}
    (folder / "policy.yaml").write_text(json.dumps(LEAST | demands))
    return service_settings(folder).model_copy(update={"policy": folder / "policy.yaml"})


@pytest.fixture(scope="module")
def client(strict: Settings) -> Any:
    with TestClient(create_app(strict), base_url="http://localhost", headers=AUTHORIZED) as client:
        yield client


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"evaluation": {"kind": "public_held_out"}}, "spec.evaluation"),
        ({"reproducible": True, "seed": 1}, "spec.reproducible"),
        (
            {"privacy": {"adjacency": "zero_out", "unit": "record", "delta": 1e-5, "noise_multiplier": 2.0}},
            "spec.privacy.adjacency",
        ),
    ],
)
def test_the_service_refuses_at_once_what_the_request_alone_says(client: TestClient, changes: dict[str, object], field: str) -> None:
    answer = client.post("/v1/jobs", json={"spec": spec(**({"evaluation": {"kind": "none"}} | changes))})
    assert answer.status_code == 422
    assert field in answer.text
    assert "by this service's policy 'test'" in answer.text


def test_the_service_shows_its_policy(client: TestClient) -> None:
    assert client.get("/v1/policy").json()["largest_epsilon"] == "2"
    assert client.get("/v1/policy/schema").json()["title"] == "zetadp policy"


def test_a_plan_that_does_not_meet_the_policy_is_refused_with_every_rule(run: CertificateInput) -> None:
    demanded = policy(largest_epsilon="0.01", unit=["patient"], least_canaries=5)
    assert not isinstance(run.spec, OwnModule)
    request = PreparingRequest(spec=run.spec, ledger=None, pricing_seconds=10.0, policy=demanded, facts_dir=None)
    found = prepared(request)
    assert found.plan is None
    assert found.refused is not None
    for rule in ("unit: one of patient, got record", "largest_epsilon: at most 0.01, got", "least_canaries: at least 5 canaries, got none"):
        assert rule in found.refused


def test_a_plan_that_meets_the_policy_is_prepared(run: CertificateInput) -> None:
    assert not isinstance(run.spec, OwnModule)
    assert prepared(PreparingRequest(spec=run.spec, ledger=None, pricing_seconds=10.0, policy=policy(), facts_dir=None)).plan == run.plan


def test_before_the_run_nobody_knows_whether_its_noise_will_pass(run: CertificateInput) -> None:
    assert not isinstance(run.spec, OwnModule)
    verdict = verdict_before(policy(noise_test="required"), run.spec, run.plan, None)
    assert "noise_test" not in [rule.name for rule in verdict.rules]


def test_a_service_with_a_policy_that_cannot_be_read_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("name: half of one")
    broken = service_settings(tmp_path).model_copy(update={"policy": tmp_path / "policy.yaml"})
    with pytest.raises(PolicyUnreadable, match="largest_epsilon"), TestClient(create_app(broken), base_url="http://localhost"):
        pass
