r"""Workers that die or fall silent while others live: who notices, who wins, and that nothing of the silent one gets in."""

from __future__ import annotations

import signal
import sqlite3
import time
from base64 import b64decode
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from sqlalchemy import select, update
from sqlalchemy.exc import DBAPIError, OperationalError

from tests.app.fake_child import Order
from tests.app.jobs_harness import (
    Worker,
    child_pids,
    is_alive,
    kill,
    postgresql_server,
    serving,
    settings,
    stream,
    submit,
    wait_until,
    working,
)
from tests.selection import chosen, thinned
from zetadp.app.jobs.errors import ExecutorBusy
from zetadp.app.jobs.leases import Executor, LeaseKeeper, Leases, Seen, Watch
from zetadp.app.kit.database import PATIENCE, Database
from zetadp.app.kit.settings import Settings
from zetadp.app.tables.jobs import ExecutorRow

SLOW = 0.3
LEASE_SECONDS = 1.0


def named(of: Settings, name: str) -> Settings:
    return Settings.model_validate(of.model_dump() | {"executor_id": name, "lease_seconds": LEASE_SECONDS})


def executor(name: str = "a", lock: str = "here") -> Executor:
    return Executor(id=name, host="the same", lock=lock, device="auto", hardware="none", lease_seconds=0.6)


@pytest.fixture(params=chosen(["sqlite", "postgresql"], ["postgresql"]))
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Database]:
    if request.param == "sqlite":
        made = Database(Settings(data_dir=tmp_path))
        made.migrate()
        yield made
        made.close()
        return
    with postgresql_server() as url:
        made = Database(Settings(data_dir=tmp_path, database_url=url))
        made.migrate()
        yield made
        made.close()


@dataclass(frozen=True)
class Team:
    settings: Settings
    client: httpx2.Client
    workers: dict[str, Worker]

    def holder(self, job_id: str) -> Worker:
        """The worker that has the job in hand."""
        database = Database(self.settings)
        with database.reading() as session:
            name = session.scalar(select(ExecutorRow.id).where(ExecutorRow.job_id == job_id))
        database.close()
        assert name is not None
        return self.workers[name]


class Clock:
    def __init__(self) -> None:
        self.moment = 100.0

    def __call__(self) -> float:
        return self.moment


def lease(beat: int) -> Seen:
    return Seen.model_validate(
        {"id": "a", "token": "t", "beat": beat, "lease_seconds": 6.0, "host": "h", "lock": "", "renewed": "2026-01-01T00:00:00Z"}
    )


def looks(watch: Watch, clock: Clock, beats: list[tuple[float, int]]) -> list[bool]:
    """Whether the lease is judged dead at each of these moments."""
    judged: list[bool] = []
    for moment, beat in beats:
        clock.moment = moment
        judged.append(bool(watch.dead([lease(beat)], own_token="own")))
    return judged


def test_lease_is_dead_when_its_beat_was_the_same_for_its_whole_length() -> None:
    clock = Clock()
    watch = Watch(clock)
    beats = [(float(second), 7) for second in range(8)]
    assert looks(watch, clock, beats) == [False] * 6 + [True] * 2


def test_lease_whose_beat_moves_lives() -> None:
    clock = Clock()
    assert not any(looks(Watch(clock), clock, [(float(second), second // 5) for second in range(30)]))


def test_watcher_that_did_not_look_for_a_while_judges_nobody_by_that() -> None:
    clock = Clock()
    beats = [(0.0, 7), (1.0, 7), (60.0, 7), (61.0, 7), (65.9, 7)]  # the last look is too far from the one before as well
    assert not any(looks(Watch(clock), clock, beats))


def test_watcher_never_judges_itself() -> None:
    clock = Clock()
    watch = Watch(clock)
    for second in range(20):
        clock.moment = float(second)
        assert watch.dead([lease(1)], own_token="t") == []


def test_of_many_that_bury_a_lease_one_wins(database: Database) -> None:
    leases = Leases(database, 3)
    for _ in range(5):
        leases.take(executor())
        seen = leases.seen()[0]
        with ThreadPoolExecutor(6) as pool:
            won = [result for result in pool.map(lambda _, seen=seen: leases.bury(seen), range(6)) if result is not None]
        assert won == [[]]


def test_lease_that_was_renewed_since_it_was_seen_is_not_buried(database: Database) -> None:
    leases = Leases(database, 3)
    token = leases.take(executor())
    seen = leases.seen()[0]
    assert leases.renew(token)
    assert leases.bury(seen) is None
    assert leases.renew(token)


@pytest.mark.slow
def test_locks_of_a_worker_that_was_suspended_in_a_write_are_taken_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sooner = str(PATIENCE["options"]).replace("session_timeout=15s", "session_timeout=1s")
    assert sooner != PATIENCE["options"]
    monkeypatch.setitem(PATIENCE, "options", sooner)
    with postgresql_server() as url:
        of = Settings(data_dir=tmp_path, database_url=url)
        database, suspended = Database(of), Database(of)
        database.migrate()
        leases = Leases(database, 3)
        token = leases.take(executor())
        with pytest.raises(DBAPIError, match="idle-in-transaction"):
            write_while(suspended, lambda: leases.renew(token))  # it waits for the row's lock
        assert [lease.beat for lease in leases.seen()] == [1]
        database.close()
        suspended.close()


def write_while(database: Database, act: Callable[[], object]) -> None:
    with database.writing() as session:
        session.execute(update(ExecutorRow).values(beat=99))
        act()


def test_taken_lease_cannot_be_renewed(database: Database) -> None:
    leases = Leases(database, 3)
    token = leases.take(executor())
    assert leases.bury(leases.seen()[0]) == []
    assert not leases.renew(token)


def fails(error: Exception) -> None:
    pytest.fail(f"a lease couldn't be kept: {error!r}")


@pytest.mark.parametrize("lock", thinned(["there", ""], every=2))
def test_name_of_a_living_worker_with_another_lock_is_refused_though_the_hosts_have_one_name(database: Database, lock: str) -> None:
    leases = Leases(database, 3)
    with (
        LeaseKeeper(leases, executor(lock=lock), print, fails),
        pytest.raises(ExecutorBusy, match="a worker named 'a' is already running"),
        LeaseKeeper(leases, executor(), print, fails),
    ):
        pass


def test_name_of_a_dead_worker_with_another_lock_is_free_after_its_lease(database: Database) -> None:
    leases = Leases(database, 3)
    dead = leases.take(executor(lock="there"))
    with LeaseKeeper(leases, executor(), print, fails) as keeper:
        assert [row.token for row in leases.seen()] == [keeper.token] != [dead]
    assert leases.seen() == []


def test_lease_that_was_taken_with_the_same_lock_is_a_dead_workers_and_nobody_waits_for_its_end(database: Database) -> None:
    leases = Leases(database, 3)
    forever = executor().model_dump() | {"lease_seconds": 3600.0}
    dead = leases.take(Executor.model_validate(forever))
    with LeaseKeeper(leases, Executor.model_validate(forever), print, fails) as keeper:
        assert [row.token for row in leases.seen()] == [keeper.token] != [dead]


@pytest.mark.slow
def test_last_write_of_a_killed_worker_that_comes_late_stops_nobody(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    leases = Leases(database, 3)
    take = leases.take

    def after_the_dead_ones(of: Executor, token: str | None = None) -> str:
        monkeypatch.setattr(leases, "take", take)
        take(of)
        return take(of, token)

    monkeypatch.setattr(leases, "take", after_the_dead_ones)
    with LeaseKeeper(leases, executor(), print, fails) as keeper:
        assert [row.token for row in leases.seen()] == [keeper.token]


@pytest.mark.slow
def test_worker_keeps_a_lease_that_it_took_though_the_answer_was_lost(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    leases = Leases(database, 3)
    take = leases.take
    lost: list[str] = []

    def lose_the_answer(of: Executor, token: str | None = None) -> str:
        monkeypatch.setattr(leases, "take", take)
        lost.append(take(of, token))
        raise OperationalError("INSERT", None, Exception("the connection is gone"))

    with LeaseKeeper(leases, executor(), print, fails) as keeper:
        first = keeper.token
        monkeypatch.setattr(leases, "take", lose_the_answer)
        wait_until(lambda: leases.bury(leases.seen()[0]) is not None)
        wait_until(lambda: [row.beat > 0 for row in leases.seen()] == [True])
        assert [row.token for row in leases.seen()] == [keeper.token] == lost != [first]


@pytest.mark.slow
def test_error_that_nobody_foresaw_is_told_and_the_lease_is_kept(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    leases = Leases(database, 3)
    told: list[Exception] = []
    renew = leases.renew

    def broken(token: str) -> bool:
        monkeypatch.setattr(leases, "renew", renew)
        raise OSError(24, "Too many open files")

    with LeaseKeeper(leases, executor(), print, told.append):
        monkeypatch.setattr(leases, "renew", broken)
        wait_until(lambda: bool(told))
        beat = leases.seen()[0].beat
        wait_until(lambda: leases.seen()[0].beat > beat)
    assert [type(error) for error in told] == [OSError]


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Generator[Team]:
    """An API and two workers, of which one at a time is killed or suspended."""
    of = settings(tmp_path_factory.mktemp("team"))
    with serving(of) as client, working(named(of, "first")) as first, working(named(of, "second")) as second:
        wait_until(lambda: len(living(of)) == 2)
        yield Team(of, client, {"first": first, "second": second})


def test_suspended_worker_finds_its_job_finished_by_another_and_nothing_of_its_own_gets_in(team: Team) -> None:
    of, client = team.settings, team.client
    job_id = submit(client, step_seconds=SLOW)
    checkpoint = next(event for event in stream(client, job_id) if event.kind == "checkpoint")
    with suspended_between_writes(of, team.holder(job_id)):  # its child runs on, and writes checkpoints
        events = list(stream(client, job_id, checkpoint.number))
        finished = client.get(f"/v1/jobs/{job_id}").json()
        files = checkpoints(of, job_id)
    wait_until(lambda: len(living(of)) == 2)  # under a new lease
    wait_until(lambda: not is_alive(child_pids(of, job_id)[0]))
    assert (finished["state"], finished["attempt"]) == ("succeeded", 2)
    assert client.get(f"/v1/jobs/{job_id}").json() == finished
    assert checkpoints(of, job_id) == files == {"000002": "20"}
    steps = [event.data["step"] for event in events if event.kind == "progress" and event.attempt == 2]
    # On a busy machine the first child may have done all of them before its job was taken from it.
    again = next(event for event in events if event.kind == "started" and event.attempt == 2)
    resumed = again.data["resumed_from_step"]
    assert isinstance(resumed, int)
    assert resumed >= 5
    assert steps == list(range(resumed + 1, 21))
    certified = client.get(finished["links"]["certificate"]).json()["payload"]
    assert b'"attempts":2' in b64decode(certified)
    log = (of.data_dir / "worker.log").read_text()
    assert "lease_lost" in log
    assert "job_superseded" in log


@pytest.mark.slow
def test_job_of_a_killed_worker_goes_on_with_another_that_lives(team: Team) -> None:
    job_id = submit(team.client, Order.HOLD)
    checkpoint = next(event for event in stream(team.client, job_id) if event.kind == "checkpoint")
    kill(team.holder(job_id))
    events = list(stream(team.client, job_id, checkpoint.number))
    again = next(event for event in events if event.kind == "started")
    assert (again.attempt, again.data["resumed_from_step"]) == (2, 5)
    assert [event.data["reason"] for event in events if event.data.get("state") == "queued"] == ["its worker was lost"]
    assert events[-1].data["state"] == "succeeded"


@contextmanager
def suspended_between_writes(of: Settings, process: Worker) -> Generator[None]:
    """A process that stands still and holds no lock. One that does, in the middle of a write, stops whoever uses the SQLite file."""
    try:
        while True:
            process.send_signal(signal.SIGSTOP)
            wait_until(lambda: stands_still(process.pid))  # each thread stops by itself, after the system call that it is in
            if all(can_be_written(of.data_dir / name) for name in ("zetadp.sqlite", "queue.sqlite")):
                break
            process.send_signal(signal.SIGCONT)
            time.sleep(0.05)
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def stands_still(pid: int) -> bool:
    """Whether every thread of the process is stopped."""
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    return all(stat.read_text().rpartition(")")[2].split()[0] == "T" for stat in threads)


def can_be_written(database: Path) -> bool:
    connection = sqlite3.connect(database, timeout=2.0, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
    return True


def living(of: Settings) -> list[Seen]:
    database = Database(of)
    try:
        return Leases(database, of.maximum_worker_deaths).seen()
    finally:
        database.close()


def checkpoints(of: Settings, job_id: str) -> dict[str, str]:
    """The steps in the checkpoints of the attempts' folders."""
    found = (of.job_dir(job_id) / "attempts").glob("*/checkpoint.safetensors")
    return {path.parent.name: path.read_text() for path in found}
