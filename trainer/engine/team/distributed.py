r"""Several processes as a team, of one machine or of several: each works on a part of a step's units.

Clipped sums go to all members of the team, which trust each other as parts of one process would; the first adds the noise, once.
"""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from itertools import count
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final, TypeVar, TypeVarTuple, final

import torch
import torch.distributed as dist
from torch import Tensor

from zetadp.mechanisms.errors import InvalidParameter, PrivacyError
from zetadp.trainer.engine.team.interface import Alone, Team
from zetadp.trainer.engine.team.meeting import PATIENCE, Meeting
from zetadp.trainer.errors import MemberDone, TeamLost, TrainingAborted
from zetadp.trainer.parent import die_with_parent
from zetadp.trainer.team_place import TeamPlace

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

HERE: Final = "here/"
"""The prefix, before a member's rank, of the key that signals its start."""
LOOK_SECONDS: Final = 0.02
PART: Final = 64 * 2**20
"""Bytes of a file that are sent to other machines at a time."""
_rounds = count()


@final
class TeamFailed(PrivacyError):
    """A process of the team ended before the work did; ``rank`` and its exit ``status`` (negative: the signal that ended it)."""

    def __init__(self, rank: int, status: int | None) -> None:
        self.rank = rank
        self.status = status
        super().__init__(f"process {rank} of the team ended early with status {status}; its standard error says why")


def rows(units: Tensor, team: Team) -> Tensor:
    """This process's part of ``units``, (units,): the parts of a team are disjoint, complete together, and may be empty."""
    return units if team.size == 1 else units[team.rank :: team.size]


@final
class ProcessTeam:
    r"""A ``Team`` over ``torch.distributed``: gloo on CPU, nccl on CUDA. Members of one machine talk over the loopback interface only.

    Members have separate noise keys: each member draws its keys from the operating system, or from the seed and its rank.
    """

    def __init__(self, rank: int, size: int, machines: int = 1, device: torch.device | None = None) -> None:
        if not (size >= 2 and 0 <= rank < size):
            raise InvalidParameter("rank and size", "0 <= rank < size, at least 2 processes", (rank, size))
        self._rank = rank
        self._size = size
        self._machines = machines
        self._device = device or torch.device("cpu")

    @property
    def rank(self) -> int:
        return self._rank

    @property
    def size(self) -> int:
        return self._size

    def sum(self, tensor: Tensor) -> Tensor:
        total = _as_real(tensor.detach().clone(memory_format=torch.contiguous_format))
        with self._connected():
            # Summed at one member and sent from there, so that every member has the same bits whatever the backend's order of summation.
            dist.reduce(total, dst=0)
            dist.broadcast(total, src=0)
        return torch.view_as_complex(total) if tensor.is_complex() else total

    def broadcast(self, tensor: Tensor) -> Tensor:
        """Member 0's values, with the same shape and type everywhere: initial parameters, or who is in a sample."""
        received = _as_real(tensor.detach().clone(memory_format=torch.contiguous_format))
        with self._connected():
            dist.broadcast(received, src=0)
        return torch.view_as_complex(received) if tensor.is_complex() else received

    @contextmanager
    def _connected(self) -> Generator[None]:
        """Raises TeamLost for torch's error if other machines are involved: the error is theirs, or the network's."""
        try:
            yield
        except RuntimeError as error:
            if self._machines == 1:
                raise
            raise TeamLost from error

    def share(self, path: Path, /) -> None:
        """Make the file at this path on every other machine what it is on the first; if it isn't there, nowhere."""
        if self._machines == 1:
            return
        writes = self._rank > 0 and self._rank % (self._size // self._machines) == 0
        content = path.read_bytes() if self._rank == 0 and path.exists() else None
        length = self.broadcast(torch.tensor([-1 if content is None else len(content)], device=self._device))
        if writes:
            path.unlink(missing_ok=True)
        received = bytearray()
        for begin in range(0, int(length), PART):
            size = min(PART, int(length) - begin)
            part = bytearray(size) if content is None else bytearray(content[begin : begin + size])
            sent = self.broadcast(torch.frombuffer(part, dtype=torch.uint8).to(self._device))
            if writes:
                received += sent.cpu().numpy().tobytes()
        if writes and length >= 0:
            path.write_bytes(received)
        _ = self.sum(torch.zeros(1, device=self._device))  # from here on it is there for every member

    def any(self, flag: bool, device: torch.device) -> bool:
        """Whether any member's flag is set; all get the same answer, so that they stop at the same step."""
        count = torch.tensor([float(flag)], device=device)
        return bool(self.sum(count).item() > 0.0)


def launch(size: int, device: torch.device, folder: Path, target: Callable[[Team, *Arguments], Result], *arguments: *Arguments) -> Result:
    r"""Runs ``target(team, *arguments)`` in ``size`` processes and returns this process's result; this process is the first of them.

    The others die with this process, are terminated when ``target`` fails here, and use this machine's memory only. Where a launcher has
    told this process that there are other machines (``team_place.py``), each of them runs the same program and has its share of the
    processes.

    Args:
      target: importable by name; with its arguments it is sent to the other processes.
      device: ``cuda`` gives each member a device of its own.
      folder: where the members find each other; writable by this user alone.
    Raises:
      TeamFailed: another member on this machine ended early.
      TeamLost: other machines are involved, and the connection to a member was lost.
      MemberDone: this machine isn't the first, and its part is done.
    """
    if size == 1:
        return target(Alone(), *arguments)
    meeting = Meeting(size, TeamPlace.told(), folder / f"team-{secrets.token_hex(8)}", next(_rounds))
    context = get_context("spawn")
    first, *ranks = meeting.here
    others = {
        rank: context.Process(target=_member, args=(os.getpid(), rank, meeting, device.type, target, arguments), daemon=True)
        for rank in ranks
    }
    for process in others.values():
        process.start()
    try:
        result = _work_as_first(first, others, meeting, device.type, target, arguments)
    finally:
        for process in others.values():
            process.terminate()
            process.join()
        meeting.leave()
    if first > 0:
        raise MemberDone
    return result


def _work_as_first(
    rank: int,
    others: Mapping[int, BaseProcess],
    meeting: Meeting,
    device: str,
    target: Callable[[Team, *Arguments], Result],
    arguments: tuple[*Arguments],
) -> Result:
    try:
        with _reached(meeting):
            store = meeting.store(rank)
            _wait_for_members(others, meeting, store)
            if rank > 0:
                store.set(f"{HERE}{rank}", "")
        with _joined(rank, meeting, device, store) as team:
            result = target(team, *arguments)
    except (RuntimeError, TeamLost) as error:
        # A collective operation lost its partner. The partner itself knows best why.
        if failed := _failure(others):
            raise failed from error
        raise
    except TrainingAborted as aborted:
        if isinstance(aborted.__cause__, TeamLost):
            # The step that it ended counts as executed, and is in the checkpoint.
            raise aborted.__cause__ from aborted
        raise
    for process in others.values():
        process.join()
    if lost := _failure(others):
        raise lost
    return result


@contextmanager
def _reached(meeting: Meeting) -> Generator[None]:
    """Raises TeamLost for torch's error while the machines look for one another."""
    try:
        yield
    except RuntimeError as error:
        if meeting.place.machines == 1:
            raise
        raise TeamLost from error


def _wait_for_members(others: Mapping[int, BaseProcess], meeting: Meeting, store: dist.Store) -> None:  # pyright: ignore[reportPrivateImportUsage]
    """Waits for this machine's members; the team's first process waits for all. Raises TeamFailed if one of this machine ended before:
    joining would mean to wait for it for all of ``PATIENCE``."""
    latest = time.monotonic() + PATIENCE.total_seconds()
    awaited = range(1, meeting.size) if meeting.place.machine == 0 else others
    for rank in awaited:
        while not store.check([f"{HERE}{rank}"]):
            for own, process in others.items():
                if process.exitcode is not None:
                    raise TeamFailed(own, process.exitcode)
            if time.monotonic() > latest:
                raise TeamFailed(rank, None)
            time.sleep(LOOK_SECONDS)


def _failure(others: Mapping[int, BaseProcess]) -> TeamFailed | None:
    for rank, process in others.items():
        process.join(timeout=1.0)
        if process.exitcode not in {0, None}:
            return TeamFailed(rank, process.exitcode)
    return None


def _member(
    parent: int, rank: int, meeting: Meeting, device: str, target: Callable[[Team, *Arguments], object], arguments: tuple[*Arguments]
) -> None:
    if not die_with_parent(parent, signal.SIGKILL):
        return
    # Rank 0 decides when to stop: it is the one that writes the checkpoint.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    store = meeting.store(rank)
    store.set(f"{HERE}{rank}", "")
    with _joined(rank, meeting, device, store) as team:
        target(team, *arguments)


@contextmanager
def _joined(rank: int, meeting: Meeting, device: str, store: dist.Store) -> Generator[ProcessTeam]:  # pyright: ignore[reportPrivateImportUsage]
    """A member while it belongs to the team."""
    meeting.choose_interface()
    if device == "cuda":
        torch.cuda.set_device(rank - meeting.here.start)
    try:
        with _reached(meeting):
            backend = "nccl" if device == "cuda" else "gloo"
            dist.init_process_group(backend, store=store, rank=rank, world_size=meeting.size, timeout=PATIENCE)
    except BaseException:
        # torch names a group by the number of groups that its process tried before, and resets this only when it destroys one: after a
        # failure the next team of this process would wait for its members under a different name from theirs.
        dist.distributed_c10d._world.group_count = 0  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
        raise
    try:
        yield ProcessTeam(rank, meeting.size, meeting.place.machines, torch.device(device))
    finally:
        dist.destroy_process_group()


def _as_real(tensor: Tensor) -> Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor
