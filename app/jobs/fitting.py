r"""Needs and capacities in the database: what is stored of a job, and the condition that a worker's capacity suffices for it."""

from __future__ import annotations

from sqlalchemy import ColumnElement, and_, literal, or_

from zetadp.app.jobs.needs import Capacity, Needs
from zetadp.app.tables.jobs import JobRow


def fitting(capacity: Capacity) -> ColumnElement[bool]:
    """The condition on a job's row that this suffices for it; the same as ``Capacity.lacks`` has."""
    kinds = [literal(name.lower()).like(literal("%") + JobRow.gpu_kind + "%") for name in capacity.gpu_names]
    return and_(
        JobRow.device.in_(capacity.devices),
        JobRow.gpus <= capacity.gpus,
        JobRow.machines <= capacity.machines,
        or_(JobRow.gpu_kind.is_(None), *kinds),
        or_(JobRow.memory_bytes.is_(None), JobRow.memory_bytes <= (capacity.memory_bytes or 0)),
    )


def needs_of_row(job: JobRow) -> Needs:
    """As they were stored."""
    return Needs.model_validate({name: getattr(job, name) for name in Needs.model_fields})
