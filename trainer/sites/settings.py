r"""One file of settings for a site, and one for a coordinator: YAML, with paths relative to the file's folder."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self, TypeVar, final

import yaml
from pydantic import AfterValidator, Field, Strict, StringConstraints, model_validator

from zetadp.accountants.filters import RdpTargetBudget
from zetadp.mechanisms.base import Adjacency, OpenProbability, Positive, PrivacyUnit, Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data import DataSpec
from zetadp.trainer.specs.algorithms.federation import KeyHex, SiteName
from zetadp.trainer.specs.base import RuntimeSpec, Seed

ORDERS = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Renyi orders of a site's budget, which each answer for a sixth of its delta."""

LONGEST_SOCKET = 100
"""A local socket's path may have about so many bytes."""


def check_socket(path: Path) -> Path:
    """The path. Raises InvalidParameter if it is too long."""
    if len(os.fsencode(path)) > LONGEST_SOCKET:
        raise InvalidParameter("socket", f"a path of at most {LONGEST_SOCKET} bytes", str(path))
    return path


SocketPath = Annotated[Path, AfterValidator(check_socket)]
Address = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?:[1-9][0-9]{0,4}$")]
"""A host and its port."""


@final
class SiteBudget(Value):
    """(epsilon, delta) for each unit, of all that the site ever releases under its ledger, however rounds are chosen."""

    epsilon: Positive
    delta: OpenProbability
    adjacency: Adjacency
    unit: PrivacyUnit

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            _ = self.budget
        except ValueError as error:
            raise InvalidParameter("epsilon", f"so large that a Renyi order up to {ORDERS[-1]:g} meets it", self.epsilon) from error
        return self

    @property
    def budget(self) -> RdpTargetBudget:
        """As the filter has it."""
        return RdpTargetBudget(epsilon=self.epsilon, delta=self.delta, orders=ORDERS)


@final
class Share(Value):
    r"""For demonstrations: the units that site ``number`` of ``sites`` would have if a public data set were dealt to all of them.

    Attributes:
      seed: with a unit's own key it decides its site, as ``distribution_seed`` does where a federation is simulated.
    """

    number: Annotated[int, Strict(), Field(ge=0)]
    sites: Annotated[int, Strict(), Field(ge=1)]
    seed: Seed

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.number >= self.sites:
            raise InvalidParameter("share.number", f"below the {self.sites} sites", self.number)
        return self


@final
class SiteSettings(Value):
    r"""Of a site.

    Attributes:
      name: the site's, as the proposal has it.
      superlink: the coordinator's host and port, to which the site connects over Flower; it never opens a port.
      socket: instead, where the site listens on this machine for an NVFLARE client of the same user.
      state: the folder of the site's key, its ledger and the proposals that it agreed to. Never restored from a backup: a ledger that
        forgot rounds would admit them again.
      data: the site's own.
      sites: the public keys of other sites, by their names, as this site's operator had them from those sites themselves. Only sites that
        are in it are summed with in secret: a coordinator that made up the other sites would see this one's integers.
      share: of a public data set, for demonstrations; None if all of the data's training records are the site's.
      budget: the site's own.
      root_certificate: of the coordinator's server, in PEM; None for those that the system trusts.
      insecure: no encryption, for tests on one machine.
      node_key: the key that Flower's server knows this node by (an EC key as OpenSSH writes it); None if it knows no nodes.
      flower: the folder of Flower's environment; None for the one that ``zetadp federation flower`` makes.
      allows_seeds: takes part in reproducible federations, whose noise hides nothing from whoever knows the seed.
    """

    name: SiteName
    superlink: Address | None = None
    socket: SocketPath | None = None
    state: Path
    data: DataSpec
    sites: Mapping[SiteName, KeyHex] = Field(default_factory=dict[str, str])
    share: Share | None = None
    budget: SiteBudget
    runtime: RuntimeSpec = RuntimeSpec(device="cpu", threads=1)
    root_certificate: Path | None = None
    insecure: Annotated[bool, Strict()] = False
    node_key: Path | None = None
    flower: Path | None = None
    allows_seeds: Annotated[bool, Strict()] = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_way(self, "superlink", "socket", ("root_certificate", "insecure", "node_key", "flower"))
        return self

    @property
    def key_file(self) -> Path:
        """The site's private key."""
        return self.state / "site.pem"

    @property
    def ledger_file(self) -> Path:
        """The site's ledger."""
        return self.state / "ledger.sqlite"

    @property
    def agreements(self) -> Path:
        """The folder of the proposals that were agreed to."""
        return self.state / "agreements"


@final
class CoordinatorSettings(Value):
    r"""Of whoever runs a federation's jobs; a worker finds them by ``ZETADP_FEDERATION``.

    Attributes:
      key: the file of the private key whose public half is in the spec.
      listen: where Flower's server (SuperLink) listens for sites.
      relay: instead, where a run listens on this machine for the controller of its NVFLARE job, of the same user.
      round_seconds: how long a round waits for sites that answered the one before.
      first_seconds: how long the first round waits for all sites.
      certificate, certificate_key, root_certificate: for TLS, in PEM; all of them, or none with ``insecure``.
      node_keys: the folder with the sites' nodes' public keys (OpenSSH, one in a file); None to admit any node. What a node sends counts
        only with its site's signature either way.
      flower: as a site's.
    """

    key: Path
    listen: Address | None = None
    relay: SocketPath | None = None
    round_seconds: Annotated[float, Field(gt=0.0, le=86_400.0, allow_inf_nan=False)] = 60.0
    first_seconds: Annotated[float, Field(gt=0.0, le=86_400.0, allow_inf_nan=False)] = 600.0
    certificate: Path | None = None
    certificate_key: Path | None = None
    root_certificate: Path | None = None
    insecure: Annotated[bool, Strict()] = False
    node_keys: Path | None = None
    flower: Path | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_way(self, "listen", "relay", ("certificate", "certificate_key", "root_certificate", "insecure", "node_keys", "flower"))
        if self.relay is not None:
            return self
        given = [part is not None for part in (self.certificate, self.certificate_key, self.root_certificate)]
        if any(given) == self.insecure or (any(given) and not all(given)):
            raise InvalidParameter("certificate", "given with certificate_key and root_certificate, or insecure: true", given)
        return self


def _check_way(settings: SiteSettings | CoordinatorSettings, flower: str, nvflare: str, flowers: tuple[str, ...]) -> None:
    """Messages come over Flower or over NVFLARE, which has its own certificates and needs none of Flower's settings."""
    given = [name for name in (flower, nvflare) if getattr(settings, name) is not None]
    if len(given) != 1:
        raise InvalidParameter(flower, f"given for Flower, or {nvflare} for NVFLARE, and not both", " and ".join(given) or "neither")
    unused = [name for name in flowers if getattr(settings, name)]
    if given == [nvflare] and unused:
        raise InvalidParameter(unused[0], f"absent with {nvflare}: it is Flower's", str(getattr(settings, unused[0])))


class _Loader(yaml.SafeLoader):
    """Reads 1e-5 as the number that it is in YAML 1.2 and for everybody who writes it."""


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789"))
_Settings = TypeVar("_Settings", SiteSettings, CoordinatorSettings)
_PATHS = {"state", "socket", "relay", "root_certificate", "node_key", "flower", "key", "certificate", "certificate_key", "node_keys"}


def read_settings(kind: type[_Settings], path: Path) -> _Settings:
    r"""The settings in a file.

    Raises:
      InvalidParameter: it isn't YAML.
      ValidationError: names the field and what was expected.
      OSError: it can't be read.
    """
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), _Loader)  # noqa: S506 (a safe loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidParameter("settings", "a YAML file", str(path)) from error
    if isinstance(found, dict):
        folder = path.absolute().parent
        found = {name: str(folder / value) if name in _PATHS and isinstance(value, str) else value for name, value in found.items()}
    return kind.model_validate(found)
