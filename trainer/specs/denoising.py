r"""How training may process rows that were released with noise: choices by public constants alone, which cost nothing. Free of torch."""

from __future__ import annotations

from typing import Annotated, Literal, final

from pydantic import Field

from zetadp.mechanisms.base import Probability, Value


@final
class AsReleased(Value):
    """The released rows themselves, which lie far outside [0, 1]: unbiased, and unbounded where the loss is linear in them."""

    kind: Literal["as_released"] = "as_released"


@final
class Clamped(Value):
    """Every number is moved to the nearer end of [0, 1]: at any useful epsilon most lie at an end, and column means near 1/2."""

    kind: Literal["clamped"] = "clamped"


@final
class Shrunk(Value):
    r"""Rows y are shrunk towards estimates mu of their column means and clamped: mu + f (y - mu), with f = min(1, spread / noise's std).

    Since the variance of the noise is known, mu is the James-Stein estimate. What is left of the rows around it is nearly all noise, as
    wide as the rows of a table might be: it teaches the network to pass on differences from the means, and the means are what it learns of
    the data.

    Attributes:
      spread: standard deviation of the noise that is kept, in units of [0, 1]; in (0, 1].
    """

    kind: Literal["shrunk"] = "shrunk"
    spread: Probability = 0.2


AnyDenoising = AsReleased | Clamped | Shrunk
Denoising = Annotated[AsReleased | Clamped | Shrunk, Field(discriminator="kind")]
