"""Both engines of the contour route, compiled and NumPy's: a test module that imports ``engine`` runs with each."""

from __future__ import annotations

import pytest

from zetadp.accountants.densities import heights, loops
from zetadp.accountants.routes.contour import engine as contours

MODULES = (loops, heights, contours)

needs_a_compiler = pytest.mark.skipif(
    any(module.COMPILED is None for module in MODULES), reason="no compiled loops (was there a C compiler at the installation?)"
)


@pytest.fixture(autouse=True, params=[pytest.param("compiled", marks=needs_a_compiler), "numpy"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "numpy":
        for module in MODULES:
            monkeypatch.setattr(module, "COMPILED", None)
    return request.param
