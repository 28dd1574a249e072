r"""A site's process, killed at moments of every kind: nothing is drawn for twice, and nothing that was drawn isn't charged."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections import Counter
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.selection import chosen
from tests.trainer.federation_harness import NUMBERS, MadeUp, statement_of
from zetadp.trainer.sites.messages import digest


def _drawn(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().split()] if log.exists() else []


def _work(made_up: MadeUp, log: Path, first: int) -> None:
    """A site's process: it answers rounds, each twice, until it is killed."""

    def draw(number: int, _parameters: NDArray[np.float32]) -> NDArray[np.int64]:
        with log.open("a") as file:
            file.write(f"{number}\n")
        return np.frombuffer(os.urandom(8 * NUMBERS), "<i4")[:NUMBERS].astype(np.int64)

    site = made_up.opened(draw)
    for number in range(first, made_up.proposal.plan.steps + 1):
        frame = made_up.request(number)
        answer = site.answer(frame)
        (log.parent / "answers" / f"{number}.{os.getpid()}").write_bytes(answer)
        site.answer(frame)


@pytest.mark.parametrize("kills", chosen([5, 50], [5]))
def test_kills_reuse_no_noise_and_forget_no_charge(tmp_path: Path, kills: int) -> None:
    made_up, log = MadeUp(tmp_path), tmp_path / "drawn"
    made_up.proposal = made_up.proposed(steps=10_000)
    made_up.agree(made_up.proposal)
    (tmp_path / "answers").mkdir()
    for kill in range(kills):
        # The round that was asked last is asked again, and then the next ones.
        process = get_context("fork").Process(target=_work, args=(made_up, log, max([1, *_drawn(log)])))
        process.start()
        begun, most = time.monotonic(), len(_drawn(log)) + 1 + kill % 3
        while len(_drawn(log)) < most and time.monotonic() - begun < 20.0:
            time.sleep(0.0005)
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
    counted = Counter(_drawn(log))
    assert max(counted.values()) == 1
    with sqlite3.connect(tmp_path / "ledger.sqlite") as connection:
        charged = [number for (number,) in connection.execute("SELECT round FROM rounds")]
    connection.close()
    assert set(counted) <= set(charged)
    assert len(charged) == made_up.ledger.charged(made_up.proposal.digest) >= kills
    # Whoever answered a round, in whatever process, gave the same bytes.
    answers: dict[str, set[bytes]] = {}
    for path in (tmp_path / "answers").iterdir():
        if b'"kind":"statement"' in (content := path.read_bytes()):
            answers.setdefault(path.name.split(".")[0], set()).add(content)
    assert len(answers) >= kills // 2
    assert {len(found) for found in answers.values()} == {1}
    # The statements follow from one another across all kills.
    last, followed = None, 0
    for number in sorted(map(int, answers)):
        statement, found = statement_of(answers[str(number)].pop())
        if last is not None and statement.charged == last[1] + 1:
            assert statement.previous == last[0]
            followed += 1
        last = digest(found.header), statement.charged
    assert followed  # else nothing was compared
