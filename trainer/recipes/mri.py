r"""MRI: reconstruction by a complex U-Net (zeta-DP paper, 5.4, A.6.4), pulse sequences in k-space (complex federated paper, section 5)."""

from __future__ import annotations

from zetadp.mechanisms.base import Adjacency, PrivacyUnit
from zetadp.trainer.data import DataSpec, MriPhantoms, MriReconstruction, MriSequences
from zetadp.trainer.recipes.recipe import DeclaredData, PrintedEpsilon, PrintedResult, PrintedRun, Recipe
from zetadp.trainer.specs.algorithms.federated import FederatedZetaDpSgd
from zetadp.trainer.specs.algorithms.zeta_dp_sgd import ZetaDpSgd
from zetadp.trainer.specs.base import PrivacyTarget
from zetadp.trainer.specs.descent import NAdam, RmsProp, StepDecay
from zetadp.trainer.specs.models import papers
from zetadp.trainer.specs.network_training import PublicHeldOut

MRI_RECONSTRUCTION = Recipe(
    name="mri_reconstruction",
    title="Single-coil MRI reconstruction at 4x undersampling with a complex U-Net: farther from the truth than the zero-filled image",
    paper="zeta_dp",
    reference="section 5.4, appendix A.6.4, Table 2",
    spec=ZetaDpSgd(
        data=MriReconstruction(folder="mri_brain", split_seed=2, test_fraction=0.2),
        model=papers.mri_reconstruction(channels=8, pools=4),
        optimizer=RmsProp(learning_rate=0.001),
        privacy=PrivacyTarget(adjacency=Adjacency.ADD_REMOVE, unit="slice", delta=1e-5, noise_multiplier=1.0),
        clipping_bound=1.0,
        expected_batch_size=4,
        steps=1200,
        evaluation=PublicHeldOut(),
    ),
    hyper_parameters=(
        "fastMRI's U-Net with complex weights and cReLU, RMSprop at 0.001 with a stepwise schedule, noise multiplier 1, clipping norm 1, "
        "sampling rate 3e-5 (one slice of 34742), 30 epochs (a million steps), delta 1e-5; 4x acceleration, 8 % centre lines"
    ),
    printed_results=(
        PrintedResult(of="zeta-DP-SGD", figures={"nmse": 0.043, "psnr": 30.57, "ssim": 0.69}, where="Table 2"),
        PrintedResult(of="without privacy", figures={"nmse": 0.042, "psnr": 30.74, "ssim": 0.70}, where="Table 2"),
    ),
    printed_epsilons=(
        PrintedEpsilon(epsilon=0.16, delta=1e-5, method="Gaussian DP", where="Table 2"),
        PrintedEpsilon(epsilon=0.67, delta=1e-5, method="Renyi DP", where="Table 3"),
    ),
    printed_run=PrintedRun(sampling_probability=3e-5, noise_multiplier=1.0, steps=1_000_000, delta=1e-5, unit="slice"),
    declared=DeclaredData(
        training_records=580,
        test_records=120,
        shape=(1, 128, 128),
        is_complex=True,
        classes=None,
        unit="slice",
        user_unit="patient",
        users=9,
        largest_user=120,
    ),
    differences=(
        "in the one run its held-out images had 16.8 dB (SSIM .13), those of ordinary training 18.6 (.22), and the zero-filled images that "
        "both are given 22.9 (.48)",
        "700 brain slices with simulated phase instead of 41877 knee slices: fastMRI may not be passed on. One slice of 480 is a rate of "
        "2e-3, seventy times the paper's, so lots are 4 and steps 1200 at the same noise",
        "a U-Net of 8 channels instead of 32, to run on a CPU; spec.model.channels=32 is fastMRI's",
        "instance norm: batch norm on single records is the same (Z24); the schedule's first step, after 40 epochs in fastMRI, never comes",
        "the guarantee is for a slice, as in the paper; nothing is claimed per patient (Z20)",
        "Poisson samples instead of samples of a fixed size (Z12, Z14)",
    ),
    errata=("Z12", "Z13", "Z14", "Z20", "Z24"),
    original_data="fastMRI single-coil knee (Zbontar et al. 2018), after registration on its website; spec.data.source=fastmri reads it",
)

_SEQUENCE_PARAMETERS = (
    "three convolution blocks (32, 64, 128) with complex group norm of 16 groups, ConjMish and average pooling, one linear layer; NAdam at "
    "0.0002, a tenth of it after 300 of 500 rounds, clipping norm 1, expected batch 24, epsilon 1, 3, 5 or 10 at delta 1e-3, per patient; "
    "federated: 11 nodes, all in every round, one step a round, adaptive federated averaging"
)
_OPTIMIZER = NAdam(learning_rate=0.0002, schedule=StepDecay(after=(300,), gamma=0.1))
_EPSILONS = (1.0, 3.0, 5.0, 8.0, 10.0)
_SEQUENCE_ERRATA = ("C10", "C11", "C12", "C13", "C14", "C15", "C16", "C17", "C18")
_ORIGINAL = "Medical Segmentation Decathlon, Task01_BrainTumour (Antonelli et al. 2022): 484 training and 266 test patients"
_WHITENED = "input is whitened slice by slice: statistics of the whole data set would be an unaccounted release (C12)"
_EPSILON = "epsilon 3, one of the paper's; set spec.privacy.epsilon for the others"


def _accuracies(of: str, fractions: tuple[float, ...]) -> tuple[PrintedResult, ...]:
    return tuple(
        PrintedResult(
            of=f"{of}, without privacy" if epsilon is None else f"{of}, epsilon {epsilon:g}",
            figures={"accuracy": value},
            where="Table 1",
            epsilon=epsilon,
        )
        for epsilon, value in zip((*_EPSILONS, None), fractions, strict=True)
    )


_FEDERATED_RESULTS = _accuracies("federated", (0.8165, 0.8798, 0.8846, 0.8908, 0.8999, 0.9012))
_CENTRAL_RESULTS = _accuracies("central", (0.8285, 0.8953, 0.8931, 0.8962, 0.9033, 0.9089))
_PRINTED = tuple(PrintedEpsilon(epsilon=epsilon, delta=1e-3, method="target of the training", where="Table 1") for epsilon in _EPSILONS)


def _central(data: DataSpec, classes: int, unit: PrivacyUnit, records_per_user: int | None) -> ZetaDpSgd:
    return ZetaDpSgd(
        data=data,
        model=papers.mri_sequence(classes),
        optimizer=_OPTIMIZER,
        privacy=PrivacyTarget(adjacency=Adjacency.ADD_REMOVE, unit=unit, delta=1e-3, epsilon=3.0),
        clipping_bound=1.0,
        expected_batch_size=24,
        steps=500,
        records_per_user=records_per_user,
        evaluation=PublicHeldOut(),
    )


def _federated(data: DataSpec, classes: int, unit: PrivacyUnit, records_per_user: int | None) -> FederatedZetaDpSgd:
    return FederatedZetaDpSgd(
        data=data,
        model=papers.mri_sequence(classes),
        server=_OPTIMIZER,
        nodes=11,
        distribution_seed=0,
        privacy=PrivacyTarget(adjacency=Adjacency.ADD_REMOVE, unit=unit, delta=1e-3, epsilon=3.0),
        clipping_bound=1.0,
        expected_batch_size=24,
        steps=500,
        records_per_user=records_per_user,
        evaluation=PublicHeldOut(),
    )


def _sequences(name: str, title: str, spec: ZetaDpSgd | FederatedZetaDpSgd, declared: DeclaredData, differences: tuple[str, ...]) -> Recipe:
    return Recipe(
        name=name,
        title=title,
        paper="complex_dp_federated",
        reference="section 5, Table 1",
        spec=spec,
        hyper_parameters=_SEQUENCE_PARAMETERS,
        printed_results=_FEDERATED_RESULTS if isinstance(spec, FederatedZetaDpSgd) else _CENTRAL_RESULTS,
        printed_epsilons=_PRINTED,
        declared=declared,
        differences=(*differences, _WHITENED, _EPSILON),
        errata=_SEQUENCE_ERRATA,
        original_data=_ORIGINAL,
    )


_SLICES = MriSequences(folder="mri_brain", split_seed=2, test_fraction=0.2)
_SLICES_DECLARED = DeclaredData(
    training_records=580,
    test_records=120,
    shape=(1, 32, 32),
    is_complex=True,
    classes=3,
    unit="slice",
    user_unit="patient",
    users=9,
    largest_user=120,
)
_SLICES_DIFFERENCES = (
    "700 slices of 10 patients and three sequences instead of 60000 of 750 and four",
    "one unit is a slice: nine patients are too few to hide one. A patient has up to 120 slices, and nothing is claimed per patient (C10)",
)
MRI_SEQUENCES = _sequences(
    "mri_sequences",
    "MRI pulse sequences in k-space, central: of new patients right as often as a guess, in three runs",
    _central(_SLICES, 3, "slice", None),
    _SLICES_DECLARED,
    (
        "in each of three runs it named one sequence for every held-out slice (accuracy .333 of three), though its scores rank them "
        "(ROC-AUC .68 to .87); ordinary training reached .503 (.87 to .89)",
        *_SLICES_DIFFERENCES,
    ),
)
MRI_SEQUENCES_FEDERATED = _sequences(
    "mri_sequences_federated",
    "MRI pulse sequences in k-space, at 11 nodes: of new patients right as often as a guess",
    _federated(_SLICES, 3, "slice", None),
    _SLICES_DECLARED,
    (
        *_SLICES_DIFFERENCES,
        "slices are distributed to the nodes one by one, so one patient's slices are at several nodes",
        "in the one run it named one sequence for every held-out slice (accuracy .333 of three, ROC-AUC .54)",
    ),
)

_DECATHLON = MriSequences(folder="Task01_BrainTumour", source="decathlon", split_seed=0, test_fraction=0.2)
_DECATHLON_DECLARED = DeclaredData(
    training_records=38_720,
    test_records=21_280,
    shape=(1, 32, 32),
    is_complex=True,
    classes=4,
    unit="slice",
    user_unit="patient",
    users=484,
    largest_user=80,
)
_PATIENTS = "a patient's slices are summed before they are clipped, which the paper's wording leaves open (C10)"
MRI_DECATHLON = _sequences(
    "mri_decathlon",
    "MRI pulse sequences in k-space, central, on the paper's own data",
    _central(_DECATHLON, 4, "patient", 80),
    _DECATHLON_DECLARED,
    (_PATIENTS,),
)
MRI_DECATHLON_FEDERATED = _sequences(
    "mri_decathlon_federated",
    "MRI pulse sequences in k-space, at 11 nodes, on the paper's own data",
    _federated(_DECATHLON, 4, "patient", 80),
    _DECATHLON_DECLARED,
    (_PATIENTS,),
)

_PHANTOMS = MriPhantoms(slices=2, seed=0)
_PHANTOMS_DECLARED = DeclaredData(
    training_records=3872,
    test_records=2128,
    shape=(1, 32, 32),
    is_complex=True,
    classes=4,
    unit="slice",
    user_unit="patient",
    users=484,
    largest_user=8,
)
_PHANTOMS_DIFFERENCES = (
    "SYNTHETIC heads instead of patients: the guarantee has the paper's form, its accuracy says nothing about real images",
    "2 slices of each sequence instead of 20, to run on a CPU; spec.data.slices=20 with spec.records_per_user=80 is the paper's",
    _PATIENTS,
)
MRI_PHANTOMS = _sequences(
    "mri_phantoms",
    "Pulse sequences of 484 synthetic patients, central, per patient",
    _central(_PHANTOMS, 4, "patient", 8),
    _PHANTOMS_DECLARED,
    _PHANTOMS_DIFFERENCES,
)
MRI_PHANTOMS_FEDERATED = _sequences(
    "mri_phantoms_federated",
    "Pulse sequences of 484 synthetic patients at 11 nodes, per patient",
    _federated(_PHANTOMS, 4, "patient", 8),
    _PHANTOMS_DECLARED,
    _PHANTOMS_DIFFERENCES,
)
