r"""POST /v1/compare/...: one small router a family, gathered here."""

from __future__ import annotations

from fastapi import APIRouter

from app.calculators.compare import (
    classic_gaussian,
    complex_gaussian,
    complex_gaussian_means,
    complex_gaussian_sgd_step,
    constant_selection,
    operation_counts,
    spectral,
    spectral_layers,
    spectral_training,
    spof,
    spof_dp_sgd,
    spof_environment,
    spof_functional,
    taylor,
    training,
)

router = APIRouter(prefix="/compare")
for family in (
    complex_gaussian,
    complex_gaussian_means,
    complex_gaussian_sgd_step,
    spectral,
    spectral_layers,
    spectral_training,
    classic_gaussian,
    spof,
    spof_dp_sgd,
    spof_functional,
    spof_environment,
    taylor,
    operation_counts,
    constant_selection,
    training,
):
    router.include_router(family.router)
