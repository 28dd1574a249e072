r"""Requests for profiles and their answers. Domain types appear as they are; only transport fields are added."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, final

from pydantic import ConfigDict, Field

from accountants import ACCOUNTANTS, Event
from mechanisms import Adjacency, PrivacyUnit, Step
from mechanisms.base import Extended, NonNegative, Number, OpenProbability, Value

if TYPE_CHECKING:
    AccountantName = str
else:
    # The registered ones, so that a new accountant is offered here by being registered.
    AccountantName = Literal[tuple(accountant.name for accountant in ACCOUNTANTS)]

LONGEST_LIST = 1000
Epsilons = Annotated[tuple[NonNegative, ...], Field(max_length=LONGEST_LIST)]
Deltas = Annotated[tuple[OpenProbability, ...], Field(max_length=LONGEST_LIST)]
Orders = Annotated[tuple[Annotated[Number, Field(gt=1.0, le=1e6)], ...], Field(max_length=LONGEST_LIST)]
Alphas = Annotated[tuple[Annotated[Number, Field(ge=0.0, le=1.0)], ...], Field(max_length=LONGEST_LIST)]

_SENSITIVITY = {"l2": 1.0, "adjacency": "add_remove", "unit": "record"}
RELEASE = {"kind": "release", "mechanism": {"kind": "complex_gaussian", "std": 1.0, "correlation": 0.0, "sensitivity": _SENSITIVITY}}
TRAINING = {"kind": "repeated", "count": 1000, "event": {"kind": "poisson_sampled", "probability": 0.01, "event": RELEASE}}


def example(request: dict[str, Any]) -> ConfigDict:
    """Shown by the documentation page, which sends it as it stands."""
    return ConfigDict(json_schema_extra={"examples": [request]})


@final
class ProfileRequest(Value):
    """What to compute of an event's privacy profile; each list may be empty.

    Attributes:
      event: what is done to the data.
      accountant: which route; any gives an upper bound.
      epsilons: where delta is wanted; >= 0.
      deltas: where epsilon is wanted; in (0, 1).
      orders: where the Renyi divergence is wanted; in (1, 1e6].
      alphas: false positive rates where the attacker's false negative rate is wanted; in [0, 1].
    """

    model_config = example({"event": TRAINING, "deltas": [1e-5], "epsilons": [1.0], "orders": [2.0], "alphas": [0.01]})

    event: Event
    accountant: AccountantName = "auto"
    epsilons: Epsilons = ()
    deltas: Deltas = ()
    orders: Orders = ()
    alphas: Alphas = ()


@final
class DeltaAt(Value):
    """delta at an epsilon: an interval that holds it. ``log_upper`` stays exact where ``upper`` underflows."""

    epsilon: float
    lower: float
    upper: float
    log_upper: Extended
    route: str


@final
class EpsilonAt(Value):
    """epsilon at a delta: an interval that holds it; ``upper`` is the guarantee."""

    delta: float
    lower: Extended
    upper: Extended
    route: str


@final
class RdpAt(Value):
    """Upper bound on the Renyi divergence of an order; null where the route has none."""

    order: float
    value: Extended | None


@final
class TradeOffAt(Value):
    """Lower bound on the attacker's false negative rate beta at false positive rate alpha."""

    alpha: float
    beta: float


@final
class Profile(Value):
    """An event's privacy profile at the points asked for, and how to redo it by hand."""

    adjacency: Adjacency | None
    unit: PrivacyUnit | None
    delta: tuple[DeltaAt, ...]
    epsilon: tuple[EpsilonAt, ...]
    rdp: tuple[RdpAt, ...]
    gdp_mu: Extended | None
    trade_off: tuple[TradeOffAt, ...]
    route: str
    derivation: tuple[Step, ...]
