r"""A site is its own master: what it answers, what it refuses, and what its ledger holds after any crash."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from tests.trainer.federation_harness import NUMBERS, MadeUp, statement_of
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import site as trainer_site
from zetadp.trainer.sites import frames
from zetadp.trainer.sites.agreements import agreements_in
from zetadp.trainer.sites.coding import decoded
from zetadp.trainer.sites.ledger import make_ledger
from zetadp.trainer.sites.local_line import listening
from zetadp.trainer.sites.messages import FIRST, HEAD, LONGEST_HEADER, Reason, RoundRequest, digest, sealed
from zetadp.trainer.sites.proposal import Proposal
from zetadp.trainer.sites.site import Draw, Site


def test_an_answer_is_a_signed_statement_that_follows_the_one_before(tmp_path: Path) -> None:
    made_up = MadeUp(tmp_path)
    first, second = (statement_of(made_up.site.answer(made_up.request(number))) for number in (1, 3))
    assert first[1].is_by(made_up.public)
    assert decoded(first[1].payload, first[0].numbers, first[0].width).tolist() == [1000, 1001, 1002, 1003, 1004]
    assert (first[0].round, first[0].charged, first[0].previous) == (1, 1, FIRST)
    # A round that never reached the site isn't charged.
    assert (second[0].round, second[0].charged, second[0].previous) == (3, 2, digest(first[1].header))


def test_a_round_asked_again_gets_the_bytes_that_it_got(tmp_path: Path) -> None:
    made_up = MadeUp(tmp_path)
    request = made_up.request(1)
    first = made_up.site.answer(request)
    assert made_up.site.answer(request) == first
    assert made_up.opened().answer(request) == first
    assert made_up.draws == [1]
    assert made_up.ledger.charged(made_up.proposal.digest) == 1


def test_a_round_asked_again_with_other_parameters_is_refused(tmp_path: Path) -> None:
    made_up = MadeUp(tmp_path)
    made_up.site.answer(made_up.request(1))
    assert made_up.reason(made_up.request(1, [1.0] * NUMBERS)) == "spent_round"
    assert made_up.draws == [1]


def test_a_crash_after_the_charge_leaves_a_round_that_is_never_drawn_for_again(tmp_path: Path) -> None:
    def killed(_number: int, _parameters: NDArray[np.float32]) -> NDArray[np.int64]:
        raise KeyboardInterrupt

    made_up = MadeUp(tmp_path, draw=killed)
    with pytest.raises(KeyboardInterrupt):
        made_up.site.answer(made_up.request(1))
    made_up.site = made_up.opened()
    assert made_up.reason(made_up.request(1)) == "spent_round"
    assert made_up.draws == [1]
    assert statement_of(made_up.site.answer(made_up.request(2)))[0].charged == 2


def test_an_error_while_drawing_is_charged_and_says_no_more(tmp_path: Path) -> None:
    def broken(_number: int, _parameters: NDArray[np.float32]) -> NDArray[np.int64]:
        raise RuntimeError("a patient's name")

    made_up = MadeUp(tmp_path, draw=broken)
    frame = made_up.site.answer(made_up.request(1))
    assert b"patient" not in frame
    assert made_up.ledger.charged(made_up.proposal.digest) == 1
    assert [str(error) for error in made_up.failures] == ["a patient's name"]


def test_data_that_cannot_be_trained_on_are_no_uncharged_answer(tmp_path: Path) -> None:
    made_up = MadeUp(tmp_path)

    def broken(_proposal: Proposal) -> tuple[int, Draw]:
        raise ValueError("a patient's name")

    agreed = agreements_in(tmp_path / "agreements", made_up.public)
    made_up.site = Site("a", made_up.key, made_up.ledger, lambda: agreed, broken, made_up.failures.append)
    assert made_up.reason(made_up.request(1)) == "failed"
    assert made_up.ledger.charged(made_up.proposal.digest) == 1
    assert made_up.reason(made_up.request(1)) == "spent_round"


@pytest.mark.parametrize("lost", ["missing", "empty", "other"])
def test_a_ledger_that_is_lost_is_never_made_anew(tmp_path: Path, lost: str) -> None:
    made_up = MadeUp(tmp_path)
    made_up.site.answer(made_up.request(1))
    path = tmp_path / "ledger.sqlite"
    path.unlink()
    if lost != "missing":
        path.write_bytes(b"" if lost == "empty" else b"another file")
    # A running site draws nothing from then on, and none starts.
    frame = made_up.request(2)
    assert made_up.reason(frame) == "failed"
    assert made_up.draws == [1]
    with pytest.raises(InvalidParameter, match="what it has drawn and spent stands nowhere else"):
        made_up.opened()
    assert path.exists() == (lost != "missing")


def test_a_ledger_is_made_once(tmp_path: Path) -> None:
    make_ledger(tmp_path / "ledger.sqlite")
    with pytest.raises(FileExistsError):
        make_ledger(tmp_path / "ledger.sqlite")


def _received(made_up: MadeUp, frame: bytes) -> bytes | None:
    """What the site's process takes of a frame; all of it is sent."""
    here, there = socket.socketpair()
    with here, there:
        sending = Thread(target=frames.send, args=(here, frame))
        sending.start()
        found = frames.receive(there, made_up.site.admitted)
        sending.join(30.0)
        assert not sending.is_alive()
        return found


def test_no_more_is_read_than_a_coordinator_has_signed_for(tmp_path: Path) -> None:
    made_up = MadeUp(tmp_path)
    good = made_up.request(1)
    assert _received(made_up, good) == good
    much = [0.0] * 10_000
    stranger = made_up.request(1, much, key=Ed25519PrivateKey.generate())
    unknown = made_up.request(1, much, proposal="0" * 64)
    padded = made_up.request(1) + bytes(100_000)
    for frame in (stranger, unknown, padded, bytes(100_000)):
        assert _received(made_up, frame) == frame[:HEAD]
    signed = made_up.request(1, much)
    assert _received(made_up, signed) == signed  # it isn't known yet how many parameters there are
    made_up.site.answer(good)
    assert _received(made_up, signed) == signed[:HEAD]
    assert made_up.reason(signed[:HEAD]) == "unreadable"


def test_who_connects_and_sends_nothing_or_half_a_request_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer_site, "FRAME_SECONDS", 0.2)
    made_up, stopped = MadeUp(tmp_path), list[int]()
    with tempfile.TemporaryDirectory(prefix="zetadp-") as short, listening(Path(short) / "s", 4) as asked, ExitStack() as open_:
        serving = Thread(target=trainer_site.answer, args=(made_up.site, asked, stopped, None))
        serving.start()
        open_.callback(serving.join, 30.0)
        open_.callback(stopped.append, 15)
        silent, half, whole = (open_.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(3))
        for connection in (silent, half, whole):
            connection.settimeout(30.0)
            connection.connect(f"{short}/s")
        half.sendall((100).to_bytes(8, "big") + b"half")
        for connection in (whole, silent):
            frames.send(connection, made_up.request(1))
            answer = frames.receive(connection, lambda _head: 10_000)
            assert answer is not None
            assert statement_of(answer)[0].round == 1
        assert half.recv(1) == b""
    assert not serving.is_alive()


def test_a_charge_is_on_disk_before_anything_is_drawn(tmp_path: Path) -> None:
    charged: list[int] = []

    def draw(_number: int, _parameters: NDArray[np.float32]) -> NDArray[np.int64]:
        charged.append(made_up.ledger.charged(made_up.proposal.digest))
        return np.arange(NUMBERS)

    made_up = MadeUp(tmp_path, draw=draw)
    made_up.site.answer(made_up.request(1))
    assert charged == [1]


def test_a_site_halts_at_its_budget_whatever_federation_asks(tmp_path: Path) -> None:
    made_up = MadeUp(tmp_path, epsilon=2.8)
    event = made_up.proposal.plan.event_after(1)
    most = made_up.ledger.rounds_left(event)
    assert 1 <= most < 6
    for number in range(1, most + 1):
        statement_of(made_up.site.answer(made_up.request(number)))
    assert made_up.ledger.rounds_left(event) == 0
    assert made_up.reason(made_up.request(most + 1)) == "budget"
    second = made_up.proposed(clipping_bound=2.0)
    made_up.agree(second)
    made_up.site = made_up.opened()
    assert made_up.reason(made_up.request(1, proposal=second.digest)) == "budget"
    assert made_up.draws == list(range(1, most + 1))


def test_a_smaller_budget_refuses_what_a_larger_one_had_admitted(tmp_path: Path) -> None:
    made_up = MadeUp(tmp_path)
    for number in (1, 2, 3):
        made_up.site.answer(made_up.request(number))
    made_up.budget = type(made_up.budget).model_validate(dict(made_up.budget) | {"epsilon": 2.5})
    made_up.site = made_up.opened()
    assert made_up.reason(made_up.request(4)) == "budget"
    assert made_up.ledger.rounds_left(made_up.proposal.plan.event_after(1)) == 0


def _hostile(made_up: MadeUp) -> Iterator[tuple[Reason, bytes]]:
    """A hundred requests that a server could send, none of which the operator agreed to."""
    good, last = made_up.request(2), made_up.proposal.plan.steps
    yield from (("unreadable", good[:length]) for length in range(0, 100, 10))
    yield from (("unreadable", bytes(length)) for length in (1, 4, 68, 10_000))
    yield "unreadable", (LONGEST_HEADER + 1).to_bytes(4, "big") + bytes(LONGEST_HEADER + 100)
    # Other bits in place of the signed ones.
    yield from (("not_signed", good[:-place] + bytes([good[-place] ^ 1]) + good[-place + 1 :]) for place in range(21, 41))
    yield from (("unreadable", good[:-place] + bytes([good[-place] ^ 1]) + good[-place + 1 :]) for place in range(2, 12))
    # More rounds, and rounds that are over.
    yield from (("no_such_round", made_up.request(number)) for number in (last + 1, last + 2, 100, 10**6, 10**12))
    yield "past_round", made_up.request(1, [2.0] * NUMBERS)
    # Other noise, clipping, sampling, network, data, rounds, sites: another proposal, which nobody has signed.
    privacy = {"adjacency": "add_remove", "unit": "record", "delta": 1e-5}
    less_noise = [{"privacy": privacy | {"noise_multiplier": 0.1 * tenths}} for tenths in range(1, 10)]
    other_clipping = [{"clipping_bound": float(bound)} for bound in (0.5, 2, 3, 10, 100)]
    per_layer = [{"clipping": {"kind": "per_layer"}}]
    more = [{"steps": steps} for steps in (1, 7, 60, 600)] + [{"expected_batch_size": size} for size in (31, 60, 300)]
    networks = [{"model": {"kind": "complex_mlp", "hidden": [width], "activation": "cardioid", "head": "real_part"}} for width in (1, 5, 6)]
    for changes in (*less_noise, *other_clipping, *per_layer, *more, *networks):
        yield "not_agreed", made_up.request(2, proposal=made_up.proposed(**changes).digest)
    yield from (("not_agreed", made_up.request(2, proposal=digest(bytes([number])))) for number in range(10))
    # Somebody else's key.
    yield from (("not_signed", made_up.request(2, key=Ed25519PrivateKey.generate())) for _ in range(5))
    yield "not_signed", made_up.request(2, key=made_up.key)
    # Parameters that aren't ones.
    for value in (np.nan, np.inf, -np.inf):
        yield "parameters", made_up.request(2, [value] + [0.0] * (NUMBERS - 1))
    yield from (("parameters", made_up.request(2, [0.0] * length)) for length in (1, 4, 6, 1000))
    wrong = RoundRequest(proposal=made_up.proposal.digest, round=2, numbers=NUMBERS, payload=digest(b"12345678"))
    yield "parameters", sealed(wrong, b"12345678", made_up.coordinator)


def test_a_hostile_server_is_refused_a_hundred_of_a_hundred_times(tmp_path: Path) -> None:
    made_up = MadeUp(tmp_path)
    made_up.site.answer(made_up.request(1))
    made_up.site.answer(made_up.request(2, [0.5] * NUMBERS))
    attempts = list(_hostile(made_up))
    assert len(attempts) == 100
    assert [made_up.reason(frame) for _, frame in attempts] == [reason for reason, _ in attempts]
    assert made_up.draws == [1, 2]
    assert made_up.ledger.charged(made_up.proposal.digest) == 2
    assert made_up.failures == []


def test_other_code_than_was_agreed_on_draws_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_up = MadeUp(tmp_path)
    monkeypatch.setattr("zetadp.trainer.sites.site.code_digest", lambda: "0" * 64)
    assert made_up.reason(made_up.request(1)) == "other_code"
    assert made_up.draws == []


def test_a_proposal_that_another_key_signed_stops_the_site(tmp_path: Path) -> None:
    made_up = MadeUp(tmp_path)
    made_up.key = Ed25519PrivateKey.generate()
    made_up.agree(made_up.proposed(steps=3))
    with pytest.raises(InvalidParameter, match="must be signed with the site's key"):
        agreements_in(tmp_path / "agreements", made_up.public)


def test_a_proposal_is_of_one_training(tmp_path: Path) -> None:
    proposal, other = (MadeUp(tmp_path / name).proposed(**changes) for name, changes in (("x", {}), ("y", {"steps": 3})))
    with pytest.raises(ValueError, match="plan must be the spec's, got 3"):
        Proposal.model_validate(dict(proposal) | {"plan": other.plan})
    with pytest.raises(ValueError, match="that of the spec's network"):
        Proposal.model_validate(dict(proposal) | {"network": "0" * 64})
