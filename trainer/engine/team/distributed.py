r"""Several processes of one machine as a team: each works on a part of a step's units.

Clipped sums go to all members of the team, which trust each other as parts of one process would; the first adds the noise, once.
"""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final, TypeVar, TypeVarTuple, final

import torch
import torch.distributed as dist
from torch import Tensor

from zetadp.mechanisms.errors import InvalidParameter, PrivacyError
from zetadp.trainer.engine.team.interface import Alone, Team
from zetadp.trainer.parent import die_with_parent

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

PATIENCE: Final = timedelta(minutes=30)
"""A team member that hasn't answered for this long is considered lost."""
HERE: Final = "here/"
"""The prefix, before a member's rank, of the key that signals its start."""
LOOK_SECONDS: Final = 0.02


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
    r"""A ``Team`` over ``torch.distributed``: gloo on CPU, nccl on CUDA. Members talk over the loopback interface only.

    Members have separate noise keys: each member draws its keys from the operating system, or from the seed and its rank.
    """

    def __init__(self, rank: int, size: int) -> None:
        if not (size >= 2 and 0 <= rank < size):
            raise InvalidParameter("rank and size", "0 <= rank < size, at least 2 processes", (rank, size))
        self._rank = rank
        self._size = size

    @property
    def rank(self) -> int:
        return self._rank

    @property
    def size(self) -> int:
        return self._size

    def sum(self, tensor: Tensor) -> Tensor:
        total = _as_real(tensor.detach().clone(memory_format=torch.contiguous_format))
        # Summed at one member and sent from there, so that every member has the same bits whatever the backend's order of summation.
        dist.reduce(total, dst=0)
        dist.broadcast(total, src=0)
        return torch.view_as_complex(total) if tensor.is_complex() else total

    def broadcast(self, tensor: Tensor) -> Tensor:
        """Member 0's values, with the same shape and type everywhere: initial parameters, or who is in a sample."""
        received = _as_real(tensor.detach().clone(memory_format=torch.contiguous_format))
        dist.broadcast(received, src=0)
        return torch.view_as_complex(received) if tensor.is_complex() else received

    def any(self, flag: bool, device: torch.device) -> bool:
        """Whether any member's flag is set; all get the same answer, so that they stop at the same step."""
        count = torch.tensor([float(flag)], device=device)
        return bool(self.sum(count).item() > 0.0)


def launch(size: int, device: torch.device, folder: Path, target: Callable[[Team, *Arguments], Result], *arguments: *Arguments) -> Result:
    r"""Runs ``target(team, ...)`` in ``size`` processes, rank 0 in this one, and returns its result.

    The others die with this process, are terminated when ``target`` fails here, and use this machine's memory only.

    Args:
      target: importable by name; with its arguments it is sent to the other processes.
      device: ``cuda`` gives each member the device of its rank.
      folder: where the members find each other; writable by this user alone.
    Raises:
      TeamFailed: another member ended early.
    """
    if size == 1:
        return target(Alone(), *arguments)
    store = folder / f"team-{secrets.token_hex(8)}"
    context = get_context("spawn")
    others = [
        context.Process(target=_member, args=(os.getpid(), rank, size, device.type, store, target, arguments), daemon=True)
        for rank in range(1, size)
    ]
    for process in others:
        process.start()
    try:
        result = _work_as_first(others, size, device.type, store, target, arguments)
    finally:
        for process in others:
            process.terminate()
            process.join()
        store.unlink(missing_ok=True)
    return result


def _work_as_first(
    others: Sequence[BaseProcess],
    size: int,
    device: str,
    store: Path,
    target: Callable[[Team, *Arguments], Result],
    arguments: tuple[*Arguments],
) -> Result:
    try:
        files = _files(store, size)
        _wait_for_members(others, files)
        with _joined(0, size, device, files) as team:
            result = target(team, *arguments)
    except RuntimeError as error:
        # A collective operation lost its partner. The partner itself knows best why.
        raise _failure(others) or error from error
    for process in others:
        process.join()
    if lost := _failure(others):
        raise lost
    return result


def _files(store: Path, size: int) -> dist.FileStore:  # pyright: ignore[reportPrivateImportUsage]
    """The store through which the members find each other. One for each process: the file is deleted with the last of ``size`` of them."""
    return dist.FileStore(str(store), size)  # pyright: ignore[reportPrivateImportUsage]


def _wait_for_members(others: Sequence[BaseProcess], files: dist.FileStore) -> None:  # pyright: ignore[reportPrivateImportUsage]
    """Waits for every member. Raises TeamFailed if one ended before: joining would mean to wait for it for all of ``PATIENCE``."""
    latest = time.monotonic() + PATIENCE.total_seconds()
    for rank, process in enumerate(others, 1):
        while not files.check([f"{HERE}{rank}"]):
            if process.exitcode is not None or time.monotonic() > latest:
                raise TeamFailed(rank, process.exitcode)
            time.sleep(LOOK_SECONDS)


def _failure(others: Sequence[BaseProcess]) -> TeamFailed | None:
    for rank, process in enumerate(others, 1):
        process.join(timeout=1.0)
        if process.exitcode not in {0, None}:
            return TeamFailed(rank, process.exitcode)
    return None


def _member(
    parent: int, rank: int, size: int, device: str, store: Path, target: Callable[[Team, *Arguments], object], arguments: tuple[*Arguments]
) -> None:
    if not die_with_parent(parent, signal.SIGKILL):
        return
    # Rank 0 decides when to stop: it is the one that writes the checkpoint.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    files = _files(store, size)
    files.set(f"{HERE}{rank}", "")
    with _joined(rank, size, device, files) as team:
        target(team, *arguments)


@contextmanager
def _joined(rank: int, size: int, device: str, files: dist.FileStore) -> Generator[ProcessTeam]:  # pyright: ignore[reportPrivateImportUsage]
    """A member while it belongs to the team."""
    for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        os.environ[variable] = "lo"
    if device == "cuda":
        torch.cuda.set_device(rank)
    try:
        dist.init_process_group("nccl" if device == "cuda" else "gloo", store=files, rank=rank, world_size=size, timeout=PATIENCE)
    except BaseException:
        # torch names a group by the number of groups that its process tried before, and resets this only when it destroys one: after a
        # failure the next team of this process would wait for its members under a different name from theirs.
        dist.distributed_c10d._world.group_count = 0  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
        raise
    try:
        yield ProcessTeam(rank, size)
    finally:
        dist.destroy_process_group()


def _as_real(tensor: Tensor) -> Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor
