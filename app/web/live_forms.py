r"""Pages that query one endpoint while you type: the comparisons with papers and the best shape of noise. Forms come from its schema."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, final

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from zetadp.app.calculators.compare.spectral.classic_gaussian import ClassicGaussianComparison
from zetadp.app.calculators.compare.spectral.layers import LayersComparison
from zetadp.app.calculators.compare.spectral.request import SpectralComparison
from zetadp.app.calculators.compare.spectral.training import SpectralTrainingComparison
from zetadp.app.calculators.compare.spof.constant_selection import ConstantSelectionComparison
from zetadp.app.calculators.compare.spof.dp_sgd import DpSgdLaplaceComparison
from zetadp.app.calculators.compare.spof.environment import EnvironmentalNoiseComparison
from zetadp.app.calculators.compare.spof.functional import FunctionalMechanismComparison
from zetadp.app.calculators.compare.spof.operation_counts import OperationCountsComparison
from zetadp.app.calculators.compare.spof.setting import SpofComparison
from zetadp.app.calculators.compare.spof.taylor import TaylorComparison
from zetadp.app.calculators.compare.training import TrainingComparison
from zetadp.app.calculators.noise_shapes import NoiseShapeRequest
from zetadp.app.web.forms import Field, fields_of
from zetadp.app.web.rendering import page
from zetadp.app.web.wording.words import FIELDS, Words
from zetadp.mechanisms.base import Value

router = APIRouter()


@final
class FormPage(Value):
    """A page: its endpoint, its title, and the request it sends."""

    path: str
    title: str
    summary: str
    request: type[Value]


COMPARISONS = {
    "training": FormPage(
        path="/v1/compare/training",
        title="A training's printed epsilon, read in four ways",
        summary="Papers print one noise and one sampling rate. What these refer to changes epsilon by factors of two to seventy.",
        request=TrainingComparison,
    ),
    "classic_gaussian": FormPage(
        path="/v1/compare/classic_gaussian",
        title="The classic noise formula",
        summary="sqrt(2 log(1.25 / delta)) / epsilon compared with the noise that is needed.",
        request=ClassicGaussianComparison,
    ),
    "spectral": FormPage(
        path="/v1/compare/spectral",
        title="Spectral-DP's statements about one release",
        summary="What the filter keeps, and what the noise protects under each reading of the paper.",
        request=SpectralComparison,
    ),
    "layers": FormPage(
        path="/v1/compare/layers",
        title="Clipping layer by layer",
        summary="Spectral-DP clips each layer of a gradient separately: what this means for sensitivity and noise.",
        request=LayersComparison,
    ),
    "spectral_training": FormPage(
        path="/v1/compare/spectral_training",
        title="Spectral-DP's epsilon for a whole training",
        summary="Corollary 2 as printed, and what follows from the noise that it assumes.",
        request=SpectralTrainingComparison,
    ),
    "spof": FormPage(
        path="/v1/compare/spof",
        title="SPOF's Algorithm 1",
        summary="Every printed figure of the stabilised perturbed loss function next to the proven one.",
        request=SpofComparison,
    ),
    "functional_mechanism": FormPage(
        path="/v1/compare/functional_mechanism",
        title="The functional mechanism, as SPOF uses it",
        summary="Sensitivity, noise and epsilon of coefficients that are summed over all records.",
        request=FunctionalMechanismComparison,
    ),
    "dp_sgd_laplace": FormPage(
        path="/v1/compare/dp_sgd_laplace",
        title="SPOF's Algorithm 2: Laplace noise on gradients",
        summary="Its noise scale depends on the record that it should hide.",
        request=DpSgdLaplaceComparison,
    ),
    "environmental_noise": FormPage(
        path="/v1/compare/environmental_noise",
        title="SPOF under environmental noise",
        summary="What noise on the sensors does to the factor b and to privacy.",
        request=EnvironmentalNoiseComparison,
    ),
    "taylor": FormPage(
        path="/v1/compare/taylor",
        title="SPOF's Taylor expansion",
        summary="The printed remainder and coefficients next to the true ones.",
        request=TaylorComparison,
    ),
    "constant_selection": FormPage(
        path="/v1/compare/constant_selection",
        title="Choosing SPOF's constant by accuracy",
        summary="In a sweep over constants, every run is a release.",
        request=ConstantSelectionComparison,
    ),
    "operation_counts": FormPage(
        path="/v1/compare/operation_counts",
        title="SPOF's operation counts",
        summary="The printed counts of operations, counted again.",
        request=OperationCountsComparison,
    ),
}
"""Keyed by the last part of the endpoint's path. One release of complex noise has no page here; its calculator has the comparison."""

NOISE_SHAPE = FormPage(
    path="/v1/noise-shapes",
    title="The best shape of complex noise",
    summary="How to split noise between the real and the imaginary part when one unit moves them differently. Enter the total noise or "
    "the guarantee to reach.",
    request=NoiseShapeRequest,
)


LABELS = {
    "at": "Values of the factor b",
    "convention": "What sigma refers to",
    "epsilon": "Epsilon",
    "sampler": "How samples are drawn",
}
"""Of fields whose name means something else here than in a mechanism, or says too little."""

COSTS = "costs."
"""The path of what single operations cost."""
COST_HELP = "Of one such operation, in the unit of all others. The paper's if you leave it empty."


@router.get("/comparisons", response_class=HTMLResponse)
def list_comparisons() -> HTMLResponse:
    """Lists the comparisons."""
    return page("comparisons.html", "Published versus proven", current="/papers", entries=COMPARISONS)


@router.get("/comparisons/{name}", response_class=HTMLResponse)
def read_comparison(name: str) -> HTMLResponse:
    """One comparison."""
    if name not in COMPARISONS:
        return page("missing.html", "Not found", current="/papers", status=404, what="comparison", name=name)
    return _page(COMPARISONS[name], "/papers")


@router.get("/noise-shapes", response_class=HTMLResponse)
def read_noise_shapes() -> HTMLResponse:
    """The best shape of complex noise."""
    return _page(NOISE_SHAPE, "/calculators")


def _page(asked: FormPage, current: str) -> HTMLResponse:
    fields = form_of(asked)
    return page(
        "asking.html",
        asked.title,
        current=current,
        modules=("core.js", "asking.js"),
        asked=asked,
        fields=[field for field in fields if field.required or field.value],
        rare=[field for field in fields if not (field.required or field.value)],
    )


def form_of(asked: FormPage) -> tuple[Field, ...]:
    """The page's fields, filled in with the schema's example."""
    schema = _schema(asked.request)
    example: dict[str, Any] = schema["examples"][0]
    descriptions = descriptions_in(schema["description"])

    def words(path: str) -> Words:
        name = path.rsplit(".", 1)[-1]
        label = LABELS.get(path, name.replace("_", " ").capitalize())
        if path.startswith(COSTS):
            return Words(
                f"Cost: {name.replace('_', ' ')}",
                "",
                COST_HELP,
            )
        if path in LABELS:
            return Words(label, "", descriptions[name])
        if path in FIELDS:
            return FIELDS[path] if "." in path else Words(FIELDS[path].label, "", descriptions.get(name, ""))
        return Words(label, "", descriptions.get(name, ""))

    return fields_of(schema, example, words)


@cache
def _schema(request: type[Value]) -> dict[str, Any]:
    return request.model_json_schema()


def descriptions_in(description: str) -> dict[str, str]:
    r"""What a docstring's attributes section says of each, as a sentence.

    >>> descriptions_in("It.\n\nAttributes:\n  epsilon: the one that\n    counts.\n  low, high: ends.")["high"]
    'Ends.'
    """
    section = description.partition("Attributes:\n")[2]
    found: dict[str, str] = {}
    # An attribute begins two blanks in; what goes on is indented deeper.
    for names, text in re.findall(r"^ {2}(\w[\w, ]*): (.+(?:\n {3,}.+)*)", section, re.MULTILINE):
        sentence = " ".join(text.replace("``", "").split()).removesuffix("; or").rstrip(".") + "."
        # A paper's letter and a formula stay as they are.
        is_word = re.match(r"[a-z]+[ ,.]", sentence) is not None and re.match(r"[a-z]\b", sentence) is None
        found.update(dict.fromkeys(names.split(", "), f"{sentence[0].upper()}{sentence[1:]}" if is_word else sentence))
    return found
