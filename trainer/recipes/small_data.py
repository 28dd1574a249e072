r"""Ours: what private training reaches on a few hundred or thousand real records: public features of a record, and one private layer.

The papers' networks learn little or nothing of so few records. Features that no private record has formed leave one small layer to
train, on all records in every step: so there is no sampling, and a step's noise is small beside the sum of so many gradients.
"""

from __future__ import annotations

from zetadp.mechanisms.base import Adjacency, PrivacyUnit
from zetadp.trainer.data import DataSpec, MriSequences, SpeechCommands
from zetadp.trainer.recipes.images import CIFAR10_REAL
from zetadp.trainer.recipes.mri import MRI_SEQUENCES
from zetadp.trainer.recipes.recipe import DeclaredData, Recipe
from zetadp.trainer.recipes.signals import SPEECH_COMMANDS
from zetadp.trainer.specs.algorithms.zeta_dp_sgd import ZetaDpSgd
from zetadp.trainer.specs.base import PrivacyTarget
from zetadp.trainer.specs.descent import Cosine, Sgd
from zetadp.trainer.specs.models.layer_spec import AdaptiveAveragePool, Flatten, GroupNorm, Linear, Scattering
from zetadp.trainer.specs.models.model_spec import Sequential
from zetadp.trainer.specs.models.packaged import early
from zetadp.trainer.specs.network_training import PublicHeldOut


def _spec(
    data: DataSpec,
    model: Sequential,
    guarantee: tuple[PrivacyUnit, float, float],
    descent: tuple[float, float, int],
    records: int,
) -> ZetaDpSgd:
    """``guarantee``: unit, epsilon and delta; ``descent``: learning rate, clipping bound and steps."""
    unit, epsilon, delta = guarantee
    rate, bound, steps = descent
    return ZetaDpSgd(
        data=data,
        model=model,
        optimizer=Sgd(learning_rate=rate, momentum=0.9, schedule=Cosine()),
        privacy=PrivacyTarget(adjacency=Adjacency.ADD_REMOVE, unit=unit, delta=delta, epsilon=epsilon),
        clipping_bound=bound,
        expected_batch_size=records,
        steps=steps,
        evaluation=PublicHeldOut(),
    )


def _recipe(
    name: str, title: str, reference: str, spec: ZetaDpSgd, of: Recipe, declared: DeclaredData, differences: tuple[str, ...]
) -> Recipe:
    """``of``: the recipe of a paper on the same data."""
    optimizer = spec.optimizer
    assert isinstance(optimizer, Sgd)
    return Recipe(
        name=name,
        title=title,
        paper=None,
        reference=reference,
        spec=spec,
        hyper_parameters=(
            f"ours: all records in each of {spec.steps} steps, SGD at {optimizer.learning_rate:g} with momentum 0.9 and cosine decay, "
            f"clipping norm {spec.clipping_bound:g}"
        ),
        declared=declared,
        differences=differences,
        original_data=of.original_data,
    )


_NOT_COUNTED = "No guarantee counts these trials, in which no held-out record was used"
_IMAGES = "4000 training images of the 50000, and 1000 of the 10000 test images, in the folder of the other recipes"

CIFAR10_FEATURES = _recipe(
    "cifar10_features",
    "CIFAR-10, epsilon 8: one layer behind the early blocks of a frozen backbone of drawn shapes",
    "a linear classifier on public features, as in Tramer and Boneh 2021, arXiv:2011.11660",
    _spec(
        CIFAR10_REAL.spec.data,
        early((GroupNorm(groups=1), Flatten(), Linear(outputs=10)), blocks=3, pool=4),
        ("image", 8.0, 1e-5),
        (0.25, 4.0, 60),
        4000,
    ),
    CIFAR10_REAL,
    CIFAR10_REAL.declared,
    (
        "ResNet-18 of 8 channels, trained on drawn shapes and part of the package: no photograph has formed it",
        _IMAGES,
        "how many blocks stay, rate and bound were chosen by about fifty trainings on drawn shapes, and as many on 3200 of the training "
        f"images, measured on the other 800. {_NOT_COUNTED}",
    ),
)

CIFAR10_SCATTERING = _recipe(
    "cifar10_scattering",
    "CIFAR-10, epsilon 8, without any other data: one layer behind scattering",
    "ScatterNet features of Tramer and Boneh 2021, arXiv:2011.11660, normalised by each record's own numbers",
    _spec(
        CIFAR10_REAL.spec.data,
        Sequential(
            numbers="real",
            layers=(Scattering(scales=2, normalisation_groups=27), AdaptiveAveragePool(size=4), Flatten(), Linear(outputs=10)),
            head="none",
        ),
        ("image", 8.0, 1e-5),
        (0.2, 4.0, 60),
        4000,
    ),
    CIFAR10_REAL,
    CIFAR10_REAL.declared,
    (
        "wavelets are formulas: nothing was learned of any data before",
        _IMAGES,
        "groups, pooling, rate and bound were chosen by about thirty trainings, most of them on 3200 of the training images and measured "
        f"on the other 800, some on drawn shapes. {_NOT_COUNTED}",
    ),
)

_SPEECH_DATA = SPEECH_COMMANDS.spec.data
assert isinstance(_SPEECH_DATA, SpeechCommands)
_SPEECH = SPEECH_COMMANDS.declared

SPEECH_SCATTERING = _recipe(
    "speech_commands_scattering",
    "Ten spoken words, epsilon 8: one layer behind scattering of the log-mel spectrogram",
    "time-frequency scattering as in Anden, Lostanlen and Mallat 2015, with a linear classifier",
    _spec(
        SpeechCommands(folder="speech_commands", split="recordings", split_seed=0, test_fraction=0.1, form="log_mel"),
        Sequential(
            numbers="real",
            layers=(Scattering(scales=4, normalisation_groups=139), Flatten(), Linear(outputs=10)),
            head="none",
        ),
        ("recording", 8.0, 1e-5),
        (0.02, 12.5, 80),
        893,
    ),
    SPEECH_COMMANDS,
    DeclaredData(
        training_records=_SPEECH.training_records,
        test_records=_SPEECH.test_records,
        shape=(1, 62, 32),
        is_complex=False,
        classes=_SPEECH.classes,
        unit="recording",
        user_unit="speaker",
        users=_SPEECH.users,
        largest_user=_SPEECH.largest_user,
    ),
    (
        "the test is small: of 107 recordings, one is almost one point of accuracy. A speaker may be on both sides, as in the paper",
        "one unit is a recording; nothing is claimed per speaker, who has up to 29",
        "features, rate and bound were chosen by about ninety settings, trained on spoken digits of another data set and on 669 of the "
        f"training recordings, measured on the other 224. {_NOT_COUNTED}",
    ),
)

_MRI_DATA = MRI_SEQUENCES.spec.data
assert isinstance(_MRI_DATA, MriSequences)

MRI_SEQUENCES_LINEAR = _recipe(
    "mri_sequences_linear",
    "MRI pulse sequences in k-space of new patients, epsilon 3: one complex layer behind logarithmic magnitudes",
    "the task of the complex federated paper, section 5, with a network of ours",
    _spec(
        MriSequences(folder="mri_brain", split_seed=2, test_fraction=0.2, magnitudes="log"),
        Sequential(numbers="complex", layers=(Flatten(), Linear(outputs=3)), head="real_part"),
        ("slice", 3.0, 1e-3),
        (1.0 / 64.0, 8.0, 40),
        580,
    ),
    MRI_SEQUENCES,
    MRI_SEQUENCES.declared,
    (
        "700 slices of 10 patients; training and test patients are different people",
        "one unit is a slice: nine patients are too few to hide one, and nothing is claimed per patient",
        "features, rate and bound were chosen by about sixty settings, trained on synthetic heads and on three quarters of the training "
        f"patients, measured on the other ones. {_NOT_COUNTED}",
    ),
)
