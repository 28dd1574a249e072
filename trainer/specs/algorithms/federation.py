r"""Who takes part in a federation over a network: the coordinator's key, and each site's name and key. Free of torch."""

from __future__ import annotations

from typing import Annotated, Literal, Self, final

from pydantic import Field, Strict, StringConstraints, model_validator

from zetadp.mechanisms.base import Count, Tally, Value, is_absent
from zetadp.mechanisms.errors import InvalidParameter

FEDERATION_VARIABLE = "ZETADP_FEDERATION"
"""The environment variable with the path of a coordinator's settings."""

MOST_SITES = 64
"""The most sites of a federation over a network, of which a certificate names each; and of a secure sum, where each pair has a mask."""

SiteName = Annotated[str, StringConstraints(strict=True, pattern=r"^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$")]
KeyHex = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{64}$")]
"""An Ed25519 public key, 32 bytes in hexadecimal."""


Reason = Literal[
    "unreadable",
    "not_agreed",
    "not_signed",
    "other_code",
    "no_such_round",
    "past_round",
    "spent_round",
    "parameters",
    "budget",
    "failed",
    "protocol",
]
r"""Why a site refuses. None but ``failed`` depends on its data:

unreadable: not a request. not_agreed: its operator hasn't signed this proposal. not_signed: not by the proposal's coordinator. other_code:
the installed code isn't the one agreed on. no_such_round: not a number from 1 to the agreed rounds. past_round: before the last one, whose
answer alone is kept. spent_round: the last round asked again with other parameters, or its answer was lost: no second noise is drawn.
parameters: of another length, or not finite. budget: nothing is left of the site's own. failed: an error while drawing, or the
site's data can't be trained on, which alone may depend on them; the round is charged. protocol: not the next step of a secure sum, or what
came with it isn't right; or a plain round where sums are secure, or the reverse.
"""


@final
class FederatedSite(Value):
    """A site's name, and the public key that its statements are signed with."""

    name: SiteName
    key: KeyHex


@final
class Federation(Value):
    r"""Whom each site has agreed to work with.

    Attributes:
      name: of this federation; sites refuse to begin a second one with the same name and settings, whose rounds they have answered.
      coordinator: the public key that every round's request is signed with.
      sites: in their order, which gives each its number from 0.
    Raises:
      ValidationError: a name or a key is there twice.
    """

    name: SiteName
    coordinator: KeyHex
    sites: Annotated[tuple[FederatedSite, ...], Field(min_length=2, max_length=MOST_SITES)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        keys = [self.coordinator, *(site.key for site in self.sites)]
        for what, found in (("names", [site.name for site in self.sites]), ("keys", keys)):
            if len(set(found)) != len(found):
                raise InvalidParameter("federation", f"of participants with different {what}", found)
        return self

    def number(self, name: str) -> int | None:
        """A site's number; None if it takes no part."""
        return next((number for number, site in enumerate(self.sites) if site.name == name), None)


@final
class SiteRecord(Value):
    r"""What became of one site's part in a run, as the coordinator can prove it by the site's own statements.

    Attributes:
      arrived: rounds whose noisy sum counted, by itself or in a secure sum; what didn't counts as zero.
      uncounted: further rounds that it stated, whose noisy sums came too late, weren't of the right form, or were under masks of a secure
        sum that failed: it charged them all the same, and released what wasn't under masks.
      sent_bytes: that the integers of all these statements took; headers, and what else a secure sum takes, come on top.
      charged: rounds that its ledger had charged by its last statement, those whose answer was lost included; absent where it stated
        nothing, and so nobody else knows.
      statement: SHA-256 of its last statement, which has that of the one before it; absent where it stated nothing.
    """

    name: SiteName
    key: KeyHex
    arrived: Tally
    uncounted: Tally
    sent_bytes: Tally
    charged: Count | None = Field(default=None, exclude_if=is_absent)
    statement: KeyHex | None = Field(default=None, exclude_if=is_absent)


@final
class SiteStanding(Value):
    r"""How a site stands after a round, as its coordinator sees it.

    Attributes:
      answered: whether its answer to this round counts.
      refusal: why it refused this round; absent where it answered, or nothing came.
      arrived: rounds whose noisy sum counted so far.
      charged: rounds that its ledger had charged by its last statement; absent before its first.
    """

    name: SiteName
    answered: Annotated[bool, Strict()]
    refusal: Reason | None = Field(default=None, exclude_if=is_absent)
    arrived: Tally
    charged: Count | None = Field(default=None, exclude_if=is_absent)


@final
class SignedProposal(Value):
    r"""What all sites' operators signed.

    Attributes:
      digest: SHA-256 of the proposal, which holds the spec, the plan with its noise, and the two digests below.
      network: SHA-256 of the network's description.
      code: SHA-256 of the code that coordinator and sites ran (``zetadp.trainer.sites.code``).
    """

    digest: KeyHex
    network: KeyHex
    code: KeyHex
