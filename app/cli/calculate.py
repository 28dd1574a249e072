r"""``profile`` and ``calibrate``: the calculators, in this process or by a service."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

import typer
from pydantic import BaseModel, RootModel, ValidationError

from zetadp.accountants import ACCOUNTANTS, Event, Target
from zetadp.accountants.calibration import RdpPoint, TradeOffPoint
from zetadp.app.calculators.calibrations import CalibrationRequest, compute_calibration
from zetadp.app.calculators.profiles import compute_profile
from zetadp.app.calculators.schemas import Profile, ProfileRequest
from zetadp.app.cli.console import AsJson, Exit, JsonFile, Key, OptionalAddress, clear_errors, fail, out, print_json, read_json
from zetadp.app.client import Client
from zetadp.app.kit.field_errors import field_errors, summary

Accountant = Annotated[str, typer.Option(help=f"{', '.join(a.name for a in ACCOUNTANTS)}; each gives an upper bound.")]
ParameterKind = Literal["noise_scale", "sampling_probability", "sample_size", "steps", "clipping_bound"]
EventFile = RootModel[Event]
_Model = TypeVar("_Model", bound=BaseModel)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command()(profile)
    app.command()(calibrate)


def profile(
    event: JsonFile,
    epsilon: Annotated[list[float], typer.Option(help="Print delta at this epsilon (repeatable).")] = [],
    delta: Annotated[list[str], typer.Option(help="Print epsilon at this delta, however small (repeatable).")] = [],
    order: Annotated[list[float], typer.Option(help="Print the Renyi divergence of this order (repeatable).")] = [],
    alpha: Annotated[list[float], typer.Option(help="Print the attacker's false negative rate at this false positive rate.")] = [],
    prior: Annotated[list[float], typer.Option(help="Print the attacker's success if one unit took part with this probability.")] = [],
    advantage: Annotated[bool, typer.Option("--advantage", help="Print the attacker's largest advantage.")] = False,
    accountant: Accountant = "auto",
    address: OptionalAddress = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """What guarantee does an event give? EVENT is a JSON file like the "event" of POST /v1/profiles."""
    with clear_errors():
        body = {"event": read_json(event, EventFile).root, "accountant": accountant}
        points = {"epsilons": epsilon, "deltas": [_delta(text) for text in delta], "orders": order, "alphas": alpha, "priors": prior}
        request = _validated(ProfileRequest, {**body, **points, "advantage": advantage, "derivation": as_json})
        answer = compute_profile(request) if address is None else _with(address, key).profile(request)
        if as_json:
            print_json(answer)
        else:
            _print_profile(answer)


def _delta(text: str) -> float | str:
    # What no float can hold goes as it was written, and so does what isn't a number: it is refused by name.
    try:
        value = float(text)
    except ValueError:
        return text
    return value if value != 0.0 or not text.strip("0.") else text


def _print_profile(answer: Profile) -> None:
    out.print(f"neighbours: {answer.adjacency}, unit: {answer.unit}, route: {answer.route}", markup=False)
    if answer.gdp_mu is not None:
        out.print(f"mu = {answer.gdp_mu!r} (Gaussian differential privacy)", markup=False)
    for at_epsilon in answer.delta:
        out.print(f"delta({at_epsilon.epsilon!r}) <= {at_epsilon.upper!r}   log delta <= {at_epsilon.log_upper!r}", markup=False)
    for at_delta in answer.epsilon:
        out.print(f"epsilon({at_delta.delta!r}) <= {at_delta.upper!r}   and >= {at_delta.lower!r}", markup=False)
    if answer.caveats:
        out.print("\n  - ".join(("it holds only if all of the following hold:", *answer.caveats)), markup=False)
    for at_order in answer.rdp:
        out.print(f"Renyi divergence of order {at_order.order!r} <= {at_order.value!r}", markup=False)
    for point in answer.trade_off:
        out.print(f"at {point.alpha!r} false positives an attacker misses at least {point.beta!r}\n  {point.sentence}", markup=False)
    if answer.advantage is not None:
        out.print(f"advantage of any attacker <= {answer.advantage!r}", markup=False)
    for guess in answer.bayes_success:
        out.print(
            f"with prior {guess.prior!r} an attacker is right with probability <= {guess.success!r}\n  {guess.sentence}", markup=False
        )


def calibrate(
    event: JsonFile,
    epsilon: Annotated[float | None, typer.Option(help="Target epsilon, with --delta.")] = None,
    delta: Annotated[float | None, typer.Option(help="Target delta, with --epsilon.")] = None,
    gdp_mu: Annotated[float | None, typer.Option("--mu", help="Target mu (unsampled Gaussian events).")] = None,
    rdp: Annotated[tuple[float, float] | None, typer.Option(help="Target Renyi divergence: ORDER VALUE.")] = None,
    advantage: Annotated[float | None, typer.Option(help="Target advantage of the best attacker.")] = None,
    trade_off: Annotated[tuple[float, float] | None, typer.Option(help="Target point of the trade-off curve: ALPHA BETA.")] = None,
    parameter: Annotated[ParameterKind, typer.Option(help="What may change.")] = "noise_scale",
    at: Annotated[str, typer.Option(help="The part of the event that may change, such as /events/0/event; all of it if absent.")] = "",
    accountant: Accountant = "auto",
    address: OptionalAddress = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """How much noise does a guarantee need? Or how much sampling, how many steps, how large a clipping bound does it allow?

    Noise scale and clipping bound are common factors on those of EVENT.
    """
    with clear_errors():
        point = None if rdp is None else _validated(RdpPoint, {"order": rdp[0], "value": rdp[1]})
        rates = None if trade_off is None else _validated(TradeOffPoint, {"alpha": trade_off[0], "beta": trade_off[1]})
        wanted = {"epsilon": epsilon, "delta": delta, "gdp_mu": gdp_mu, "rdp": point, "advantage": advantage, "trade_off": rates}
        target = _validated(Target, wanted)
        body = {"event": read_json(event, EventFile).root, "target": target, "accountant": accountant}
        request = _validated(CalibrationRequest, {**body, "parameter": {"kind": parameter, "at": at}, "derivation": as_json})
        answer = compute_calibration(request) if address is None else _with(address, key).calibrate(request)
        if as_json:
            print_json(answer)
            return
        out.print(f"{answer.parameter.meaning}: {answer.value!r}", markup=False)
        if answer.std is not None:
            out.print(f"std = {answer.std!r} per real component, noise multiplier = {answer.noise_multiplier!r}", markup=False)
        out.print(f"guarantee: {answer.guarantee.model_dump_json(exclude_none=True)}", markup=False)


def _with(address: str, key: str | None) -> Client:
    return Client(address, key)


def _validated(kind: type[_Model], values: dict[str, object]) -> _Model:
    try:
        return kind.model_validate(values)
    except ValidationError as invalid:
        fail(summary(field_errors(invalid.errors(), values)), Exit.USAGE)
        raise AssertionError from invalid  # fail() leaves
