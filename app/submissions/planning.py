r"""From a submitted spec to its calibrated plan, and what can be said before; refusals name the request's own fields.

Without the database, whose library takes longer to load than most plans take.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from pydantic import ValidationError

from zetadp.app.certificates.policy.judging import Budget, paid_by
from zetadp.app.certificates.policy.schema import Policy
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import AnyPlan, AnyTrainingSpec, RuntimeSpec
from zetadp.trainer.data import DataSetFacts
from zetadp.trainer.specs.base import CalibratedPrivacy, PrivacyTarget


def check_asked(spec: AnyTrainingSpec, runtime: RuntimeSpec, facts: DataSetFacts | None) -> None:
    r"""Whatever can be said before the data are read and noise is calibrated.

    Args:
      facts: of the data set, if they are known already.
    Raises:
      InvalidParameter: there is no plan; with the path of the field in the request, if it is one of the spec's.
    """
    with _named_as_in_request(spec):
        spec.check_request()
        spec.check_runtime(runtime)
        if facts is not None:
            spec.check_fits(facts)


def plan_of(spec: AnyTrainingSpec) -> AnyPlan:
    r"""The plan of a training on data sets that this process may read.

    Raises:
      InvalidParameter, CalibrationFailed, UnsupportedEvent: there is no plan; with the path of the field in the request, if it is
        one of the spec's.
    """
    with _named_as_in_request(spec):
        return spec.plan()


def check_policy(policy: Policy, spec: AnyTrainingSpec, budget: Budget | None) -> None:
    r"""What an operator's policy refuses before data are read and noise is calibrated; a worker judges the plan by all of it.

    Raises:
      InvalidParameter: with the path of the field in the request.
    """
    by = f", by this service's policy {policy.name!r}"
    if policy.ledger != "any" and budget is None:
        raise InvalidParameter("ledger", f"the id of a ledger{by}", None)
    if policy.ledger == "required" and paid_by(budget) != "lasting":
        raise InvalidParameter("ledger", f"one that is never renewed{by}", "one that is")
    if spec.reproducible:
        raise InvalidParameter("spec.reproducible", f"false{by}: nothing is guaranteed with a seed", True)
    if policy.public_held_out == "forbidden" and spec.held_out == "public":
        raise InvalidParameter("spec.evaluation", f"one that declares no held-out records public{by}", spec.held_out)
    audit = spec.audited_by
    for kind, least in (("canaries", policy.least_canaries), ("marks", policy.least_marks)):
        if least and (audit is None or audit.kind != kind or audit.canaries < least):
            asked = None if audit is None else f"{audit.canaries} {audit.kind}"
            raise InvalidParameter("spec.audit", f"at least {least} {kind}{by}", asked)
    if policy.given_weights == "forbidden" and spec.given_weights:
        raise InvalidParameter("spec.model", f"without weights given from outside{by}", spec.given_weights[0])
    target = getattr(spec, "privacy", None)
    if isinstance(target, CalibratedPrivacy) and target.unit not in policy.unit:
        raise InvalidParameter("spec.privacy.unit", f"one of {', '.join(policy.unit)}{by}", target.unit)
    if isinstance(target, PrivacyTarget) and target.adjacency not in policy.adjacency:
        accepted = ", ".join(one.value for one in policy.adjacency)
        raise InvalidParameter("spec.privacy.adjacency", f"one of {accepted}{by}", target.adjacency.value)


@contextmanager
def _named_as_in_request(spec: AnyTrainingSpec) -> Generator[None]:
    try:
        yield
    except InvalidParameter as refused:
        raise in_request(refused, spec) from refused
    except ValidationError as error:
        # A part of the plan refused what the spec makes of it; Pydantic wraps our own error, which knows the field.
        own = [detail for problem in error.errors() if isinstance(detail := problem.get("ctx", {}).get("error"), InvalidParameter)]
        if not own:
            raise
        raise in_request(own[0], spec) from error


def in_request(refused: InvalidParameter, spec: AnyTrainingSpec) -> InvalidParameter:
    """An error with the path of its field in the request."""
    first = refused.field.split(".")[0].split("[")[0]
    if first not in type(spec).model_fields:
        return refused
    return InvalidParameter(f"spec.{refused.field}", refused.expected, refused.got)
