r"""Requests for profiles and their answers. Domain types appear as they are; only transport fields are added."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, final

from pydantic import ConfigDict, Field

from zetadp.accountants import ACCOUNTANTS, Event
from zetadp.accountants.conversions import PosteriorBound
from zetadp.app.calculators.points import LONGEST_LIST, Alphas, DeltaPoints, EpsilonPoints, Orders
from zetadp.mechanisms import Adjacency, PrivacyUnit, Step
from zetadp.mechanisms.base import Extended, Number, OpenProbability, Value

if TYPE_CHECKING:
    AccountantName = str
else:
    # The registered accountants, so that registering a new one also offers it here.
    AccountantName = Literal[tuple(accountant.name for accountant in ACCOUNTANTS)]

Priors = Annotated[tuple[Annotated[Number, Field(ge=1e-300, lt=1.0)], ...], Field(max_length=LONGEST_LIST)]

_SENSITIVITY = {"l2": 1.0, "adjacency": "add_remove", "unit": "record"}
RELEASE = {"kind": "release", "mechanism": {"kind": "complex_gaussian", "std": 1.0, "correlation": 0.0, "sensitivity": _SENSITIVITY}}
TRAINING = {"kind": "repeated", "count": 1000, "event": {"kind": "poisson_sampled", "probability": 0.01, "event": RELEASE}}


def example(request: dict[str, Any]) -> ConfigDict:
    """Shown by the documentation page, which sends it unchanged."""
    return ConfigDict(json_schema_extra={"examples": [request]})


@final
class PosteriorAt(Value):
    """How far an output may move a belief, from this prior, except with this probability (for each side)."""

    prior: Annotated[Number, Field(ge=1e-300, lt=1.0)]
    failure_probability: OpenProbability


@final
class ProfileRequest(Value):
    """What to compute of an event's privacy profile; each list may be empty.

    Attributes:
      event: what is done to the data.
      accountant: the route; every route gives an upper bound.
      epsilons: the epsilons at which to give delta; >= 0, or "Infinity".
      deltas: the deltas at which to give epsilon; in (0, 1), as numbers or, if no float can hold them, as text such as "1e-400".
      orders: the orders at which to give the Renyi divergence; in (1, 1e6].
      alphas: the false positive rates at which to give the attacker's false negative rate; in [0, 1].
      advantage: whether to give the largest true minus false positive rate of any attack.
      priors: prior probabilities that one unit's data are there, for which to give the attacker's largest success; in (0, 1).
      posteriors: beliefs whose largest change to give.
      derivation: whether to give the steps by which the answer can be recomputed by hand.
    """

    model_config = example({"event": TRAINING, "deltas": [1e-5], "epsilons": [1.0], "orders": [2.0], "alphas": [0.01]})

    event: Event
    accountant: AccountantName = "auto"
    epsilons: EpsilonPoints = ()
    deltas: DeltaPoints = ()
    orders: Orders = ()
    alphas: Alphas = ()
    advantage: bool = False
    priors: Priors = ()
    posteriors: Annotated[tuple[PosteriorAt, ...], Field(max_length=LONGEST_LIST)] = ()
    derivation: bool = False


@final
class DeltaAt(Value):
    """delta at an epsilon, as an interval that contains it. ``log_upper`` stays exact where ``upper`` underflows."""

    epsilon: Extended
    lower: float
    upper: float
    log_upper: Extended
    route: str


@final
class EpsilonAt(Value):
    """epsilon at a delta (repeated as written), as an interval that contains it; ``upper`` is the guarantee."""

    delta: float | str
    lower: Extended
    upper: Extended
    route: str


@final
class RdpAt(Value):
    """Upper bound on the Renyi divergence of an order; null if the route has none."""

    order: float
    value: Extended | None


@final
class TradeOffAt(Value):
    """Lower bound on the attacker's false negative rate beta at false positive rate alpha; ``sentence``: what that means for one unit."""

    alpha: float
    beta: float
    sentence: str


@final
class SuccessAt(Value):
    """Upper bound on the probability of correctly telling whether one unit's data are there, which they are with probability ``prior``."""

    prior: float
    success: float
    sentence: str


@final
class Profile(Value):
    """An event's privacy profile at the requested points.

    Attributes:
      caveats: what all of it depends on.
      derivation: how to recompute it by hand, step by step; null unless the request asks for it.
      processor_seconds: what computing this answer took, beyond what was known before; an answer that is given again says what it took at
        first. Two answers that differ in nothing else are the same.
    """

    adjacency: Adjacency | None
    unit: PrivacyUnit | None
    caveats: tuple[str, ...]
    delta: tuple[DeltaAt, ...]
    epsilon: tuple[EpsilonAt, ...]
    rdp: tuple[RdpAt, ...]
    gdp_mu: Extended | None
    trade_off: tuple[TradeOffAt, ...]
    advantage: float | None
    bayes_success: tuple[SuccessAt, ...]
    posterior: tuple[PosteriorBound, ...]
    route: str
    derivation: tuple[Step, ...] | None
    processor_seconds: float
