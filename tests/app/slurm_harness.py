r"""A whole cluster of Slurm's on this machine: its own controller and two machines that share the loopback interface.

It needs Debian's ``slurm-wlm`` and ``munge``, and to be root.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

NEEDED = ("slurmctld", "slurmd", "sbatch", "srun", "munged")
MACHINES = ("n1", "n2")
READY_SECONDS = 60.0
CONFIGURATION = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=100000,batch_sched_delay=0,preempt_send_user_signal
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=30
NodeName={first} NodeAddr=127.0.0.1 Port={first_port} CPUs=64 RealMemory=64000
NodeName={second} NodeAddr=127.0.0.1 Port={second_port} CPUs=64 RealMemory=64000
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 GraceTime=0 State=UP
PartitionName=urgent Nodes=ALL PriorityTier=10 PreemptMode=OFF State=UP
"""


def missing() -> str | None:
    """Why there can be no cluster here; None if there can."""
    absent = [command for command in NEEDED if shutil.which(command) is None]
    if absent:
        return f"{absent[0]} isn't installed: apt-get install slurm-wlm munge"
    return None if os.geteuid() == 0 else "only root can run a cluster of Slurm's"


@contextmanager
def slurm_cluster(folder: Path) -> Generator[dict[str, str]]:
    """The environment in which Slurm's commands ask this cluster; its processes and all of its jobs are gone on leaving."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "state").mkdir()
    for machine in MACHINES:
        (folder / f"spool-{machine}").mkdir()
    (folder / "munge.key").write_bytes(secrets.token_bytes(128))
    (folder / "munge.key").chmod(0o400)
    port, first_port, second_port = _free_ports(3)
    configuration = folder / "slurm.conf"
    configuration.write_text(
        CONFIGURATION.format(
            host=socket.gethostname(),
            port=port,
            folder=folder,
            first=MACHINES[0],
            second=MACHINES[1],
            first_port=first_port,
            second_port=second_port,
        )
    )
    environment = {**os.environ, "SLURM_CONF": str(configuration)}
    with ExitStack() as stack:
        munge = ["munged", "--foreground", "--force", f"--key-file={folder}/munge.key", f"--socket={folder}/munge.socket"]
        munge += [f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log", f"--seed-file={folder}/munge.seed"]
        stack.enter_context(_daemon(munge, environment))
        _until((folder / "munge.socket").exists, folder)
        stack.enter_context(_daemon(["slurmctld", "-D", "-c", "-f", str(configuration)], environment))
        for machine in MACHINES:
            stack.enter_context(_daemon(["slurmd", "-D", "-N", machine, "-f", str(configuration)], environment))
        _until(lambda: idle_machines(environment) == set(MACHINES), folder)
        try:
            yield environment
        finally:
            _asked(environment, "scancel", "--quiet", "--user=root")
            _until(lambda: not _asked(environment, "squeue", "--noheader").strip(), folder)


def preempt(environment: dict[str, str], seconds: float, machine: str | None = None) -> str:
    """Have urgent work take machines for this long; the id of its job."""
    where = ["--nodes=2", "--ntasks-per-node=1"] if machine is None else [f"--nodelist={machine}"]
    return _asked(
        environment, "sbatch", "--parsable", "--partition=urgent", "--exclusive", "--output=/dev/null", *where, f"--wrap=sleep {seconds}"
    ).strip()


def idle_machines(environment: dict[str, str]) -> set[str]:
    """Those that run nothing."""
    return set(_asked(environment, "sinfo", "--Node", "--noheader", "--states=idle", "--format=%N").split())


def queue_of(environment: dict[str, str]) -> str:
    """What the cluster has in hand, for the message of a failure."""
    return _asked(environment, "squeue", "--states=all", "--format=%i %j %T %r")


def _asked(environment: dict[str, str], *command: str) -> str:
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60.0).stdout


@contextmanager
def _daemon(command: list[str], environment: dict[str, str]) -> Generator[None]:
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _until(condition: Callable[[], bool], folder: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            logs = "\n".join(f"{log.name}: {log.read_text()[-1500:]}" for log in sorted(folder.glob("*.log")))
            raise RuntimeError(f"the cluster isn't ready after {READY_SECONDS} s: {logs}")
        time.sleep(0.1)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
