r"""One machine's place among those that share a training, as its launcher tells it. Free of torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Self, final

from pydantic import Field, model_validator

from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import InvalidParameter

TEAM_VARIABLE = "ZETADP_TEAM"
"""The environment variable with the place of a training process's machine; absent where it is the only one."""
Host = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$")]


@final
class TeamPlace(Value):
    r"""The machine with number ``machine``, of ``machines``.

    Attributes:
      host: of the first machine, where all meet: a name or an IPv4 address.
      port: there.
      secret: of this team, so that its processes don't meet those of another attempt.
    """

    machines: Annotated[int, Field(ge=1, le=64)] = 1
    machine: Annotated[int, Field(ge=0, lt=64)] = 0
    host: Host = "localhost"
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    secret: Annotated[str, Field(max_length=200)] = ""

    @model_validator(mode="after")
    def _is_one_of_them(self) -> Self:
        if self.machine >= self.machines:
            raise InvalidParameter("machine", f"below {self.machines}, the number of machines", self.machine)
        return self

    @property
    def address(self) -> tuple[str, int]:
        """Where all meet."""
        return self.host, self.port

    def share(self, processes: int) -> int:
        """How many of a team's processes run on this machine."""
        return processes // self.machines

    @classmethod
    def told(cls, environment: Mapping[str, str] = os.environ) -> TeamPlace:
        """The place that this process was told; by default it is the only machine."""
        text = environment.get(TEAM_VARIABLE)
        return cls() if text is None else cls.model_validate_json(text)
