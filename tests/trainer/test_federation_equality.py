r"""Sites in their own processes' place and the simulation: the same integers, models and events, to the bit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray
from typer.testing import CliRunner

from tests.selection import chosen
from tests.trainer.federation_harness import DATA, spec_of, statement_of
from zetadp.app.cli.federation import register
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling import grid_normal
from zetadp.trainer import load_train
from zetadp.trainer.algorithms.federated.coordinated import CoordinatedRounds
from zetadp.trainer.algorithms.federated.site_rounds import SiteRounds
from zetadp.trainer.engine.noise import releasing
from zetadp.trainer.engine.run import MODEL, run
from zetadp.trainer.request import why_not_repeatable
from zetadp.trainer.site import site_of
from zetadp.trainer.sites.agreements import agree, ledger_of
from zetadp.trainer.sites.coding import decoded
from zetadp.trainer.sites.keys import make_key, public_text
from zetadp.trainer.sites.messages import RoundRequest, digest, sealed
from zetadp.trainer.sites.proposal import Proposal
from zetadp.trainer.sites.settings import SiteSettings
from zetadp.trainer.sites.site import Site
from zetadp.trainer.specs.algorithms.federated import FederatedZetaDpSgd
from zetadp.trainer.specs.algorithms.federation import SignedProposal, SiteRecord
from zetadp.trainer.specs.base import RuntimeSpec
from zetadp.trainer.specs.report import RunReport

SITES = 2
ADAPTIVE = {"kind": "adaptive", "quantile": 0.5, "learning_rate": 0.2, "count_share": 0.1}
RUNTIME = RuntimeSpec(device="cpu", threads=1)
REAL = {"kind": "sequential", "numbers": "real_pairs", "layers": [{"kind": "flatten"}, {"kind": "linear", "outputs": 10}], "head": "none"}


def _settings(folder: Path, number: int, *, allows_seeds: bool = True) -> SiteSettings:
    return SiteSettings.model_validate(
        {
            "name": "ab"[number],
            "superlink": "localhost:9092",
            "state": folder / "ab"[number],
            "data": DATA,
            "share": {"number": number, "sites": SITES, "seed": 0},
            "budget": {"epsilon": 100.0, "delta": 1e-5, "adjacency": "add_remove", "unit": "record"},
            "allows_seeds": allows_seeds,
        }
    )


class Together:
    """Sites in this process, asked as a coordinator asks them; ``missing`` is silent."""

    def __init__(
        self, proposal: Proposal, coordinator: Ed25519PrivateKey, sites: list[Site], missing: tuple[int, int] | None, dies: bool = False
    ) -> None:
        self._proposal, self._key, self._sites, self._missing, self._dies = proposal, coordinator, sites, missing, dies

    def __enter__(self) -> Together:
        return self

    def __exit__(self, *raised: object) -> None:
        pass

    def records(self) -> tuple[SiteRecord, ...]:
        return ()

    @property
    def proposal(self) -> SignedProposal:
        return self._proposal.signed

    def round(self, number: int, parameters: NDArray[np.float32]) -> Mapping[int, NDArray[np.int64]]:
        payload = parameters.tobytes()
        request = RoundRequest(proposal=self._proposal.digest, round=number, numbers=len(parameters), payload=digest(payload))
        frame = sealed(request, payload, self._key)
        found = {place: statement_of(site.answer(frame)) for place, site in enumerate(self._sites) if self._missing != (number, place)}
        if self._dies:
            raise KeyboardInterrupt  # as if it were killed: nothing is kept
        return {place: decoded(parts.payload, header.numbers, header.width) for place, (header, parts) in found.items()}


def _spec(folder: Path, coordinator: Ed25519PrivateKey, keys: list[Ed25519PrivateKey], **changes: object) -> FederatedZetaDpSgd:
    del folder
    return spec_of(public_text(coordinator), [public_text(key) for key in keys], **{"steps": 3, "reproducible": True, "seed": 5} | changes)


def _federated(folder: Path, *, missing: tuple[int, int] | None = None, **changes: object) -> tuple[RunReport, FederatedZetaDpSgd]:
    coordinator = Ed25519PrivateKey.generate()
    keys = [make_key(_settings(folder, number).key_file) for number in range(SITES)]
    spec = _spec(folder, coordinator, keys, **changes)
    proposal = Proposal.of(spec, spec.plan())
    for number, key in enumerate(keys):
        agree(proposal, _settings(folder, number), key)
    sites = [site_of(_settings(folder, number), key) for number, key in enumerate(keys)]
    algorithm = CoordinatedRounds(spec, proposal.plan, lambda _setting: Together(proposal, coordinator, sites, missing))
    return run(algorithm, RUNTIME, folder / "run", report=lambda _event: None, should_stop=lambda: False), spec


CASES: dict[str, dict[str, object]] = {"complex": {}, "real": {"model": REAL}, "per_layer": {"clipping": {"kind": "per_layer"}}}


@pytest.mark.parametrize("case", chosen(CASES, ["complex"]))
def test_sites_release_what_the_simulation_releases_to_the_bit(tmp_path: Path, case: str) -> None:
    found, spec = _federated(tmp_path, **CASES[case])
    plain = FederatedZetaDpSgd.model_validate(dict(spec) | {"transport": "simulated", "federation": None})
    simulated = load_train(plain)(
        plain, plain.plan(), RUNTIME, tmp_path / "simulated", report=lambda _event: None, should_stop=lambda: False
    )
    assert (tmp_path / "run" / MODEL).read_bytes() == (tmp_path / "simulated" / MODEL).read_bytes()
    assert (found.event, found.noise_std, found.metrics) == (simulated.event, simulated.noise_std, simulated.metrics)
    # Nobody but the sites themselves could test their noise and their samples.
    assert found.noise_test is None
    assert found.sample_test is None


def test_sites_release_long_vectors_in_parts_as_the_simulation_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releasing, "PART", 64)
    monkeypatch.setattr(grid_normal, "TOGETHER", 64)
    test_sites_release_what_the_simulation_releases_to_the_bit(tmp_path, "complex")


@pytest.mark.slow
def test_a_missing_answer_is_another_model_and_the_same_event(tmp_path: Path) -> None:
    whole, _ = _federated(tmp_path / "whole")
    less, _ = _federated(tmp_path / "less", missing=(2, 1))
    assert whole.event == less.event
    assert (tmp_path / "whole" / "run" / MODEL).read_bytes() != (tmp_path / "less" / "run" / MODEL).read_bytes()


def test_a_coordinator_that_died_in_its_first_round_asks_it_again_for_the_same_parameters(tmp_path: Path) -> None:
    coordinator, keys = Ed25519PrivateKey.generate(), [make_key(_settings(tmp_path, number).key_file) for number in range(SITES)]
    spec = _spec(tmp_path, coordinator, keys, reproducible=False, seed=None)
    proposal = Proposal.of(spec, spec.plan())
    for number, key in enumerate(keys):
        agree(proposal, _settings(tmp_path, number), key)
    sites = [site_of(_settings(tmp_path, number), key) for number, key in enumerate(keys)]

    def attempt(*, dies: bool) -> RunReport:
        algorithm = CoordinatedRounds(spec, proposal.plan, lambda _setting: Together(proposal, coordinator, sites, None, dies))
        return run(algorithm, RUNTIME, tmp_path / "run", report=lambda _event: None, should_stop=lambda: False)

    with pytest.raises(KeyboardInterrupt):
        attempt(dies=True)
    # The first weights have no seed: drawn anew, every site would refuse the round, and the run could never be finished.
    assert attempt(dies=False).steps_released == 3


def test_a_site_agrees_to_nothing_that_isnt_its_own(tmp_path: Path) -> None:
    coordinator = Ed25519PrivateKey.generate()
    keys = [make_key(_settings(tmp_path, number).key_file) for number in range(SITES)]
    seeded = _spec(tmp_path, coordinator, keys)
    for spec, settings, key, why in (
        (seeded, _settings(tmp_path, 0), keys[1], "a list with 'a' and its key"),
        (seeded, _settings(tmp_path, 0, allows_seeds=False), keys[0], "spec.reproducible must be false"),
        (seeded, SiteSettings.model_validate(dict(_settings(tmp_path, 0)) | {"data": DATA | {"kind": "digits_images"}}), keys[0], "model"),
    ):
        with pytest.raises(InvalidParameter, match=why):
            agree(Proposal.of(spec, spec.plan()), settings, key)
    other = Proposal.model_validate(dict(Proposal.of(seeded, seeded.plan())) | {"code": "0" * 64})
    with pytest.raises(InvalidParameter, match="that of the code installed here"):
        agree(other, _settings(tmp_path, 0), keys[0])
    # A plan that isn't the spec's: its noise is smaller than what the spec asks for.
    plan = seeded.plan()
    weaker = type(plan).model_validate(dict(plan) | {"mechanism": plan.mechanism.scaled(0.5)})
    with pytest.raises(InvalidParameter, match=r"plan\.mechanism\.std must be 1\.0, as the spec says"):
        agree(Proposal.of(seeded, weaker), _settings(tmp_path, 0), keys[0])


def test_a_site_agrees_to_no_noise_that_misses_the_specs_epsilon(tmp_path: Path) -> None:
    keys = [make_key(_settings(tmp_path, number).key_file) for number in range(SITES)]
    privacy = {"adjacency": "add_remove", "unit": "record", "delta": 1e-5, "epsilon": 1.0}
    spec = _spec(tmp_path, Ed25519PrivateKey.generate(), keys, privacy=privacy)
    plan = spec.plan()
    weaker = type(plan).model_validate(dict(plan) | {"mechanism": plan.mechanism.scaled(0.5)})
    with pytest.raises(InvalidParameter, match="enough noise for the spec's epsilon of 1"):
        agree(Proposal.of(spec, weaker), _settings(tmp_path, 0), keys[0])
    agree(Proposal.of(spec, plan), _settings(tmp_path, 0), keys[0])


def test_a_site_sums_in_secret_only_with_sites_whose_keys_its_operator_entered(tmp_path: Path) -> None:
    keys = [make_key(_settings(tmp_path, number).key_file) for number in range(SITES)]
    spec = _spec(tmp_path, Ed25519PrivateKey.generate(), keys, aggregation={"kind": "secure", "dropouts": 0, "colluding": 1})
    proposal = Proposal.of(spec, spec.plan())
    # A coordinator that made up all other sites would take their noise off the sum.
    for known, why in (
        ({}, "sites that the list `sites` of a's settings names, with their keys, got 'b'"),
        ({"b": public_text(Ed25519PrivateKey.generate())}, "a list in which b has the key of a's settings"),
        ({"c": public_text(keys[1])}, "sites that the list `sites` of a's settings names, with their keys, got 'b'"),
    ):
        settings = SiteSettings.model_validate(dict(_settings(tmp_path, 0)) | {"sites": known})
        with pytest.raises(InvalidParameter, match=why):
            agree(proposal, settings, keys[0])
    settings = SiteSettings.model_validate(dict(_settings(tmp_path, 0)) | {"sites": {"b": public_text(keys[1])}})
    agree(proposal, settings, keys[0])
    # A site that starts after its list was changed takes no part either.
    with pytest.raises(InvalidParameter, match="the list `sites`"):
        SiteRounds(proposal, _settings(tmp_path, 0), public_text(keys[0]))


def test_an_operator_reads_what_a_proposal_does_and_what_is_left(tmp_path: Path) -> None:
    keys = [make_key(_settings(tmp_path, number).key_file) for number in range(SITES)]
    spec = _spec(tmp_path, Ed25519PrivateKey.generate(), keys)
    (tmp_path / "proposal.json").write_text(Proposal.of(spec, spec.plan()).model_dump_json())
    app = typer.Typer()
    register(app)

    def command(*arguments: str, epsilon: float = 100.0) -> str:
        settings = _settings(tmp_path, 0).model_dump(mode="json", exclude_none=True)
        (tmp_path / "a.yaml").write_text(json.dumps(settings | {"budget": settings["budget"] | {"epsilon": epsilon}}))
        found = CliRunner().invoke(app, ["federation", *arguments, "--settings", str(tmp_path / "a.yaml")])
        return f"{found.exit_code}: {found.output}"

    agree_to = ("agree", str(tmp_path / "proposal.json"), "--yes")
    said = command(*agree_to)
    assert said.startswith("0: ")
    assert "Guarantee: none. REPRODUCIBLE" in said
    for name, key in zip("ab", keys, strict=True):
        assert f"Site {name}: {public_text(key)}" in said
    assert "epsilon" not in said.split("Guarantee")[1].split("Your budget")[0]
    # A smaller budget than what is spent leaves nothing, and is no error.
    proposal = Proposal.model_validate_json((tmp_path / "proposal.json").read_bytes())
    ledger = ledger_of(_settings(tmp_path, 0))
    for number in (1, 2, 3):
        ledger.reserve(proposal.digest, proposal.plan.event_after(1), number, "0" * 64)
    assert "3 of 3 rounds charged; the budget admits 0 more" in command("status", epsilon=1.0)
    assert "it admits 0 of these rounds" in command(*agree_to, epsilon=1.0)
    assert command("status", epsilon=0.1).startswith("2: ")
    _settings(tmp_path, 0).ledger_file.unlink()
    for arguments in (("status",), agree_to):
        said = command(*arguments)
        assert not said.startswith("0: ")
        assert "stands nowhere else" in " ".join(said.split())


def test_a_federation_over_a_network_needs_its_participants(tmp_path: Path) -> None:
    spec = _spec(tmp_path, Ed25519PrivateKey.generate(), [Ed25519PrivateKey.generate() for _ in range(2)])
    for changes, why in (
        ({"federation": None}, "federation.sites must be as many as nodes"),
        ({"nodes": 3}, "federation.sites must be as many as nodes"),
        ({"transport": "simulated"}, "federation must be absent"),
        ({"declared_units": None}, "declared_units must be given"),
        (
            {"clipping": ADAPTIVE},
            "clipping must be flat without a schedule, or per_layer",
        ),
        ({"audit": {"kind": "canaries", "canaries": 100}}, "audit must be absent"),
        ({"evaluation": {"kind": "private_accuracy", "noise_std": 1.0, "every_steps": 2}}, "evaluation must be none or public_held_out"),
    ):
        with pytest.raises(ValueError, match=why):
            FederatedZetaDpSgd.model_validate(dict(spec) | changes)


def test_no_auditor_repeats_what_only_sites_drew() -> None:
    keys = [public_text(Ed25519PrivateKey.generate()) for _ in range(3)]
    spec = spec_of(keys[0], keys[1:])
    assert why_not_repeatable(spec, RUNTIME, spec.plan()) == "the noise is drawn at the sites, from random numbers of their own"
