r"""How many sites a secure sum may lose, and how many may collude with the coordinator. Free of torch."""

from __future__ import annotations

from typing import Annotated, Literal, final

from pydantic import Field, Strict

from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.specs.algorithms.federation import MOST_SITES


@final
class SecureAggregation(Value):
    r"""Only the sum of all sites' integers becomes known, and each site adds a share of the noise.

    Of n sites at least n - dropouts have to stay until a round's end, or the round gives nothing; at least n - dropouts - colluding of
    these are honest, and the shares of so many are the noise that is accounted for.

    Attributes:
      dropouts: sites that may be missing at the end of a round.
      colluding: sites that may work together, with the coordinator or without it, and tell each other everything that they know. At least
        one: whoever sees the sum and is a site itself knows its own share of the noise, though it works with nobody.
    """

    kind: Literal["secure"] = "secure"
    dropouts: Annotated[int, Strict(), Field(ge=0, le=MOST_SITES)]
    colluding: Annotated[int, Strict(), Field(ge=1, le=MOST_SITES)]

    def check(self, sites: int) -> None:
        r"""Raises InvalidParameter where a coordinator could get two different sums of one round: 2 (n - dropouts) <= n + colluding.

        Any two sets of n - dropouts sites then have an honest one in common, and an honest site answers for one set alone.
        """
        if sites > MOST_SITES:
            raise InvalidParameter("nodes", f"<= {MOST_SITES} with secure aggregation", sites)
        if not 2 * (sites - self.dropouts) > sites + self.colluding:
            expected = f"such that 2 * dropouts + colluding < {sites}, the number of sites"
            raise InvalidParameter("aggregation", expected, f"dropouts {self.dropouts}, colluding {self.colluding}")

    def least(self, sites: int) -> int:
        """How many sites have to stay until the end of a round."""
        return sites - self.dropouts

    def honest(self, sites: int) -> int:
        """How many of those are honest at least: whose shares of the noise count."""
        return sites - self.dropouts - self.colluding
