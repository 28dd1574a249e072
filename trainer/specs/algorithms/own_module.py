r"""Private training of a caller's own module on data that only its program can read: ``zetadp.train``. No service runs such a spec."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, NoReturn, Self, final

from pydantic import Field, PrivateAttr, Strict

from zetadp.mechanisms.base import Adjacency, Count, Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.base import DataRecipe, DataSetFacts
from zetadp.trainer.specs.base import PrivacyTarget
from zetadp.trainer.specs.execution_plan import Clipping, ClippingBound
from zetadp.trainer.specs.network_training import FlatMethod, PerLayerMethod, SampledTraining
from zetadp.trainer.specs.samplers import is_poisson
from zetadp.trainer.specs.sampling import Sampling

_Words = Annotated[str, Field(min_length=1, max_length=4000)]


@final
class OwnRecords(DataRecipe):
    r"""Records that a caller's program holds.

    Their facts are known where they were found and aren't written with the spec, whose file anybody may read: they hold a digest of the
    training data, which would tell whether a guess of all of them is right, and numbers that may have been declared instead.

    Attributes:
      description: in the caller's words.
    """

    UNIT: ClassVar[str] = "record"
    DESCRIPTION: ClassVar[str] = "the caller's own records"

    kind: Literal["own_records"] = "own_records"
    description: _Words
    _facts: DataSetFacts | None = PrivateAttr(default=None)

    @classmethod
    def of(cls, facts: DataSetFacts) -> Self:
        """The records with these facts."""
        found = cls(description=facts.description)
        found._facts = facts
        return found

    def arrays(self) -> NoReturn:
        raise InvalidParameter("data", "a data set that can be read here", "records that only the caller's program holds")

    def describe(self) -> str:
        return self.description

    def known_facts(self) -> DataSetFacts:
        if self._facts is None:
            raise InvalidParameter("data", "in the program that holds the records", "a spec that was read from a file")
        return self._facts


@final
class ModuleFacts(Value):
    r"""A caller's module, as far as a certificate can tell.

    Attributes:
      name: of its class.
      code_sha256: of the lines that say, for each class in it and for loss, optimizer and schedule, the digest of the source, and that of
        the structure; they are the first part of the list of code among the run's files.
      weights_sha256: of the weights that it came with at the first attempt, which the guarantee takes as public.
      constants_sha256: of those among them that aren't trained, frozen parameters and buffers: the same at every attempt.
      loss, optimizer: what they are called and set to, in words.
      is_complex: whether a trained parameter is complex.
      trained, frozen: numbers of real parameters; a complex one counts twice. Frozen ones are taken as public.
    """

    name: _Words
    code_sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    weights_sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    constants_sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    loss: _Words
    optimizer: _Words
    is_complex: Annotated[bool, Strict()]
    trained: Count
    frozen: Annotated[int, Strict(), Field(ge=0)]


@final
class OwnModule(SampledTraining):
    r"""Train a caller's module with clipping per unit of privacy and Gaussian noise on each real component.

    Attributes:
      data: the facts of the caller's records.
      module: what is known about the module.
      clipping_bound, clipping: as in ``BoundedTraining``.
      (others): as in ``SampledTraining``.
    """

    SUMMARY: ClassVar[str] = "DP-SGD on a module and records of the caller's own, in the caller's program."
    SOURCES: ClassVar[tuple[str, ...]] = ("Abadi et al. 2016, arXiv:1607.00133",)
    ERRATA: ClassVar[tuple[str, ...]] = ("Z2", "Z11", "Z12", "Z22")
    TRUST: ClassVar[str] = (
        "The party that runs the program is trusted with the data: that they went into nothing but this training of this module"
    )
    ASSUMPTIONS: ClassVar[tuple[str, ...]] = (
        "each row of the module's output and of the loss depends on the same record alone, whatever the data are: this was tried on "
        "made-up records before training, which can't show what only rare data trigger",
        "what the program did with the released gradients between the steps (optimizer, schedule, any code of its own, the choice to stop) "
        "used nothing else of the records, and no code of the module or the loss kept or showed anything of them",
        "the program's own code, apart from zetadp, is the one listed in module-code.sha256. The list has the source of the module's "
        "classes and of the functions that were given, the versions of the installed packages that these come from, and every other "
        "Python source file, outside of Python and of installed packages, that was loaded when an attempt began or ended. It doesn't have "
        "what was typed at a prompt or in a notebook (unless it is such a class or function), compiled code, what was loaded only in "
        "between, and what was changed while the program ran",
    )
    MAY_STOP_EARLY: ClassVar[bool] = True
    PLANS: ClassVar[tuple[str, ...]] = ("noisy_sums",)

    algorithm: Literal["own_module"] = "own_module"
    data: OwnRecords  # pyright: ignore[reportIncompatibleVariableOverride] (specs are frozen)
    module: ModuleFacts
    clipping_bound: ClippingBound
    clipping: Annotated[FlatMethod | PerLayerMethod, Field(discriminator="kind")] = FlatMethod()

    @classmethod
    def example(cls) -> Self:
        """Facts such as a small module has; nothing but the caller's program can run it."""
        facts = DataSetFacts(
            training_records=1000,
            test_records=0,
            shape=(16,),
            is_complex=False,
            task="other",
            classes=None,
            unit="record",
            sha256="0" * 64,
            description=OwnRecords.DESCRIPTION,
        )
        return cls(
            data=OwnRecords.of(facts),
            module=ModuleFacts(
                name="Sequential",
                code_sha256="0" * 64,
                weights_sha256="0" * 64,
                constants_sha256="0" * 64,
                loss="cross_entropy",
                optimizer="SGD",
                is_complex=False,
                trained=100,
                frozen=0,
            ),
            privacy=PrivacyTarget(adjacency=Adjacency.ADD_REMOVE, unit="record", delta=1e-5, epsilon=4.0),
            clipping_bound=1.0,
            expected_batch_size=100,
            steps=100,
        )

    @property
    def is_complex(self) -> bool:
        return self.module.is_complex

    @property
    def given_weights(self) -> tuple[str, ...]:
        return (self.module.weights_sha256,)

    def check_network(self, facts: DataSetFacts) -> None:
        del facts  # the module itself is tried on made-up records before anything is released

    def planned_clipping(self, facts: DataSetFacts) -> Clipping:
        del facts
        return self.clipping.clipping(self.clipping_bound, self.steps)

    def planned_sampling(self, units: int, *, is_declared: bool) -> Sampling:
        if not is_poisson(self.sampling):
            raise InvalidParameter("sampling", "poisson in the caller's own program", self.sampling.kind)
        return super().planned_sampling(units, is_declared=is_declared)
