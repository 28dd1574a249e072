r"""The zeta-DP paper's Table 4: ten complex activations in one network, on spoken words as there, and on small digits."""

from __future__ import annotations

from typing import NamedTuple

from zetadp.trainer.recipes.digits import DIGITS
from zetadp.trainer.recipes.recipe import PrintedResult, Recipe
from zetadp.trainer.recipes.signals import SPEECH_COMMANDS
from zetadp.trainer.specs.algorithms.comparison import ComparedTraining, Comparison
from zetadp.trainer.specs.algorithms.zeta_dp_sgd import ZetaDpSgd
from zetadp.trainer.specs.models import papers
from zetadp.trainer.specs.models.layer_numbers import ComplexActivation
from zetadp.trainer.specs.models.model_spec import ComplexMlp


class Printed(NamedTuple):
    """A row of the table: an activation, whose it is, and ROC-AUC on Speech Commands."""

    name: ComplexActivation
    words: str
    roc_auc: float


TABLE_4 = (
    Printed("separable_sigmoid", "separable sigmoid (Nitta 1997)", 0.529),
    Printed("zrelu", "zReLU (Guberman 2016)", 0.547),
    Printed("trainable_cardioid_per_feature", "trainable cardioid, a bias for each feature (Virtue et al. 2017)", 0.802),
    Printed("siglog", "SigLog (Georgiou and Koutsougeras 1992)", 0.873),
    Printed("modrelu_per_feature", "trainable modReLU, a bias for each feature (Arjovsky et al. 2016)", 0.890),
    Printed("cardioid", "cardioid (Virtue et al. 2017)", 0.892),
    Printed("trainable_cardioid", "trainable cardioid, one bias (Virtue et al. 2017)", 0.894),
    Printed("modrelu", "modReLU, one bias (Arjovsky et al. 2016)", 0.895),
    Printed("crelu", "cReLU (Trabelsi et al. 2017)", 0.919),
    Printed("igaussian", "iGaussian (Virtue et al. 2017)", 0.934),
)
"""By what the paper found, from the smallest on; it trains each five times."""

_ALL_COUNT = (
    "every training is released, so the guarantee is for all of them together; the paper's epsilon is that of one, as if the choice among "
    "them were free"
)
_ONCE = "each once, where the paper repeats each five times: set spec.repetitions to 5 for that, at the cost of all 50"


def on_speech(name: ComplexActivation) -> ZetaDpSgd:
    """The recipe for spoken words with this activation."""
    assert isinstance(SPEECH_COMMANDS.spec, ZetaDpSgd)
    return ZetaDpSgd.model_validate({**dict(SPEECH_COMMANDS.spec), "model": papers.speech(classes=10, activation=name)})


def on_digits(name: ComplexActivation) -> ZetaDpSgd:
    """The recipe for digits with this activation."""
    model = ComplexMlp(hidden=(64,), activation=name, head="real_part")
    return ZetaDpSgd.model_validate({**dict(ZetaDpSgd.example()), "model": model})


def _compared(of: dict[ComplexActivation, ZetaDpSgd]) -> Comparison:
    parts = tuple(ComparedTraining(name=name.replace("_", "-"), spec=spec) for name, spec in of.items())
    return Comparison(data=parts[0].spec.data, parts=parts)


SPEECH_ACTIVATIONS = Recipe(
    name="speech_activations",
    title="Ten spoken words with each of the ten complex activations",
    paper="zeta_dp",
    reference="appendix A.3, Table 4",
    spec=_compared({row.name: on_speech(row.name) for row in TABLE_4}),
    hyper_parameters=SPEECH_COMMANDS.hyper_parameters + ", with each activation in the place of iGaussian",
    printed_results=tuple(PrintedResult(of=row.words, figures={"roc_auc": row.roc_auc}, where="Table 4") for row in TABLE_4),
    printed_run=SPEECH_COMMANDS.printed_run,
    declared=SPEECH_COMMANDS.declared,
    differences=(_ALL_COUNT, _ONCE, *SPEECH_COMMANDS.differences),
    errata=SPEECH_COMMANDS.errata,
    original_data=SPEECH_COMMANDS.original_data,
)

DIGITS_ACTIVATIONS = Recipe(
    name="digits_activations",
    title="Handwritten digits as phase pairs with each of the ten complex activations of the paper's Table 4",
    paper=None,
    reference="the choice of activations in appendix A.3, Table 4, of the zeta-DP paper, on data that a library brings",
    spec=_compared({row.name: on_digits(row.name) for row in TABLE_4}),
    hyper_parameters=DIGITS.hyper_parameters + ", tuned with the cardioid; each activation in its place",
    declared=DIGITS.declared,
    differences=(
        "not the paper's data or network: 8x8 digits and one hidden layer, and an epsilon of 4 for each training",
        "every training is released, so the guarantee is for all ten together",
    ),
    errata=DIGITS.errata,
    original_data=DIGITS.original_data,
)
