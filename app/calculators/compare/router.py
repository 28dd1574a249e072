r"""POST /v1/compare/...: one small router per family, combined here."""

from __future__ import annotations

from fastapi import APIRouter

from zetadp.app.calculators.compare import training
from zetadp.app.calculators.compare.complex_gaussian import means as complex_gaussian_means
from zetadp.app.calculators.compare.complex_gaussian import release as complex_gaussian
from zetadp.app.calculators.compare.complex_gaussian import sgd_step as complex_gaussian_sgd_step
from zetadp.app.calculators.compare.spectral import classic_gaussian
from zetadp.app.calculators.compare.spectral import layers as spectral_layers
from zetadp.app.calculators.compare.spectral import release as spectral
from zetadp.app.calculators.compare.spectral import training as spectral_training
from zetadp.app.calculators.compare.spof import algorithm as spof
from zetadp.app.calculators.compare.spof import constant_selection, operation_counts, taylor
from zetadp.app.calculators.compare.spof import dp_sgd as spof_dp_sgd
from zetadp.app.calculators.compare.spof import environment as spof_environment
from zetadp.app.calculators.compare.spof import functional as spof_functional

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
