r"""What is signed: an in-toto Statement (v1) about a model, whose predicate is the privacy certificate.

Numbers of the predicate are decimal strings: bounds rounded to the safe side, parameters exact. ``event`` alone holds JSON numbers, since
it is the very value that accountants read; its floats are written so that they read back exactly.
"""

from __future__ import annotations

from typing import Annotated, Literal, final

from pydantic import AwareDatetime, Field, Strict, StringConstraints

from accountants.events import Event
from app.certificates.attacks import AttackFacts
from app.certificates.audit import Audit
from app.certificates.comparison import ComparisonFacts
from app.certificates.decimals import DecimalText
from app.certificates.errata import ErratumNote
from app.certificates.facts import Neighbourhood, ReleaseFacts
from app.certificates.guarantee import Guarantee, Words
from app.certificates.ledger import LedgerFacts
from app.certificates.sections import Sections
from app.certificates.steps import StepFacts
from app.certificates.training import EvaluationFacts
from mechanisms import RandomOrigin
from mechanisms.base import Count, Value

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:zetadp:privacy-certificate:v1"

Sha256 = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{64}$")]
FileName = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$")]
Identifier = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=200)]
Number = Annotated[int, Field(strict=True, ge=0, le=10**12)]
Texts = Annotated[tuple[Words, ...], Field(max_length=100)]

MODEL_FILE = "model.safetensors"
SPEC_FILE = "spec.json"
CERTIFICATE_FILE = "certificate.json"
DATA_MANIFEST = "data-manifest.json"
CODE_MANIFEST = "code-manifest.sha256"


def _is_none(value: object) -> bool:
    return value is None


def _is_empty(value: object) -> bool:
    return value == ()


@final
class Digest(Value):
    """SHA-256 in lower-case hexadecimal."""

    sha256: Sha256


@final
class Subject(Value):
    """A file that the statement is about: its name beside the certificate and the digest of its bytes."""

    name: FileName
    digest: Digest


@final
class JobFacts(Value):
    r"""Which run this was.

    Attributes:
      started, finished: to the second.
      attempts: how often a worker took the job up; 1 if nothing went wrong.
      resumptions: how often training went on from a checkpoint.
    """

    id: Identifier
    algorithm: Identifier
    summary: Words
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
      words: what its maker says it is.
      meaning: whose words those are.
    """

    id: Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{32}$")]
    manifest_sha256: Sha256
    words: Words
    meaning: Words


@final
class DataFacts(Value):
    r"""The training data, as far as it is public.

    Attributes:
      description: source and recipe.
      uploaded: the data set, where a user of the service made it; else absent.
      unit_meaning: what one unit of the guarantee is in this data set.
      units_are_records: one unit is one training record, and a person who is in several records is protected less; otherwise a unit
        holds up to as many records as the releases' groups say, or is itself what is sampled and clipped (``units``).
      units: how many units were sampled from, where a unit is somebody with several records: public, counted or declared; else absent.
      records_per_unit: of one such unit, used at most, whatever more it has; else absent.
      training_records: how many; public; absent where the number of units was declared.
      declared_units: N, that the sampling probability was worked out from, without counting them; absent where they were counted.
      expected_batch_size: the constant that noisy sums were divided by; public; absent where there are none, or in a comparison's parts.
      realised_sample_sizes: why they aren't here; absent where nothing is sampled.
      parameters: real parameters of the model; a complex one counts twice.
    """

    description: Words
    uploaded: Annotated[UploadedFacts | None, Field(exclude_if=_is_none)] = None
    unit_meaning: Words
    units_are_records: Annotated[bool, Strict()] = True
    # Absent where they say nothing: a certificate without them is the one that was signed before they existed.
    units: Annotated[Count | None, Field(exclude_if=_is_none)] = None
    records_per_unit: Annotated[Count | None, Field(exclude_if=_is_none)] = None
    training_records: Annotated[Count | None, Field(exclude_if=_is_none)] = None
    declared_units: Annotated[Count | None, Field(exclude_if=_is_none)] = None
    expected_batch_size: Annotated[Count | None, Field(exclude_if=_is_none)] = None
    realised_sample_sizes: Annotated[Words | None, Field(exclude_if=_is_none)] = None
    parameters: Count


@final
class ReleaseScope(Value):
    r"""Who is trusted with what, what left the run, and what of that the guarantee covers.

    Attributes:
      checkpoints_released: states written to a checkpoint, over all attempts; absent in certificates from before they were counted.
      test_accuracy: in certificates from before ``evaluation``: of public held-out records; else absent.
      evaluation: what was measured on held-out records; absent in those.
      test_metrics: what protects the held-out records.
    """

    trust_model: Words
    released: Words
    checkpoints: Words
    checkpoints_released: Annotated[Number | None, Field(exclude_if=_is_none)] = None
    training_metrics: Words
    test_accuracy: Annotated[DecimalText | None, Field(exclude_if=_is_none)] = None
    evaluation: Annotated[EvaluationFacts | None, Field(exclude_if=_is_none)] = None
    test_records: Count
    test_metrics: Words


@final
class Randomness(Value):
    """Where sampling and noise came from (never the seed), and what computing with floats leaves open."""

    origin: RandomOrigin
    generator: Words
    statement: Words | None
    floating_point: Words


@final
class Environment(Value):
    r"""What it ran on.

    Attributes:
      precision: of the network's own arithmetic; absent in certificates from when there was but float32.
      processes: that shared each sample; absent in those.
      training_seconds: over all attempts, to a whole second.
    """

    versions: Annotated[dict[Identifier, Identifier], Field(max_length=100)]
    hardware: Words
    precision: Annotated[Literal["float32", "bfloat16"] | None, Field(exclude_if=_is_none)] = None
    processes: Annotated[Count | None, Field(exclude_if=_is_none)] = None
    training_seconds: Number


@final
class PrivacyCertificate(Sections):
    r"""The predicate: what was done, what it guarantees, what it doesn't, and what that rests on.

    Attributes:
      neighbourhood: null where the event has no private part.
      comparison: the parts of a comparison, which have the sections of their kinds; else absent.
      releases: every different release; derived from ``event``, which alone decides.
      proofs: files in the code's ``proofs`` folders: of the mechanism, of its sampling, and of the rounding on epsilon's route if there is.
      given_weights: SHA-256 of the weights that training started from, which the guarantee takes as public; absent where it drew its own.
      ledger: the budget entry that paid for the run; null without a ledger.
      attacks: that were tried on obfuscated features; absent where there were none.
      event: the whole run as accountants read it; every figure of ``guarantee`` follows from it.
      (others): as in ``Sections``.
    """

    job: JobFacts
    guarantee: Guarantee
    neighbourhood: Neighbourhood | None
    data: DataFacts
    comparison: Annotated[ComparisonFacts | None, Field(exclude_if=_is_none)] = None
    releases: Annotated[tuple[ReleaseFacts, ...], Field(max_length=10_000)]
    steps: StepFacts
    scope: ReleaseScope
    given_weights: Annotated[tuple[Sha256, ...], Field(max_length=64, exclude_if=_is_empty)] = ()
    not_covered: Texts
    randomness: Randomness
    environment: Environment
    ledger: LedgerFacts | None = None
    audit: Audit
    attacks: Annotated[AttackFacts | None, Field(exclude_if=_is_none)] = None
    assumptions: Texts
    sources: Texts
    errata: Annotated[tuple[ErratumNote, ...], Field(max_length=1000)]
    proofs: Annotated[tuple[FileName, ...], Field(max_length=100)]
    event: Event


@final
class Statement(Value):
    """An in-toto Statement, version 1; at most 400 subjects (a comparison has a model for each part), no two of one name."""

    type_: Annotated[Literal["https://in-toto.io/Statement/v1"], Field(alias="_type")] = STATEMENT_TYPE
    subject: Annotated[tuple[Subject, ...], Field(min_length=1, max_length=400)]
    predicate_type: Annotated[Literal["urn:zetadp:privacy-certificate:v1"], Field(alias="predicateType")] = PREDICATE_TYPE
    predicate: PrivacyCertificate
