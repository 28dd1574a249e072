r"""The Spectral-DP paper's training from scratch: MNIST at epsilon 2, CIFAR-10 at epsilon 3 (its sections 4.1 and 4.2, Tables 1 to 4)."""

from __future__ import annotations

from typing import NamedTuple

from zetadp.mechanisms.base import Adjacency
from zetadp.trainer.data import Cifar10, DataSpec, Mnist
from zetadp.trainer.recipes.recipe import DeclaredData, PrintedEpsilon, PrintedResult, Recipe, printed_accuracy
from zetadp.trainer.specs.algorithms.spectral_dp import SameForAll, SpectralDp
from zetadp.trainer.specs.base import PrivacyTarget
from zetadp.trainer.specs.descent import Sgd
from zetadp.trainer.specs.models import papers_spectral
from zetadp.trainer.specs.models.model_spec import Sequential
from zetadp.trainer.specs.network_training import PublicHeldOut

RATIOS = (0.0, 0.25, 0.5, 0.75, 0.875)
"""Of the filters, in Tables 2 and 4."""

SOUND = (
    "noise is real white noise on the kept coordinates, the same as Hermitian noise on the spectrum: the paper's real noise on a complex "
    "spectrum leaves half of it without noise (P1, P2)",
    "gradients are projected, then clipped, and noise is drawn only for what is kept (P9, P10, P18, P19); spec.order clip_then_filter is "
    "the paper's order with the same guarantee",
    "a ratio counts dimensions, in conjugate pairs (P4, P6): a kernel of 3 keeps 3 or 1 of 3, a block of 8 keeps 8, 7, 5, 3 or 1",
    "the epsilon is proved for Poisson samples under add-or-remove (P8, P11, P12, P13); a filter contributes nothing to it (P20)",
)
_ERRATA = ("P1", "P2", "P4", "P6", "P8", "P9", "P10", "P11", "P12", "P13", "P18", "P19", "P20")
_TUNED = (
    "learning rates come from short trials on this public data set, which no guarantee counts; no full run has shown that they are good"
)
_VARIANTS = "the tables' other ratios (0, 0.25, 0.5, 0.75, 0.875) go into spec.layers.filter_ratio, other budgets into spec.privacy.epsilon"


class _Experiment(NamedTuple):
    """What the recipes of one data set share."""

    data: DataSpec
    declared: DeclaredData
    epsilon: float
    differences: tuple[str, ...]
    original_data: str


class _Descent(NamedTuple):
    """Ours: the paper's lots of 500 and its rates go with an optimizer that it doesn't name."""

    filter_ratio: float
    clipping_bound: float
    learning_rate: float
    expected_batch_size: int
    steps: int

    @property
    def words(self) -> str:
        return (
            f"lots of {self.expected_batch_size} and SGD at {self.learning_rate:g} with momentum 0.9 for {self.steps} steps, "
            f"each layer clipped to {self.clipping_bound:g}, ratio {self.filter_ratio:g}"
        )


def _recipe(
    named: tuple[str, str, str], of: _Experiment, model: Sequential, descent: _Descent, words: str, printed: tuple[PrintedResult, ...]
) -> Recipe:
    """``named``: name, title and reference; ``words``: the paper's hyper-parameters."""
    name, title, reference = named
    return Recipe(
        name=name,
        title=title,
        paper="spectral_dp",
        reference=reference,
        spec=SpectralDp(
            data=of.data,
            model=model,
            layers=SameForAll(clipping_bound=descent.clipping_bound, filter_ratio=descent.filter_ratio),
            optimizer=Sgd(learning_rate=descent.learning_rate, momentum=0.9),
            privacy=PrivacyTarget(adjacency=Adjacency.ADD_REMOVE, unit="image", delta=1e-5, epsilon=of.epsilon),
            expected_batch_size=descent.expected_batch_size,
            steps=descent.steps,
            evaluation=PublicHeldOut(),
        ),
        hyper_parameters=f"{words}; batch 500, 30 epochs, the best test accuracy of any epoch; the optimizer isn't named",
        printed_results=printed,
        printed_epsilons=(PrintedEpsilon(epsilon=of.epsilon, delta=1e-5, method="Renyi DP, as a target", where="Table 1"),),
        declared=of.declared,
        differences=(descent.words, *of.differences, _VARIANTS, *SOUND),
        errata=_ERRATA,
        original_data=of.original_data,
    )


def _table(where: str, non_private: float, dp_sgd: float, spectral: float) -> tuple[PrintedResult, ...]:
    rows = {"without privacy": non_private, "DP-SGD": dp_sgd, "Spectral-DP": spectral}
    return tuple(printed_accuracy(of, accuracy, where) for of, accuracy in rows.items())


def _over_ratios(table: str, epsilon: float, accuracies: tuple[float, ...]) -> tuple[PrintedResult, ...]:
    """A row over ``RATIOS``."""
    where = f"{table}, epsilon {epsilon:g}"
    pairs = zip(RATIOS, accuracies, strict=True)
    return tuple(printed_accuracy(f"Spectral-DP, ratio {ratio:g}", accuracy, where, epsilon) for ratio, accuracy in pairs)


def _mnist(layout: str) -> _Experiment:
    is_flat = layout == "flat"
    return _Experiment(
        data=Mnist(folder="mnist", layout="flat" if is_flat else "image"),
        declared=DeclaredData(
            training_records=60_000,
            test_records=10_000,
            shape=(784,) if is_flat else (1, 28, 28),
            is_complex=False,
            classes=10,
            unit="image",
        ),
        epsilon=2.0,
        differences=(_TUNED,),
        original_data="MNIST (LeCun, Cortes and Burges): train-images-idx3-ubyte.gz and the three files beside it",
    )


_CIFAR10 = _Experiment(
    data=Cifar10(folder="cifar10", numbers="real"),
    declared=DeclaredData(training_records=4000, test_records=1000, shape=(3, 32, 32), is_complex=False, classes=10, unit="image"),
    epsilon=3.0,
    differences=(
        "4000 training images of the 50000, and 1000 of the 10000 test images: at the same epsilon the noise weighs about twelve times as "
        "much, so no figure here is comparable with the paper's; with the whole data set, set spec.expected_batch_size to 4096",
    ),
    original_data="CIFAR-10, binary version (cifar-10-binary.tar.gz; Krizhevsky 2009), or a NumPy archive of it",
)

_MODEL_1 = "784-2048-1024-160-10 in circulant blocks, the last of 10; clipping norm 0.5, learning rate 0.01"
_FROM_SCRATCH = "sections 4.1 and 4.2, Tables 1, 3 and 4, appendix A.5"

SPECTRAL_MODEL_1 = _recipe(
    ("spectral_mnist_model_1", "MNIST with the fully connected Model-1 in circulant blocks of 8", _FROM_SCRATCH),
    _mnist("flat"),
    papers_spectral.model_1(8),
    _Descent(filter_ratio=0.75, clipping_bound=0.25, learning_rate=0.8, expected_batch_size=4096, steps=300),
    f"{_MODEL_1}; blocks of 8",
    (
        *_table("Table 3", 0.9787, 0.9477, 0.9696),
        printed_accuracy("Spectral-DP, its best", 0.971, "Table 1"),
        *_over_ratios("Table 4", 2.0, (0.9583, 0.9658, 0.9659, 0.9696, 0.9689)),
        *_over_ratios("Table 4", 1.0, (0.9507, 0.9577, 0.9557, 0.9619, 0.9629)),
        *_over_ratios("Table 4", 0.5, (0.9308, 0.9369, 0.9364, 0.9498, 0.9471)),
    ),
)

SPECTRAL_MODEL_1_BLOCK_16 = _recipe(
    ("spectral_mnist_model_1_block_16", "MNIST with the fully connected Model-1 in circulant blocks of 16", _FROM_SCRATCH),
    _mnist("flat"),
    papers_spectral.model_1(16),
    _Descent(filter_ratio=0.75, clipping_bound=0.25, learning_rate=0.8, expected_batch_size=4096, steps=300),
    f"{_MODEL_1}; blocks of 16",
    (
        *_table("Table 3", 0.9738, 0.9554, 0.9685),
        *_over_ratios("Table 4", 2.0, (0.9602, 0.9581, 0.9641, 0.9685, 0.9574)),
        *_over_ratios("Table 4", 1.0, (0.9504, 0.9408, 0.9573, 0.9578, 0.9580)),
        *_over_ratios("Table 4", 0.5, (0.9157, 0.9292, 0.9332, 0.9330, 0.9341)),
    ),
)

SPECTRAL_LENET_5 = _recipe(
    ("spectral_mnist_lenet_5", "MNIST with LeNet-5, its connected layers in circulant blocks of 8", "section 4.1, Table 1"),
    _mnist("image"),
    papers_spectral.lenet_5(8),
    _Descent(filter_ratio=0.5, clipping_bound=0.5, learning_rate=0.4, expected_batch_size=2048, steps=600),
    "LeNet-5, blocks of 8 and 10; clipping norm 0.1, learning rate 0.001",
    _table("Table 1", 0.9915, 0.9595, 0.9803),
)

SPECTRAL_MODEL_2 = _recipe(
    ("spectral_cifar10_model_2", "CIFAR-10 with Model-2: five convolutions", "sections 4.1 and 4.2.1, Tables 1 and 2, appendix A.5"),
    _CIFAR10,
    papers_spectral.model_2(),
    _Descent(filter_ratio=0.5, clipping_bound=0.1, learning_rate=1.0, expected_batch_size=1000, steps=200),
    "five 3 x 3 convolutions, tanh; clipping norm 0.1, learning rate 0.01",
    (
        *_table("Table 1", 0.7723, 0.5515, 0.6188),
        *_over_ratios("Table 2", 3.0, (0.5834, 0.5838, 0.6026, 0.6063, 0.5556)),
    ),
)

SPECTRAL_MODEL_3 = _recipe(
    (
        "spectral_cifar10_model_3",
        "CIFAR-10 with Model-3: six convolutions, two connected layers in circulant blocks",
        "Table 1, appendix A.5",
    ),
    _CIFAR10,
    papers_spectral.model_3(8),
    _Descent(filter_ratio=0.5, clipping_bound=0.1, learning_rate=1.0, expected_batch_size=1000, steps=200),
    "six 3 x 3 convolutions, layers of 120 and 10 in blocks of 8 and 10; clipping norm 0.1, learning rate 0.001",
    (*_table("Table 1", 0.8122, 0.5758, 0.6951), printed_accuracy("DP-SGD, as the baseline of scattering features", 0.5758, "Table 9")),
)
