r"""POST /v1/compare/...: one small router a family, gathered here."""

from __future__ import annotations

from fastapi import APIRouter

from app.calculators.compare import complex_gaussian, complex_gaussian_means, complex_gaussian_sgd_step

router = APIRouter(prefix="/compare")
for family in (complex_gaussian, complex_gaussian_means, complex_gaussian_sgd_step):
    router.include_router(family.router)
