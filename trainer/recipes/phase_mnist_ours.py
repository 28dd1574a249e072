r"""PhaseMNIST at the paper's epsilon with our hyper-parameters: correlated noise, larger samples, and a network that needs little noise."""

from __future__ import annotations

from zetadp.mechanisms.base import Adjacency
from zetadp.trainer.data import PhaseMnist
from zetadp.trainer.recipes.images import PHASE_MNIST
from zetadp.trainer.recipes.recipe import DeclaredData, MeasuredResult, Recipe
from zetadp.trainer.specs.algorithms.federated import FederatedZetaDpSgd
from zetadp.trainer.specs.algorithms.zeta_dp_sgd import ZetaDpSgd
from zetadp.trainer.specs.base import PrivacyTarget
from zetadp.trainer.specs.descent import Sgd
from zetadp.trainer.specs.models import papers
from zetadp.trainer.specs.models.layer_spec import FilterBank, Flatten, Linear
from zetadp.trainer.specs.models.model_spec import Sequential
from zetadp.trainer.specs.models.named_networks import ModelSpec
from zetadp.trainer.specs.network_training import PublicHeldOut
from zetadp.trainer.specs.samplers import CyclicPoissonSampler
from zetadp.trainer.specs.strategy import GivenBands

_TUNED = (
    "hyper-parameters were tuned on this public data set: the search itself has no guarantee, and needs none, since its images are public"
)
_LOTS = "lots of 2048 instead of 60 and a clipping norm of 0.5: more of each noisy sum is signal at a given epsilon"
_EPSILON = (
    "noise calibrated to epsilon 0.5, just below the printed 0.51, instead of a multiplier of 1.1: the epsilon proved for the paper's own "
    "run is smaller than the printed one, and smaller than ours"
)


def _recipe(
    name: str,
    title: str,
    model: ModelSpec,
    data: PhaseMnist,
    learning_rate: float,
    steps: int,
    measured: float,
    differences: tuple[str, ...],
) -> Recipe:
    """``measured``: mean accuracy of three runs, which differ by less than .0005."""
    return Recipe(
        name=name,
        title=title,
        paper="zeta_dp",
        reference="appendices A.4 and A.6.5, Table 5",
        spec=ZetaDpSgd(
            data=data,
            model=model,
            optimizer=Sgd(learning_rate=learning_rate),
            privacy=PrivacyTarget(adjacency=Adjacency.ADD_REMOVE, unit="phase_pair", delta=1e-5, epsilon=0.5),
            clipping_bound=0.5,
            expected_batch_size=2048,
            steps=steps,
            evaluation=PublicHeldOut(),
        ),
        hyper_parameters=PHASE_MNIST.hyper_parameters,
        printed_results=PHASE_MNIST.printed_results,
        printed_epsilons=PHASE_MNIST.printed_epsilons,
        printed_run=PHASE_MNIST.printed_run,
        measured=(MeasuredResult(epsilon=0.5, metric="accuracy", mean=measured, deviation=0.0, runs=3),),
        declared=DeclaredData(
            training_records=60_000,
            test_records=10_000,
            shape=(784,) if data.layout == "flat" else (1, 28, 28),
            is_complex=True,
            classes=10,
            unit="phase_pair",
        ),
        differences=(*differences, _EPSILON, _LOTS, _TUNED, *PHASE_MNIST.differences),
        errata=PHASE_MNIST.errata,
        original_data=PHASE_MNIST.original_data,
    )


PHASE_MNIST_LARGE_LOTS = _recipe(
    "phase_mnist_large_lots",
    "PhaseMNIST with the paper's network, larger samples and the paper's printed epsilon",
    papers.phase_mnist(),
    PhaseMnist(folder="mnist", pairing="with_replacement"),
    2.0,
    400,
    0.980,
    ("SGD at 2 for 400 steps",),
)

PHASE_MNIST_FILTERS = _recipe(
    "phase_mnist_filters",
    "PhaseMNIST through public Gabor filters and one complex layer, at the paper's printed epsilon",
    Sequential(
        numbers="complex",
        layers=(FilterBank(wavelengths=(4.0, 8.0), orientations=4, size=9, pool=4), Flatten(), Linear(outputs=10)),
        head="magnitude",
    ),
    PhaseMnist(folder="mnist", pairing="with_replacement", layout="image"),
    4.0,
    300,
    0.997,
    ("fixed public filters and one complex layer of 441 x 10 instead of the paper's network; SGD at 4 for 300 steps",),
)

BANDS = (363, 292, 275, 267, 261, 256, 252, 249, 246, 243, 239, 236, 231, 226, 217, 203)
"""The coefficients of least noise for 10000 steps, ``banded.optimal_coefficients``, in 1024ths as a plan rounds them."""

PHASE_MNIST_CORRELATED = Recipe(
    name="phase_mnist_correlated",
    title="PhaseMNIST with the paper's network, samples and steps, at its proven epsilon with correlated noise",
    paper="zeta_dp",
    reference="appendices A.4 and A.6.5, Table 5, with the noise of Choquette-Choo et al. 2023, arXiv:2306.08153",
    spec=ZetaDpSgd(
        data=PhaseMnist(folder="mnist", pairing="with_replacement"),
        model=papers.phase_mnist(),
        optimizer=Sgd(learning_rate=0.1),
        privacy=PrivacyTarget(adjacency=Adjacency.ADD_REMOVE, unit="phase_pair", delta=1e-5, epsilon=0.4024),
        clipping_bound=1.0,
        expected_batch_size=60,
        steps=10_000,
        sampling=CyclicPoissonSampler(groups=len(BANDS), seed=0),
        noise=GivenBands(coefficients=tuple(float(one) for one in BANDS)),
        evaluation=PublicHeldOut(),
    ),
    hyper_parameters=PHASE_MNIST.hyper_parameters,
    printed_results=PHASE_MNIST.printed_results,
    printed_epsilons=PHASE_MNIST.printed_epsilons,
    printed_run=PHASE_MNIST.printed_run,
    declared=PHASE_MNIST.declared,
    differences=(
        "noise that is correlated along 16 steps, over samples of 16 groups of pairs that take turns, instead of independent noise: "
        "sums of gradients have .83 of its size",
        "everything else is that of phase_mnist, to four digits the epsilon too, and nothing was tuned: two runs reached .949 and .948, "
        "where three of phase_mnist reached .930 +- .003",
        *PHASE_MNIST.differences[1:],
    ),
    errata=PHASE_MNIST.errata,
    original_data=PHASE_MNIST.original_data,
)

PHASE_MNIST_FEDERATED = Recipe(
    name="phase_mnist_federated",
    title="PhaseMNIST dealt to eleven nodes, each with noise of its own",
    paper=None,
    reference="the network and the data of the zeta-DP paper's Table 5, trained as in Algorithm 1 of the federated paper",
    spec=FederatedZetaDpSgd(
        data=PhaseMnist(folder="mnist", pairing="with_replacement"),
        model=papers.phase_mnist(),
        server=Sgd(learning_rate=2.0),
        nodes=11,
        distribution_seed=0,
        privacy=PrivacyTarget(adjacency=Adjacency.ADD_REMOVE, unit="phase_pair", delta=1e-5, epsilon=2.0),
        clipping_bound=0.5,
        expected_batch_size=186,
        steps=200,
        evaluation=PublicHeldOut(),
    ),
    hyper_parameters="none printed: the federated paper trains on brain scans, the other one in one place",
    measured=(MeasuredResult(epsilon=2.0, metric="accuracy", mean=0.977, deviation=0.001, runs=3),),
    declared=PHASE_MNIST.declared,
    differences=(
        "ours: eleven nodes with about 5455 pairs each, samples of 186 at each node, and SGD at 2 at the server; noise calibrated to "
        "epsilon 2, all of it added at every node",
        _TUNED,
        "one unit is a pair: an image may be in several pairs, at several nodes, and nothing is claimed per image",
    ),
    errata=("Z19",),
    original_data=PHASE_MNIST.original_data,
)
