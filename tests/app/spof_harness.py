"""What the tests of SPOF's comparisons ask with."""

from __future__ import annotations

from zetadp.app.calculators.compare.spof import algorithm as spof
from zetadp.app.calculators.compare.spof import dp_sgd as spof_dp_sgd
from zetadp.app.calculators.compare.spof import functional as spof_functional
from zetadp.app.calculators.compare.spof.dp_sgd import DpSgdLaplaceComparison
from zetadp.app.calculators.compare.spof.functional import FunctionalMechanismComparison
from zetadp.app.calculators.compare.spof.setting import SpofComparison

FAMILIES = {
    "spof": (SpofComparison, spof.compare_spof),
    "dp_sgd_laplace": (DpSgdLaplaceComparison, spof_dp_sgd.compare_dp_sgd_laplace),
    "functional_mechanism": (FunctionalMechanismComparison, spof_functional.compare_functional_mechanism),
}
EXAMPLES = {name: model.model_config["json_schema_extra"]["examples"][0] for name, (model, _) in FAMILIES.items()}


def ask(family, **changes):
    model, compare = FAMILIES[family]
    return compare(model.model_validate(EXAMPLES[family] | changes))


def found(answer, row, part=""):
    """The one finding of a row whose quantity contains ``part``."""
    (only,) = [each for each in answer.published if each.erratum == row and part in each.quantity]
    return only


def plain(**changes):
    """The paper's setting without stabilisation."""
    return ask("spof", **({"stabilisation": 0.0, "releases": 1} | changes))
