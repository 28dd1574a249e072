r"""POST /v1/compare/...: one small router a family, gathered here."""

from __future__ import annotations

from fastapi import APIRouter

from app.calculators.compare import (
    classic_gaussian,
    complex_gaussian,
    complex_gaussian_means,
    complex_gaussian_sgd_step,
    spectral,
    spectral_layers,
    spectral_training,
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
):
    router.include_router(family.router)
