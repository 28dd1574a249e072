r"""Two real processes: the noise of a team is the mechanism's own, once, and everybody holds the same result."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch import Tensor

from zetadp.mechanisms import ComplexGaussian, InvalidParameter, RandomStream, Sensitivity
from zetadp.trainer.engine.noise.torch_source import TorchSource
from zetadp.trainer.engine.team import distributed
from zetadp.trainer.engine.team.distributed import ProcessTeam, TeamFailed, launch, rows
from zetadp.trainer.engine.team.interface import Team
from zetadp.trainer.engine.team.meeting import Meeting
from zetadp.trainer.team_place import TeamPlace

COORDINATES = 20_000
STD, UNITS = 0.6, 7
CPU = torch.device("cpu")


def _mechanism() -> ComplexGaussian:
    return ComplexGaussian(std=STD, sensitivity=Sensitivity(l2=1.0, adjacency="add_remove", unit="record"))


def _work(team: Team, folder: Path) -> dict[str, Tensor]:
    """What one member does and sees; every member writes its own."""
    assert isinstance(team, ProcessTeam)
    source = TorchSource(RandomStream.from_seed(team.rank, "team test"), CPU)
    own = _mechanism().release(torch.zeros(COORDINATES, dtype=torch.complex64), source)
    empty = rows(torch.arange(1), team)
    seen = {
        "own": own,
        "sum": team.sum(own),
        "rows": rows(torch.arange(UNITS), team),
        "sum of parts": team.sum(torch.ones(3) * len(empty)),
        "first": team.broadcast(torch.full((4,), float(team.rank + 5))),
        "stops": torch.tensor([team.any(team.rank == 1, CPU), team.any(False, CPU)]),
    }
    torch.save(seen, folder / f"{team.rank}.pt")
    return seen


def _die(team: Team) -> None:
    if team.rank == 1:
        os._exit(9)
    team.sum(torch.zeros(1))


def _until(done: Callable[[], bool]) -> None:
    for _ in range(1200):
        if done():
            return
        time.sleep(0.1)
    pytest.fail("nothing happened for two minutes")


def _raise(_team: Team) -> None:
    raise InvalidParameter("work", "done", "not")


def wait_for_the_end(team: Team, folder: Path) -> None:
    """Tells its process id and stays."""
    (folder / f"{team.rank}.pid").write_text(str(os.getpid()))
    time.sleep(600.0)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Tensor]]:
    folder = tmp_path_factory.mktemp("team")
    launch(2, CPU, folder, _work, folder)
    assert sorted(path.name for path in folder.iterdir()) == ["0.pt", "1.pt"]
    return [torch.load(folder / f"{rank}.pt") for rank in (0, 1)]


def test_members_draw_different_noise(seen: list[dict[str, Tensor]]) -> None:
    cosine = (seen[0]["own"] * seen[1]["own"].conj()).sum().abs() / (seen[0]["own"].abs().square().sum())
    assert cosine.item() < 6.0 / math.sqrt(COORDINATES)


def test_every_member_gets_the_same_bits(seen: list[dict[str, Tensor]]) -> None:
    assert torch.equal(torch.view_as_real(seen[0]["sum"]), torch.view_as_real(seen[1]["sum"]))


def test_the_sum_is_the_sum(seen: list[dict[str, Tensor]]) -> None:
    assert torch.equal(seen[0]["sum"], seen[0]["own"] + seen[1]["own"])


def test_parts_are_disjoint_and_complete(seen: list[dict[str, Tensor]]) -> None:
    assert sorted(torch.cat([member["rows"] for member in seen]).tolist()) == list(range(UNITS))


def test_an_empty_part_adds_nothing(seen: list[dict[str, Tensor]]) -> None:
    for member in seen:
        assert member["sum of parts"].tolist() == [1.0, 1.0, 1.0]


def test_a_broadcast_is_the_first_members(seen: list[dict[str, Tensor]]) -> None:
    for member in seen:
        assert member["first"].tolist() == [5.0] * 4


def test_all_stop_where_one_wants_to(seen: list[dict[str, Tensor]]) -> None:
    for member in seen:
        assert member["stops"].tolist() == [True, False]


@pytest.mark.slow
def test_a_member_that_dies_ends_the_work_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(TeamFailed, match="process 1 of the team ended early with status 9"):
        launch(2, CPU, tmp_path, _die)
    assert list(tmp_path.iterdir()) == []


class DeadlyToOthers:
    """Kills the process that it is sent to, before that has joined the team."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        return os._exit, (7,)


@pytest.mark.slow
def test_a_member_that_dies_before_it_joins_ends_the_work_too_and_the_next_team_meets(tmp_path: Path) -> None:
    with pytest.raises(TeamFailed, match="process 1 of the team ended early with status 7"):
        launch(2, CPU, tmp_path, _size, DeadlyToOthers())
    assert launch(2, CPU, tmp_path, _size, None) == 2


@pytest.mark.slow
def test_a_team_that_failed_to_meet_leaves_nothing_to_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        # As when a member dies between saying that it is there and answering: gloo then has nobody to connect to.
        patch.setattr(distributed, "PATIENCE", timedelta(milliseconds=1))
        meeting = Meeting(2, TeamPlace(), tmp_path / "alone", round=0)
        with pytest.raises(RuntimeError), distributed._joined(0, meeting, "cpu", meeting.store(0)):
            pass
    assert launch(2, CPU, tmp_path, _size, None) == 2


def _size(team: Team, _sent: object) -> int:
    return int(team.sum(torch.ones(1)).item())


@pytest.mark.slow
def test_members_die_with_the_process_that_started_them(tmp_path: Path) -> None:
    program = (
        "import sys, torch; from pathlib import Path; from zetadp.trainer.engine.team.distributed import launch\n"
        "from tests.trainer.test_distributed import wait_for_the_end as work\n"
        "launch(2, torch.device('cpu'), Path(sys.argv[1]), work, Path(sys.argv[1]))"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)]) as parent:
        _until(lambda: (tmp_path / "1.pid").exists() and bool((tmp_path / "1.pid").read_text()))
        parent.kill()
    member = Path("/proc") / (tmp_path / "1.pid").read_text()
    # A zombie that nobody has waited for yet is dead too.
    _until(lambda: not member.exists() or "State:\tZ" in (member / "status").read_text())


def test_one_process_works_alone_and_its_errors_pass_through(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="work must be done, got 'not'"):
        launch(1, CPU, tmp_path, _raise)
