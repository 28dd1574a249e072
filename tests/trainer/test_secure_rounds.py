r"""Secure sums of sites: who drops out when, what is charged, what a site refuses; and the simulation's own models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from tests.selection import chosen, thinned
from tests.trainer.federation_harness import DATA, NUMBERS
from tests.trainer.secure_harness import PARAMETERS, SITES, Sites, expected, total
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import load_train
from zetadp.trainer.algorithms.federated.coordinated import CoordinatedRounds
from zetadp.trainer.algorithms.federated.site_rounds import SiteRounds
from zetadp.trainer.engine.run import MODEL, Setting, run
from zetadp.trainer.sites.forms import form_of
from zetadp.trainer.sites.keys import SIGNATURE_BYTES, public_text
from zetadp.trainer.sites.messages import LONGEST_HEADER, Refusal, RoundRequest, SecureRequest, Statement, digest, opened, read, sealed
from zetadp.trainer.sites.proposal import Proposal
from zetadp.trainer.sites.record import checked_statements
from zetadp.trainer.sites.secure import requests
from zetadp.trainer.sites.secure.parts import Part
from zetadp.trainer.sites.secure.parts import sealed as seal_part
from zetadp.trainer.sites.secure.party import COMMITMENT_BYTES, SEALED_BYTES, STEPS
from zetadp.trainer.sites.secure.requests import joined
from zetadp.trainer.sites.secure.rounds import SecureRounds
from zetadp.trainer.sites.settings import SiteSettings
from zetadp.trainer.sites.site import Drawing, Site
from zetadp.trainer.specs.algorithms.federated import FederatedZetaDpSgd
from zetadp.trainer.specs.algorithms.federation import SignedProposal, SiteRecord
from zetadp.trainer.specs.base import RuntimeSpec

RUNTIME = RuntimeSpec(device="cpu", threads=1)


def test_a_round_is_the_sum_of_all_sites_whose_statements_are_of_masked_integers(tmp_path: Path) -> None:
    sites = Sites(tmp_path)
    rounds = sites.rounds()
    for number in (1, 2):
        found = rounds.round(number, PARAMETERS)
        assert (sorted(found), total(found)) == ([0, 1, 2, 3], expected([0, 1, 2, 3]))
    assert sites.charged() == [2] * SITES
    assert [(one.answered, one.arrived, one.charged) for one in rounds.standing()] == [(True, 2, 2)] * SITES
    records = rounds.record.finished(tmp_path)
    content = (tmp_path / "statements.jsonl").read_bytes()
    assert checked_statements(
        sites.proposal.federation.sites, sites.proposal.digest, 2, form_of(sites.proposal.plan, NUMBERS), content
    ) == (records, ())
    assert [site.arrived for site in records] == [2] * SITES


@pytest.mark.parametrize("step", thinned(STEPS, every=2))
def test_a_site_that_drops_out_is_in_the_sum_or_isnt(tmp_path: Path, step: str) -> None:
    sites = Sites(tmp_path)
    sites.lost = {(1, later) for later in STEPS[STEPS.index(step) :]}
    found = sites.rounds().round(1, PARAMETERS)
    there = [0, 1, 2, 3] if step in {"agreed", "revealed"} else [0, 2, 3]
    assert (sorted(found), total(found)) == (there, expected(there))
    assert sites.charged() == [1, 1 if 1 in there else 0, 1, 1]


def test_a_site_that_comes_back_is_waited_for_again(tmp_path: Path) -> None:
    sites = Sites(tmp_path)
    rounds = sites.rounds()
    sites.lost = {(1, step) for step in STEPS}
    assert sorted(rounds.round(1, PARAMETERS)) == [0, 2, 3]
    sites.lost = set()
    found = [sorted(rounds.round(number, PARAMETERS)) for number in (2, 3)]
    assert found[-1] == [0, 1, 2, 3]


@pytest.mark.parametrize("step", thinned(["shares", "masked", "agreed", "revealed"], every=2))
def test_a_round_that_too_few_stay_in_gives_nothing_and_the_next_one_goes_on(tmp_path: Path, step: str) -> None:
    sites = Sites(tmp_path)
    rounds = sites.rounds()
    sites.lost = {(1, step), (2, step)}
    assert rounds.round(1, PARAMETERS) == {}
    drawn = {"shares": [0, 0, 0, 0], "masked": [1, 0, 0, 1]}.get(step, [1] * SITES)
    assert sites.charged() == drawn
    sites.lost = set()
    assert total(rounds.round(2, PARAMETERS)) == expected([0, 1, 2, 3])
    # Nothing was drawn twice for one number.
    assert len(sites.draws) == len(set(sites.draws))


@pytest.mark.parametrize("step", thinned(["masked", "agreed", "revealed"], every=3))
def test_a_coordinator_that_dies_in_a_round_gets_nothing_of_it_afterwards(tmp_path: Path, step: str) -> None:
    sites = Sites(tmp_path)

    class Dead(Exception):
        pass

    plain = sites.send

    def dying(frame: bytes) -> None:
        plain(frame)
        if read(SecureRequest, opened(frame)).step == step:
            raise Dead

    sites.send = dying
    with pytest.raises(Dead):
        sites.rounds().round(1, PARAMETERS)
    sites.send = plain
    rounds = sites.rounds()
    assert rounds.round(1, PARAMETERS) == {}
    assert total(rounds.round(2, PARAMETERS)) == expected([0, 1, 2, 3])
    assert sites.draws == [(site, number) for number in (1, 2) for site in range(SITES)]


def test_a_coordinator_takes_a_finished_round_from_its_own_record(tmp_path: Path) -> None:
    sites = Sites(tmp_path)
    first = sites.rounds().round(1, PARAMETERS)
    asked = len(sites.sent)
    again = sites.rounds()
    assert {site: integers.tolist() for site, integers in again.round(1, PARAMETERS).items()} == {
        site: integers.tolist() for site, integers in first.items()
    }
    assert len(sites.sent) == asked
    again.forget(1)
    assert again.round(1, PARAMETERS) == {}  # which no checkpoint would ask for


@pytest.mark.parametrize("header", [b"[" * LONGEST_HEADER, b'{"site":' * 500, b"\xff", b"{}"], ids=["deep", "cut", "bytes", "empty"])
def test_what_nobody_signed_ends_no_round(tmp_path: Path, header: bytes) -> None:
    sites = Sites(tmp_path)
    plain = sites.send

    def send(frame: bytes) -> None:
        sites.waiting.append(len(header).to_bytes(4, "big") + header + bytes(SIGNATURE_BYTES))
        plain(frame)

    sites.send = send
    assert total(sites.rounds().round(1, PARAMETERS)) == expected([0, 1, 2, 3])


def test_too_few_sites_from_the_beginning_end_the_run(tmp_path: Path) -> None:
    sites = Sites(tmp_path)
    sites.lost = {(1, "keys"), (2, "keys")}
    with pytest.raises(InvalidParameter, match="at least 3 that answer, got '0 that refuse, 2 that are silent'"):
        sites.rounds().round(1, PARAMETERS)
    assert sites.charged() == [0] * SITES


def test_a_site_halts_at_its_budget_before_it_draws(tmp_path: Path) -> None:
    sites = Sites(tmp_path, epsilon=4.0)
    most = sites.ledger(0).rounds_left(sites.proposal.plan.event_after(1))
    assert 1 <= most < 6
    rounds = sites.rounds()
    for number in range(1, most + 1):
        rounds.round(number, PARAMETERS)
    with pytest.raises(InvalidParameter, match="2 that refuse"):
        rounds.round(most + 1, PARAMETERS)
    assert sites.charged() == [most] * SITES
    assert len(sites.draws) == SITES * most


def test_what_cannot_be_drawn_is_no_error_of_the_protocol(tmp_path: Path) -> None:
    sites = Sites(tmp_path)
    failures: list[Exception] = []

    def draw(_number: int, _parameters: NDArray[np.float32]) -> NDArray[np.int64]:
        raise InvalidParameter("value", "finite in every coordinate", "a value with NaN or infinity")

    agreed = {sites.proposal.digest: sites.proposal}
    sites.sites[0] = Site("a", sites.keys[0], sites.ledger(0), lambda: agreed, lambda _proposal: (NUMBERS, draw), failures.append)
    rounds = sites.rounds()
    assert total(rounds.round(1, PARAMETERS)) == expected([1, 2, 3])
    # It may depend on the data: said of a round that is charged, without more, and told to the site's own log.
    assert [one.refusal for one in rounds.standing()] == ["failed", None, None, None]
    assert sites.charged() == [1] * SITES
    assert [str(error.__cause__) for error in failures] == ["value must be finite in every coordinate, got 'a value with NaN or infinity'"]


def test_a_site_that_restarts_has_forgotten_its_part(tmp_path: Path) -> None:
    sites = Sites(tmp_path)
    sites.rounds().round(1, PARAMETERS)
    sites.sites[0] = sites.opened(0)
    assert [sites.reason(frame) for frame in sites.sent] == ["spent_round"] + ["protocol"] * 4
    assert len(sites.draws) == SITES


def test_a_share_of_the_noise_is_never_released_by_itself(tmp_path: Path) -> None:
    sites = Sites(tmp_path)
    payload = PARAMETERS.tobytes()
    request = RoundRequest(proposal=sites.proposal.digest, round=1, numbers=NUMBERS, payload=digest(payload))
    assert sites.reason(sealed(request, payload, sites.coordinator)) == "protocol"
    (tmp_path / "whole").mkdir()
    whole = Sites(tmp_path / "whole", aggregation=None)
    secure = SecureRequest(proposal=whole.proposal.digest, round=1, session="0" * 64, step="keys", numbers=NUMBERS, payload=digest(b""))
    assert whole.reason(sealed(secure, b"", whole.coordinator)) == "protocol"
    assert not sites.draws + whole.draws


def test_a_step_asked_again_gets_the_bytes_that_it_got_and_another_one_for_the_same_round_nothing(tmp_path: Path) -> None:
    sites = Sites(tmp_path)
    sites.rounds().round(1, PARAMETERS)
    last = sites.sent[-1]
    assert sites.sites[0].answer(last) == sites.sites[0].answer(last)
    request = read(SecureRequest, opened(sites.sent[0]))
    other = SecureRequest.model_validate(dict(request) | {"session": "1" * 64})
    assert sites.reason(sealed(other, b"", sites.coordinator)) == "spent_round"
    assert sites.reason(sealed(request, b"", Ed25519PrivateKey.generate())) == "not_signed"
    assert len(sites.draws) == SITES


def test_sites_sign_for_which_parameters_they_drew(tmp_path: Path) -> None:
    """A coordinator that gives one site others than the rest gets no sum."""
    sites = Sites(tmp_path)
    shares = joined(sites.ask("shares", joined(sites.ask("keys", b""))))
    sites.ask("masked", (PARAMETERS + 1.0).tobytes() + shares, *[PARAMETERS.tobytes() + shares] * (SITES - 1))
    agreed = sites.ask("agreed", b"a b c d")
    views = [opened(frame).payload for frame in agreed]
    assert views[0] != views[1] == views[2] == views[3]
    assert [read(Refusal, opened(frame)).reason for frame in sites.ask("revealed", joined(agreed))] == ["protocol"] * SITES


def test_a_step_of_another_round_isnt_taken_for_the_next_one(tmp_path: Path) -> None:
    sites = Sites(tmp_path)
    shares = joined(sites.ask("shares", joined(sites.ask("keys", b""))))
    answers = sites.ask("masked", PARAMETERS.tobytes() + shares, number=2)
    assert [read(Refusal, opened(frame)).reason for frame in answers] == ["protocol"] * SITES
    assert sites.draws == []
    assert sites.charged() == [0] * SITES


WRONG: dict[str, tuple[dict[str, Any], int]] = {
    "width": ({"width": 7}, 0),
    "numbers": ({"numbers": NUMBERS - 1}, 0),
    "length": ({}, 1),
    "size": ({"size": 10**6}, 0),
    "ledger": ({"charged": 2}, 0),
    "request": ({"request": "0" * 64}, 0),
}
"""What a site's header says that isn't so, and how many bytes are missing."""


@pytest.mark.parametrize("what", thinned(WRONG, every=2))
def test_a_masked_statement_that_doesnt_fit_isnt_in_the_sum(tmp_path: Path, what: str) -> None:
    sites, (lie, missing) = Sites(tmp_path), WRONG[what]

    def changed(site: int, step: str, answer: bytes) -> bytes:
        if (site, step) != (1, "masked"):
            return answer
        found = opened(answer)
        payload = found.payload[: len(found.payload) - missing]
        return sealed(Statement.model_validate(dict(read(Statement, found)) | {"payload": digest(payload)} | lie), payload, sites.keys[1])

    sites.changed = changed
    rounds = sites.rounds()
    arrived = rounds.round(1, PARAMETERS)
    assert (sorted(arrived), total(arrived)) == ([0, 2, 3], expected([0, 2, 3]))
    assert [one.answered for one in rounds.standing()] == [True, False, True, True]


@pytest.mark.parametrize("other", thinned([{"bits": 20}, {"factor": 1.0}, {"held": 7.0}, {"honest": 3}, {"widened": 1.001}], every=3))
def test_sites_with_another_grid_have_no_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: dict[str, float]) -> None:
    sites = Sites(tmp_path)
    plain = requests.share_grid

    def sum_of() -> str:
        request = SecureRequest(proposal="1" * 64, round=1, session="2" * 64, step="keys", numbers=NUMBERS, payload="3" * 64)
        return requests.sum_of(sites.proposal, request, NUMBERS).session

    first = sum_of()
    assert sum_of() == first
    monkeypatch.setattr(requests, "share_grid", lambda plan, numbers: replace(plain(plan, numbers), **other))
    assert sum_of() != first


@pytest.mark.parametrize(
    ("step", "there", "said"),
    [
        ("keys", [0, 2, 3], "site b sent what is late or wrong in keys"),
        ("revealed", [0, 1, 2, 3], "site b revealed wrong shares, which the others' make up for"),
    ],
)
def test_a_site_that_sends_what_nobody_can_use_is_named_and_spoils_no_round(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], step: str, there: list[int], said: str
) -> None:
    sites = Sites(tmp_path)

    def changed(site: int, asked: str, answer: bytes) -> bytes:
        if (site, asked) != (1, step):
            return answer
        found = opened(answer)
        payload = bytes(len(found.payload))
        part = Part.model_validate(dict(Part.model_validate_json(found.header)) | {"payload": digest(payload)})
        return seal_part(part, payload, sites.keys[1])

    sites.changed = changed
    found = sites.rounds().round(1, PARAMETERS)
    assert (sorted(found), total(found)) == (there, expected(there))
    assert said in capsys.readouterr().err


def test_who_gets_shares_that_cannot_be_decrypted_logs_whose_they_are_and_tells_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sites = Sites(tmp_path)

    def changed(site: int, asked: str, answer: bytes) -> bytes:
        if (site, asked) != (1, "shares"):
            return answer
        found = opened(answer)
        # Of the shares for a, c and d those for c.
        begins = COMMITMENT_BYTES + SEALED_BYTES
        payload = found.payload[:begins] + bytes(SEALED_BYTES) + found.payload[begins + SEALED_BYTES :]
        part = Part.model_validate(dict(Part.model_validate_json(found.header)) | {"payload": digest(payload)})
        return seal_part(part, payload, sites.keys[1])

    sites.changed = changed
    # The site that was changed here refuses as well: it doesn't find its own message.
    assert sites.rounds().round(1, PARAMETERS) == {}
    assert sites.charged() == [1, 0, 0, 1]
    [(recipient, error)] = sites.unreadable
    assert (recipient, error.sender) == ("c", "b")
    assert error.__notes__ == [f"in round 1 of proposal {sites.proposal.digest}"]
    assert "site c refuses masked: protocol\n" in (told := capsys.readouterr().err)
    assert "encrypted" not in told


class _Connected:
    """The sites of a run, asked by a coordinator's secure rounds; one of them may be missing in the second one."""

    def __init__(self, sites: Sites, setting: Setting, *, lost: bool) -> None:
        self._sites, self._folder, self._lost = sites, setting.workdir, lost
        self._rounds: SecureRounds | None = None

    def __enter__(self) -> _Connected:
        return self

    def __exit__(self, *raised: object) -> None:
        pass

    def records(self) -> tuple[SiteRecord, ...]:
        return ()

    @property
    def proposal(self) -> SignedProposal:
        return self._sites.proposal.signed

    def round(self, number: int, parameters: NDArray[np.float32]) -> Mapping[int, NDArray[np.int64]]:
        if self._rounds is None:
            self._rounds = self._sites.rounds(self._folder, len(parameters))
        self._sites.lost = {(1, step) for step in STEPS} if self._lost and number == 2 else set()
        return self._rounds.round(number, parameters)


@pytest.mark.parametrize("lost", chosen([False, True], [False]))
def test_sites_in_a_secure_sum_train_the_simulations_model_to_the_bit(tmp_path: Path, *, lost: bool) -> None:
    def settings(site: int) -> SiteSettings:
        return SiteSettings.model_validate(
            {
                "name": "abcd"[site],
                "superlink": "localhost:9092",
                "state": tmp_path / "abcd"[site],
                "data": DATA,
                "share": {"number": site, "sites": SITES, "seed": 0},
                "budget": {"epsilon": 100.0, "delta": 1e-5, "adjacency": "add_remove", "unit": "record"},
                "allows_seeds": True,
                "sites": {"abcd"[other]: public_text(key) for other, key in enumerate(sites.keys)},
            }
        )

    def drawing(site: int) -> Drawing:
        def prepared(proposal: Proposal) -> tuple[int, Callable[[int, NDArray[np.float32]], NDArray[np.int64]]]:
            rounds = SiteRounds(proposal, settings(site), public_text(sites.keys[site]))
            return rounds.numbers, rounds.draw

        return prepared

    sites = Sites(tmp_path, drawing=drawing, steps=3, reproducible=True, seed=5)
    spec, plan = sites.proposal.spec, sites.proposal.plan
    algorithm = CoordinatedRounds(spec, plan, lambda setting: _Connected(sites, setting, lost=lost))
    report = run(algorithm, RUNTIME, tmp_path / "run", report=lambda _event: None, should_stop=lambda: False)
    plain = FederatedZetaDpSgd.model_validate(dict(spec) | {"transport": "simulated", "federation": None})
    simulated = load_train(plain)(
        plain, plain.plan(), RUNTIME, tmp_path / "simulated", report=lambda _event: None, should_stop=lambda: False
    )
    assert (report.event, report.noise_std) == (simulated.event, simulated.noise_std)
    assert ((tmp_path / "run" / MODEL).read_bytes() == (tmp_path / "simulated" / MODEL).read_bytes()) is not lost
    assert sites.charged() == [3, 2 if lost else 3, 3, 3]
