r"""What is signed: an in-toto Statement (v1) about a model, whose predicate holds the facts of one run and no prose.

Everything else that a certificate says follows from these facts: ``reading`` puts them into words with the reader's version.
Figures of the guarantee and of what was measured are decimal strings, bounds rounded to the safe side. ``plan`` and ``event`` hold JSON
numbers, since they are the very values that training ran from and that accountants read; their floats read back exactly.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, final

from pydantic import (
    AfterValidator,
    AwareDatetime,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    WrapSerializer,
    model_validator,
)

from zetadp.accountants.events import Event
from zetadp.app.certificates.facts.announced import AnnouncedFacts
from zetadp.app.certificates.facts.attacks import AttackFacts
from zetadp.app.certificates.facts.audit import CanaryFacts
from zetadp.app.certificates.facts.confidential import ConfidentialFacts
from zetadp.app.certificates.facts.decimals import DecimalText, SignedDecimalText
from zetadp.app.certificates.facts.errata import known_row
from zetadp.app.certificates.facts.guarantee import Guarantee, Words
from zetadp.app.certificates.facts.ledger_entry import LedgerFacts
from zetadp.app.certificates.facts.tpm import TpmQuote
from zetadp.app.certificates.facts.wording import ArithmeticName
from zetadp.mechanisms import RandomOrigin
from zetadp.mechanisms.base import Count, Tally, Value, is_absent
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import CERTIFIED, AnyPlan
from zetadp.trainer.specs.algorithms.federation import MOST_SITES, SignedProposal, SiteRecord
from zetadp.trainer.specs.plans import PartName
from zetadp.trainer.specs.report import HeldOut, MetricName, Selected

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:zetadp:privacy-certificate:v1"

Sha256 = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{64}$")]
FileName = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$")]
Identifier = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=200)]
Number = Annotated[int, Field(strict=True, ge=0, le=10**12)]

MODEL_FILE = "model.safetensors"
SPEC_FILE = "spec.json"
CERTIFICATE_FILE = "certificate.json"
DATA_MANIFEST = "data-manifest.json"
CODE_MANIFEST = "code-manifest.sha256"


def _known_algorithm(name: str) -> str:
    known = [algorithm.algorithm_name() for algorithm in CERTIFIED]
    if name not in known:
        raise ValueError(f"expected an algorithm that this version knows ({', '.join(known)}), got {name!r}")
    return name


AlgorithmName = Annotated[Identifier, AfterValidator(_known_algorithm)]
Rows = Annotated[tuple[Annotated[Identifier, AfterValidator(known_row)], ...], Field(max_length=1000)]


@final
class Digest(Value):
    """SHA-256 in lower-case hexadecimal."""

    sha256: Sha256


@final
class Subject(Value):
    """A file that the statement is about: its name next to the certificate and the digest of its bytes."""

    name: FileName
    digest: Digest


@final
class JobFacts(Value):
    r"""Which run this was.

    Attributes:
      started, finished: to the second. Of a private selection both are when it ended: how long it took would show how many runs there were.
      attempts: how often a worker started the job; 1 if nothing went wrong.
      resumptions: how often training continued from a checkpoint.
    """

    id: Identifier
    algorithm: AlgorithmName
    started: AwareDatetime
    finished: AwareDatetime
    attempts: Count
    resumptions: Number


@final
class UploadedFacts(Value):
    r"""A data set that a user of the service made.

    Attributes:
      id: of the data set.
      manifest_sha256: of its manifest, which its maker has: it holds the digests of the data, what it was made of and how, and 256 random
        bits, without which this digest would tell whether a guess of all the data is right.
      words: what its maker says it is; nobody checked them.
    """

    id: Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{32}$")]
    manifest_sha256: Sha256
    words: Words


@final
class DataFacts(Value):
    r"""The public facts of the data.

    Attributes:
      description: source and recipe.
      uploaded: the data set, where a user of the service made it; else absent.
      records_per_unit: rows of one unit that are used, at most, where a unit is somebody with several rows; else absent.
      training_records: how many; absent where the number of units was declared.
      test_records: held out.
    """

    description: Words
    uploaded: Annotated[UploadedFacts | None, Field(exclude_if=is_absent)] = None
    records_per_unit: Annotated[Count | None, Field(exclude_if=is_absent)] = None
    training_records: Annotated[Count | None, Field(exclude_if=is_absent)] = None
    test_records: Tally


@final
class RunFacts(Value):
    r"""What the run did and found.

    Attributes:
      steps_released: noisy sums released, by each node where there are nodes; of other kinds, steps done. Fewer than the plan's where a run
        in its caller's program stopped early: the event is that of the plan all the same.
      checkpoints_released: states written to a checkpoint, over all attempts.
      parameters: real parameters of the model; a complex one counts twice. 0 where a private selection has no model.
      random_origin: where sampling and noise came from (never the seed).
      generator: how noise was computed from its keys.
      held_out: what became of the held-out records.
      metrics: of the final model on them, exact; absent where nothing was measured. Noisy where they are private.
      arithmetic: how it computed; each name stands for one statement of ``wording.ARITHMETIC``.
      given_weights: SHA-256 of the weights that training started from, which the guarantee takes as public; absent where it drew its own.
      averaged: whether the model, or that of a part, is a running mean of the parameters over the steps; absent where none is.
      noise_numbers: real numbers of noise that were tested for scale and repetitions, and passed; absent where none were.
      samples: how many were tested for being drawn as the plan says, and passed; absent where none were.
      canaries: what made-up units found; absent where there were none.
      attacks: that were tried on obfuscated features; absent where there were none.
      sites: that a network connected, as their own statements say; absent where all was done in one place.
      proposal: what the operators of these sites signed, by its digests; absent as they are.
      selected: which candidate came out of a private selection, if any; absent in other runs.
    """

    steps_released: Count
    checkpoints_released: Number
    parameters: Number
    random_origin: RandomOrigin
    generator: Words
    held_out: HeldOut
    metrics: Annotated[dict[MetricName, SignedDecimalText] | None, Field(min_length=1, exclude_if=is_absent)] = None
    arithmetic: Annotated[tuple[ArithmeticName, ...], Field(max_length=100)]
    given_weights: Annotated[tuple[Sha256, ...], Field(max_length=64, exclude_if=is_absent)] = ()
    averaged: Annotated[Literal[True] | None, Field(exclude_if=is_absent)] = None
    noise_numbers: Annotated[Count | None, Field(exclude_if=is_absent)] = None
    samples: Annotated[Count | None, Field(exclude_if=is_absent)] = None
    canaries: Annotated[CanaryFacts | None, Field(exclude_if=is_absent)] = None
    attacks: Annotated[AttackFacts | None, Field(exclude_if=is_absent)] = None
    sites: Annotated[tuple[SiteRecord, ...], Field(max_length=MOST_SITES, exclude_if=is_absent)] = ()
    proposal: Annotated[SignedProposal | None, Field(exclude_if=is_absent)] = None
    selected: Annotated[Selected | None, Field(exclude_if=is_absent)] = None


@final
class Environment(Value):
    r"""What it ran on.

    Attributes:
      precision: of the network's own arithmetic.
      processes: that shared each sample.
      training_seconds: over all attempts, to a whole second.
    """

    versions: Annotated[dict[Identifier, Identifier], Field(max_length=100)]
    hardware: Words
    precision: Literal["float32", "bfloat16"]
    processes: Count
    training_seconds: Number


@final
class PartGuarantee(Value):
    r"""What one part's releases guarantee to someone who sees them alone; not a guarantee of the run, whose parts are all released.

    Attributes:
      epsilon: rounded up, at ``delta`` (exact); absent where the part has no guarantee.
      pure_epsilon: of the part as pure differential privacy, rounded up; absent where it isn't.
      route: how epsilon was found.
      reason: why there is none.
    """

    epsilon: Annotated[DecimalText | None, Field(exclude_if=is_absent)] = None
    delta: DecimalText
    pure_epsilon: Annotated[DecimalText | None, Field(exclude_if=is_absent)] = None
    route: Annotated[Words | None, Field(exclude_if=is_absent)] = None
    reason: Annotated[Words | None, Field(exclude_if=is_absent)] = None


@final
class PartFacts(Value):
    """Facts of one part of a comparison in addition to its plan, which has the same name: its algorithm, its own guarantee and errata."""

    name: PartName
    algorithm: AlgorithmName
    by_itself: PartGuarantee
    errata: Rows


def _compact(plan: AnyPlan, written: SerializerFunctionWrapHandler) -> Any:
    """The plan's JSON without fields that are null: each reads as null where it is absent."""
    return _without_nulls(written(plan))


def _without_nulls(document: Any) -> Any:
    if isinstance(document, dict):
        return {name: _without_nulls(value) for name, value in document.items() if value is not None}
    return [_without_nulls(value) for value in document] if isinstance(document, list | tuple) else document


@final
class PrivacyCertificate(Value):
    r"""The predicate: the facts of one run, and the figures of its guarantee.

    Attributes:
      plan: what training ran from. Its event is the whole run as accountants read it, from which every figure of ``guarantee`` follows.
      parts: of a comparison, in the plan's order; else absent.
      errata: rows of the errata that apply.
      announced: where the plan was logged before the first step; absent where it wasn't.
      tpm: what the machine's TPM signed; absent where none was asked.
      confidential: what a confidential machine's report says, which lies beside the certificate; absent where none was asked.
      ledger: the budget entry that paid for the run; absent without a ledger.
    Raises:
      ValidationError: parts of other names than the plan's, or in another order.
    """

    job: JobFacts
    plan: Annotated[AnyPlan, WrapSerializer(_compact)]
    guarantee: Guarantee
    parts: Annotated[tuple[PartFacts, ...], Field(max_length=256, exclude_if=is_absent)] = ()
    data: DataFacts
    run: RunFacts
    environment: Environment
    announced: Annotated[AnnouncedFacts | None, Field(exclude_if=is_absent)] = None
    tpm: Annotated[TpmQuote | None, Field(exclude_if=is_absent)] = None
    confidential: Annotated[ConfidentialFacts | None, Field(exclude_if=is_absent)] = None
    ledger: Annotated[LedgerFacts | None, Field(exclude_if=is_absent)] = None
    errata: Rows

    @property
    def event(self) -> Event:
        """The whole run as accountants read it."""
        return self.plan.event

    @model_validator(mode="after")
    def _check(self) -> Self:
        named = [part.name for part in self.parts]
        planned = [part.name for part in self.plan.compared]
        if named != planned:
            raise InvalidParameter("parts", f"those of the plan, {planned}", named)
        return self


@final
class Statement(Value):
    """An in-toto Statement, version 1; at most 400 subjects (a comparison has a model for each part), no two of one name."""

    type_: Annotated[Literal["https://in-toto.io/Statement/v1"], Field(alias="_type")] = STATEMENT_TYPE
    subject: Annotated[tuple[Subject, ...], Field(min_length=1, max_length=400)]
    predicate_type: Annotated[Literal["urn:zetadp:privacy-certificate:v1"], Field(alias="predicateType")] = PREDICATE_TYPE
    predicate: PrivacyCertificate
