r"""The registry of data sets, without torch. To add one, write a module with a ``DataRecipe`` and put its name into the union here."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Annotated, get_args

from pydantic import Field, TypeAdapter

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data import kept_facts
from zetadp.trainer.data.base import DataRecipe, DataSet, DataSetFacts, NamedDataSet, array_digest, facts_of, facts_on_disk
from zetadp.trainer.data.cifar10 import Cifar10
from zetadp.trainer.data.digits import Digits
from zetadp.trainer.data.digits_images import DigitsImages
from zetadp.trainer.data.digits_phase_pairs import DigitsPhasePairs
from zetadp.trainer.data.ecg_cpsc import EcgCpsc
from zetadp.trainer.data.ecg_mitbih import EcgMitBih
from zetadp.trainer.data.files.location import ROOT_VARIABLE, Stamp, stamps
from zetadp.trainer.data.files.stored import DataSetOnDisk
from zetadp.trainer.data.fitbit import Fitbit
from zetadp.trainer.data.mnist import Mnist, PhaseMnist
from zetadp.trainer.data.mri_phantoms import MriPhantoms
from zetadp.trainer.data.mri_reconstruction import MriReconstruction
from zetadp.trainer.data.mri_slices import MriSequences
from zetadp.trainer.data.photographs.celeba import CelebA
from zetadp.trainer.data.photographs.cifar100 import Cifar100
from zetadp.trainer.data.photographs.cub import Cub
from zetadp.trainer.data.speech_commands import SpeechCommands, SpokenDigits
from zetadp.trainer.data.table import Table
from zetadp.trainer.data.uploaded import Uploaded

DataSpec = Annotated[
    CelebA
    | Cifar10
    | Cifar100
    | Cub
    | Digits
    | DigitsImages
    | DigitsPhasePairs
    | EcgCpsc
    | EcgMitBih
    | Fitbit
    | Mnist
    | MriPhantoms
    | MriReconstruction
    | MriSequences
    | PhaseMnist
    | SpeechCommands
    | SpokenDigits
    | Table
    | Uploaded,
    Field(discriminator="kind"),
]
READERS: tuple[type[DataRecipe], ...] = get_args(get_args(DataSpec)[0])


@cache
def _specs() -> TypeAdapter[DataSpec]:
    return TypeAdapter(DataSpec)


def data_set_facts(spec: DataRecipe) -> DataSetFacts:
    """Reads the data set, unless it was already read and no file has changed, and returns the facts that a plan and a certificate need.

    For a data set that was made here and never changes, the facts found then.

    Raises:
      InvalidParameter: the data can't be read, can't be trained on, or changed while they were read.

    >>> data_set_facts(DigitsPhasePairs(split_seed=0, test_fraction=0.2)).training_records
    710
    """
    known = spec.known_facts()
    return _facts(spec.model_dump_json(), stamps(spec.sources())) if known is None else known


@lru_cache(maxsize=64)
def _facts(spec_text: str, before: tuple[Stamp, ...]) -> DataSetFacts:
    spec = _specs().validate_json(spec_text)
    if (kept := kept_facts.found(spec_text, before)) is not None:
        return kept
    stored = spec.on_disk()
    facts = facts_of(spec, spec.read()) if stored is None else facts_on_disk(spec, stored)
    if stamps(spec.sources()) != before:
        raise InvalidParameter("data.folder", "unchanged while it is read", "files that changed")
    kept_facts.keep(spec_text, before, facts)
    return facts


__all__ = [
    "READERS",
    "ROOT_VARIABLE",
    "CelebA",
    "Cifar10",
    "Cifar100",
    "Cub",
    "DataRecipe",
    "DataSet",
    "DataSetFacts",
    "DataSetOnDisk",
    "DataSpec",
    "Digits",
    "DigitsImages",
    "DigitsPhasePairs",
    "EcgCpsc",
    "EcgMitBih",
    "Fitbit",
    "Mnist",
    "MriPhantoms",
    "MriReconstruction",
    "MriSequences",
    "NamedDataSet",
    "PhaseMnist",
    "SpeechCommands",
    "SpokenDigits",
    "Table",
    "Uploaded",
    "array_digest",
    "data_set_facts",
    "facts_of",
]
