r"""The registry of recipes, without torch: experiments that are ready to run, each a spec together with what its paper printed."""

from __future__ import annotations

from zetadp.trainer.recipes.activations import DIGITS_ACTIVATIONS, SPEECH_ACTIVATIONS
from zetadp.trainer.recipes.digits import DIGITS, DIGITS_DEMO, DIGITS_TRANSFORMER
from zetadp.trainer.recipes.fitbit import (
    FITBIT_DP_SGD_GAUSSIAN,
    FITBIT_DP_SGD_LAPLACE,
    FITBIT_DP_SGD_PRINTED,
    FITBIT_FUNCTIONAL_MECHANISM,
    FITBIT_SPOF,
    FITBIT_SPOF_PRINTED,
)
from zetadp.trainer.recipes.images import CIFAR10_COMPLEX, CIFAR10_REAL, CIFAR10_REAL_PAIRS, MNIST_REAL, PHASE_MNIST
from zetadp.trainer.recipes.mri import (
    MRI_DECATHLON,
    MRI_DECATHLON_FEDERATED,
    MRI_PHANTOMS,
    MRI_PHANTOMS_FEDERATED,
    MRI_RECONSTRUCTION,
    MRI_SEQUENCES,
    MRI_SEQUENCES_FEDERATED,
)
from zetadp.trainer.recipes.obfuscation import (
    OBFUSCATION_CIFAR10_BASELINES,
    OBFUSCATION_CIFAR10_LENET,
    OBFUSCATION_CIFAR10_RESNET_20,
    OBFUSCATION_DIGITS,
    OBFUSCATION_DIGITS_SOUND,
)
from zetadp.trainer.recipes.phase_mnist_ours import (
    PHASE_MNIST_CORRELATED,
    PHASE_MNIST_FEDERATED,
    PHASE_MNIST_FILTERS,
    PHASE_MNIST_LARGE_LOTS,
)
from zetadp.trainer.recipes.recipe import DeclaredData, MeasuredResult, PrintedEpsilon, PrintedResult, PrintedRun, Recipe
from zetadp.trainer.recipes.signals import ECG_CPSC, ECG_MITBIH, ECG_MITBIH_BEATS, SPEECH_COMMANDS
from zetadp.trainer.recipes.small_data import CIFAR10_FEATURES, CIFAR10_SCATTERING, MRI_SEQUENCES_LINEAR, SPEECH_SCATTERING
from zetadp.trainer.recipes.spectral import (
    SPECTRAL_LENET_5,
    SPECTRAL_MODEL_1,
    SPECTRAL_MODEL_1_BLOCK_16,
    SPECTRAL_MODEL_2,
    SPECTRAL_MODEL_3,
)
from zetadp.trainer.recipes.spectral_scattering import SPECTRAL_SCATTER_CIRCULANT, SPECTRAL_SCATTER_LENET_5, SPECTRAL_SCATTER_LINEAR
from zetadp.trainer.recipes.spectral_transfer import (
    CIFAR10_ADAPTERS,
    SPECTRAL_TRANSFER_1,
    SPECTRAL_TRANSFER_2,
    SPECTRAL_TRANSFER_3,
    SPECTRAL_TRANSFER_CIFAR100,
    SPECTRAL_TRANSFER_FEATURES,
)
from zetadp.trainer.recipes.standardised import (
    CIFAR10_STANDARDISED,
    MNIST_SCATTERING,
    MNIST_STANDARDISED,
    MNIST_STANDARDISED_LENET_5,
)

RECIPES: tuple[Recipe, ...] = (
    DIGITS,
    DIGITS_ACTIVATIONS,
    DIGITS_TRANSFORMER,
    PHASE_MNIST,
    PHASE_MNIST_CORRELATED,
    PHASE_MNIST_LARGE_LOTS,
    PHASE_MNIST_FILTERS,
    PHASE_MNIST_FEDERATED,
    MNIST_REAL,
    MNIST_STANDARDISED,
    MNIST_STANDARDISED_LENET_5,
    MNIST_SCATTERING,
    CIFAR10_COMPLEX,
    CIFAR10_REAL_PAIRS,
    CIFAR10_REAL,
    CIFAR10_FEATURES,
    CIFAR10_SCATTERING,
    CIFAR10_STANDARDISED,
    ECG_MITBIH,
    ECG_MITBIH_BEATS,
    ECG_CPSC,
    SPEECH_COMMANDS,
    SPEECH_SCATTERING,
    SPEECH_ACTIVATIONS,
    MRI_RECONSTRUCTION,
    MRI_SEQUENCES,
    MRI_SEQUENCES_FEDERATED,
    MRI_SEQUENCES_LINEAR,
    MRI_DECATHLON,
    MRI_DECATHLON_FEDERATED,
    MRI_PHANTOMS,
    MRI_PHANTOMS_FEDERATED,
    FITBIT_SPOF,
    FITBIT_SPOF_PRINTED,
    FITBIT_FUNCTIONAL_MECHANISM,
    FITBIT_DP_SGD_LAPLACE,
    FITBIT_DP_SGD_GAUSSIAN,
    FITBIT_DP_SGD_PRINTED,
    SPECTRAL_MODEL_1,
    SPECTRAL_MODEL_1_BLOCK_16,
    SPECTRAL_LENET_5,
    SPECTRAL_SCATTER_CIRCULANT,
    SPECTRAL_SCATTER_LENET_5,
    SPECTRAL_SCATTER_LINEAR,
    SPECTRAL_MODEL_2,
    SPECTRAL_MODEL_3,
    SPECTRAL_TRANSFER_1,
    SPECTRAL_TRANSFER_2,
    SPECTRAL_TRANSFER_3,
    SPECTRAL_TRANSFER_FEATURES,
    SPECTRAL_TRANSFER_CIFAR100,
    CIFAR10_ADAPTERS,
    OBFUSCATION_DIGITS,
    OBFUSCATION_DIGITS_SOUND,
    OBFUSCATION_CIFAR10_LENET,
    OBFUSCATION_CIFAR10_RESNET_20,
    OBFUSCATION_CIFAR10_BASELINES,
)


def recipe(name: str) -> Recipe | None:
    """The recipe with this name, or None.

    >>> recipe("digits").spec.steps
    400
    """
    return next((known for known in RECIPES if known.name == name), None)


__all__ = ["DIGITS_DEMO", "RECIPES", "DeclaredData", "MeasuredResult", "PrintedEpsilon", "PrintedResult", "PrintedRun", "Recipe", "recipe"]
