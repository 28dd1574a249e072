r"""Workers by Slurm: one batch job for each, of its own name, which Slurm starts again after it took its machine away.

Slurm's commands are asked, not its REST service, which few clusters offer. A worker gets SIGTERM before its time limit and when its
machine is wanted for another, and ends at a checkpoint; until SIGKILL it has what Slurm's ``KillWait`` leaves it, 30 s by default.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import final

from zetadp.app.jobs.needs import Capacity
from zetadp.app.kit.settings import Settings
from zetadp.app.launching.interface import ClusterUnavailable, Found, LaunchRefused, LaunchState, Order, words
from zetadp.mechanisms.errors import InvalidParameter

COMMAND_SECONDS = 30.0
"""How long one of Slurm's commands may take."""
NAMES_AT_ONCE = 200
LOGS = "launches"
"""The folder, in the data folder, of the workers' logs, unless ``slurm_options`` names another ``--output``."""
WAITING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
RUNNING = frozenset({"RUNNING", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "SUSPENDED"})
PASSING = re.compile(r"unable to contact|timed out|temporarily|not responding|connection|communication|zero bytes|limit", re.IGNORECASE)
"""In what ``sbatch`` says, marks of what time mends: a controller that is away, or a limit of jobs in hand."""
_GPUS = re.compile(r"gpu:(?:([^:(,]+):)?(\d+)")
_PARTITION = re.compile(r"(?:^|\s)(?:--partition[= ]|-p\s*)(\S+)")


@final
class Slurm:
    r"""A cluster that Slurm runs; its commands, and their configuration, are this process's.

    Raises:
      InvalidParameter: Slurm's commands aren't there, or the settings' options can't be read.
    """

    def __init__(self, settings: Settings) -> None:
        for command in ("sbatch", "squeue", "scancel", "sinfo"):
            if shutil.which(command) is None:
                raise InvalidParameter("ZETADP_LAUNCHER", "a launcher whose commands are installed; slurm needs sbatch", settings.launcher)
        self._options = words("ZETADP_SLURM_OPTIONS", settings.slurm_options)
        self._worker = words("ZETADP_LAUNCH_COMMAND", settings.launch_command)
        partition = _PARTITION.search(settings.slurm_options)
        self._partition = [] if partition is None else [f"--partition={partition[1]}"]
        self._logs = settings.data_dir.absolute() / LOGS
        self._logs.mkdir(parents=True, exist_ok=True, mode=0o700)

    def capacity(self) -> Capacity:
        """Of the partition that the options name, or of all; the kinds of accelerators are the types that the cluster gives them."""
        gpus, memory, names, machines = 0, 0, dict[str, None](), set[str]()
        for line in self._asked("sinfo", "--Node", "--noheader", "--format=%N|%G|%m", *self._partition).splitlines():
            node, generic, megabytes = line.split("|")
            found = _GPUS.findall(generic)
            gpus = max(gpus, sum(int(count) for _, count in found))
            names |= dict.fromkeys(kind or "gpu" for kind, _ in found)
            memory = max(memory, int(megabytes.strip("+ ")) * 2**20)
            machines.add(node)
        devices = ("auto", "cpu", "cuda") if gpus else ("auto", "cpu")
        return Capacity(devices=devices, gpus=gpus, gpu_names=tuple(names), memory_bytes=memory or None, machines=max(1, len(machines)))

    def described(self) -> str:
        """Its size and its accelerators."""
        capacity = self.capacity()
        kinds = f", up to {capacity.gpus} accelerators on each ({', '.join(capacity.gpu_names)})" if capacity.gpus else ""
        return f"Slurm: {capacity.machines} machines{kinds}"

    def start(self, order: Order) -> None:
        """``sbatch`` of a script that becomes the worker."""
        needs = order.needs
        options = [
            f"--output={self._logs / order.name}.log",
            "--open-mode=append",
            f"--cpus-per-task={order.cpus}",
            *self._options,
            "--parsable",
            "--requeue",
            f"--job-name={order.name}",
            f"--nodes={needs.machines}",
            "--ntasks-per-node=1",
            # Before the time limit, and, where Slurm is set to send it then, when the machine is wanted. A worker alone is the batch
            # script itself; several are a step of it.
            f"--signal={'' if needs.machines > 1 else 'B:'}TERM@{round(order.grace_seconds) + 1}",
        ]
        if needs.gpus:
            kind = "" if needs.gpu_kind is None else f"{self._type(needs.gpu_kind)}:"
            options.append(f"--gpus-per-node={kind}{needs.gpus}")
        if needs.memory_bytes is not None:
            options.append(f"--mem={-(-needs.memory_bytes // 2**20)}M")
        if order.seconds is not None:
            options.append(f"--time={-(-order.seconds // 60)}")
        try:
            self._asked("sbatch", *options, text=self.script(order))
        except _Failed as failed:
            if PASSING.search(failed.said):
                raise ClusterUnavailable(f"sbatch: {failed.said}") from None
            raise LaunchRefused(failed.said) from None

    def script(self, order: Order) -> str:
        """The batch script: the worker, or one on each machine, all of which are told where the first one is."""
        worker = shlex.join([*self._worker, "--job", order.job_id])
        if order.needs.machines == 1:
            return f"#!/bin/sh\nexec {worker}\n"
        place = f'{worker} --machines "$SLURM_NNODES" --machine "$SLURM_NODEID" --meet "$0"'
        return (
            "#!/bin/sh\n"
            'first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n'
            "address=$(scontrol show node \"$first\" | sed -n 's/.*NodeAddr=\\([^ ]*\\).*/\\1/p')\n"
            # Jobs of one machine mustn't meet at one port.
            f'exec srun --kill-on-bad-exit=1 --wait=60 sh -c {shlex.quote("exec " + place)} "$address:$((20000 + SLURM_JOB_ID % 20000))"\n'
        )

    def found(self, names: Sequence[str]) -> Mapping[str, Found]:
        """From ``squeue``, which also shows jobs that ended in the last minutes."""
        known: dict[str, Found] = {}
        for begin in range(0, len(names), NAMES_AT_ONCE):
            some = names[begin : begin + NAMES_AT_ONCE]
            listed = self._asked("squeue", "--noheader", "--states=all", f"--name={','.join(some)}", "--format=%j|%T|%r")
            for line in listed.splitlines():
                name, state, reason = line.split("|", 2)
                one = _found(state, reason)
                if name not in known or known[name].state is LaunchState.ENDED:  # of two with one name the living one counts
                    known[name] = one
        return known

    def end(self, name: str) -> None:
        """``scancel``."""
        self._asked("scancel", "--quiet", f"--name={name}")

    def close(self) -> None:
        """Slurm's jobs go on."""

    def _type(self, kind: str) -> str:
        """The type of accelerators, as the cluster spells it, whose name holds this text."""
        names = self.capacity().gpu_names
        fitting = [name for name in names if kind in name.lower()]
        if not fitting:
            raise LaunchRefused(f"expected gpu_kind to be in one of the cluster's types ({', '.join(names) or 'none'}), got {kind!r}")
        return fitting[0]

    def _asked(self, *command: str, text: str | None = None) -> str:
        """What the command prints. Raises ClusterUnavailable; for ``sbatch`` _Failed."""
        # A name is for one worker, and this process has its own.
        environment = {name: value for name, value in os.environ.items() if name != "ZETADP_EXECUTOR_ID"}
        try:
            done = subprocess.run(  # noqa: S603 (our own words and the operator's; of a job there is its id)
                command, input=text, env=environment, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise ClusterUnavailable(f"{command[0]} didn't answer within {COMMAND_SECONDS:g} s") from None
        if done.returncode == 0:
            return done.stdout
        said = "; ".join(_sentences(done.stderr)) or f"it ended with code {done.returncode}"
        if command[0] == "sbatch":
            raise _Failed(said)
        raise ClusterUnavailable(f"{command[0]}: {said}")


@final
class _Failed(Exception):
    def __init__(self, said: str) -> None:
        self.said = said
        super().__init__(said)


def _found(state: str, reason: str) -> Found:
    said = None if reason in ("", "None") else reason
    if state in WAITING:
        return Found(state=LaunchState.WAITING, reason=said or state.lower())
    if state in RUNNING:
        return Found(state=LaunchState.RUNNING)
    return Found(state=LaunchState.ENDED, reason=f"{state.lower()}" + (f", {said}" if said else ""))


def _sentences(text: str) -> Iterator[str]:
    """What a command says, without its own name."""
    for line in text.splitlines():
        if said := re.sub(r"^\w+: (error: )?", "", line).strip():
            yield said
