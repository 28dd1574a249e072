r"""Where the processes of a team meet: in a file of one machine's, or at an address that several machines reach.

Across machines nothing is encrypted or authenticated, so only their own network may connect them (``docs/clusters.md``). The secret in the
names of the store's keys keeps the processes of one attempt from meeting those of another; it is no defence.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, final

import torch.distributed as dist

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.team_place import TeamPlace

PATIENCE: Final = timedelta(minutes=30)
"""A team member that hasn't answered for this long is considered lost."""
NAME_SECONDS: Final = 60.0
"""How long the name of the first machine may stay unknown."""
NAME_POLL_SECONDS: Final = 0.5
SIOCGIFADDR: Final = 0x8915
"""linux/sockios.h: asks for the IPv4 address of a network interface."""


@final
@dataclass(frozen=True)
class Meeting:
    r"""Where the members of one team meet, as each of its processes is told.

    Attributes:
      size: the number of members.
      place: this machine's, of how many.
      file: through which they find each other on one machine.
      round: how many teams this machine had before: each meets under names of its own.
    """

    size: int
    place: TeamPlace
    file: Path
    round: int

    def __post_init__(self) -> None:
        if self.size % self.place.machines:
            raise InvalidParameter("runtime.processes", f"a multiple of the {self.place.machines} machines", self.size)

    @property
    def here(self) -> range:
        """The ranks of this machine's members."""
        each = self.size // self.place.machines
        return range(self.place.machine * each, (self.place.machine + 1) * each)

    def store(self, rank: int) -> dist.Store:  # pyright: ignore[reportPrivateImportUsage]
        """The store through which the members find each other, for the member of this rank."""
        place = self.place
        if place.machines == 1:
            # One for each process: the file is deleted with the last of ``size`` of them.
            return dist.FileStore(str(self.file), self.size)  # pyright: ignore[reportPrivateImportUsage]
        host, port = place.address
        met = dist.TCPStore(  # pyright: ignore[reportPrivateImportUsage]
            host, port, is_master=rank == 0, timeout=PATIENCE, wait_for_workers=False
        )
        return dist.PrefixStore(f"{place.secret}/{self.round}", met)  # pyright: ignore[reportPrivateImportUsage]

    def choose_interface(self) -> None:
        """Make the members' connections of this process go over the network on which they meet."""
        name = "lo" if self.place.machines == 1 else interface_towards(*self.place.address)
        for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ[variable] = name

    def leave(self) -> None:
        """Remove what was left behind here."""
        self.file.unlink(missing_ok=True)


def interface_towards(host: str, port: int) -> str:
    r"""The network interface from which packets to this IPv4 host leave; to an address of this machine's own, the one that has it.

    A name that isn't known yet is waited for: a cluster may publish it only after its machine has begun.

    Raises:
      OSError: there is no route, or none of an interface that has an address, or nobody knows the name.

    >>> interface_towards("127.0.0.1", 29500)
    'lo'
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect((_address(host), port))  # sends nothing
        own = asked.getsockname()[0]
        for _, name in socket.if_nameindex():
            try:
                found = fcntl.ioctl(asked.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue  # it has no IPv4 address
            if socket.inet_ntoa(found[20:24]) == own:
                return name
    raise OSError(f"no network interface has the address {own}, from which {host} is reached")


def _address(host: str) -> str:
    """Its IPv4 address. Raises socket.gaierror."""
    deadline = time.monotonic() + NAME_SECONDS
    while True:
        try:
            return socket.gethostbyname(host)
        except socket.gaierror:
            if time.monotonic() > deadline:
                raise
            time.sleep(NAME_POLL_SECONDS)
