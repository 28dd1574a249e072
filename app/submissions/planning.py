r"""From a submitted spec to its calibrated plan; refusals name the request's own fields."""

from __future__ import annotations

from pydantic import ValidationError

from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings
from zetadp.app.uploads.availability import finder_of
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import AnyPlan, AnyTrainingSpec
from zetadp.trainer.data.uploaded import found_by


def planned(settings: Settings, database: Database, tenant: str, spec: AnyTrainingSpec) -> AnyPlan:
    r"""The plan of a tenant's training, on data sets of that tenant. Nothing is stored.

    Raises:
      InvalidParameter, CalibrationFailed, UnsupportedEvent: there is no plan; with the path of the field in the request, if it is
        one of the spec's.
    """
    try:
        with found_by(finder_of(settings, database, tenant)):
            return spec.plan()
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
