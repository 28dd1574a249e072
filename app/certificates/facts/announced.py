r"""A plan that was logged before its first step: what the log's entry is about, and what the certificate says of it.

The log holds a digest of a ``PlanStatement``, with the tag of the data set and the plan's number among those of that data set. Every part
of the statement is in the certificate too, so whoever has the certificate computes the entry again and looks for it in the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, final

from pydantic import Field, StringConstraints

from zetadp.app.certificates.facts.decimals import DecimalText
from zetadp.app.certificates.facts.ledger_entry import LedgerFacts
from zetadp.app.certificates.facts.phrases import so_many
from zetadp.mechanisms.base import Count, Tally, Value, is_absent

Hex256 = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{64}$")]
Tag = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{32}$")]


@final
class EarlierRuns(Value):
    r"""The trainings of the same data set whose plans were logged before, whatever became of them.

    Attributes:
      certified: how many of them had a certificate when this plan was logged.
      epsilon, delta: the sums of what whole plans guarantee, each at its own delta, rounded up: of those whose guarantee is about the unit
        and the adjacency that this plan's is about; absent where there are none.
      unlike: how many guarantee something about another unit or adjacency, which can't be added.
      unguaranteed: how many of them guarantee nothing, or nobody could say in time what.
    """

    certified: Tally
    epsilon: Annotated[DecimalText | None, Field(exclude_if=is_absent)] = None
    delta: Annotated[DecimalText | None, Field(exclude_if=is_absent)] = None
    unlike: Tally
    unguaranteed: Tally


@final
class AnnouncedFacts(Value):
    r"""Where and when the plan was logged.

    Attributes:
      index: of the entry in the log, from 0.
      attempt: the attempt that logged it; the run is that attempt's or a later one's.
      data_set: the tag of the data set: the same for all trainings of it here, and drawn at random.
      number: of this plan among those of its data set in the log, from 1.
      earlier: about those before it; absent where it is the first.
      head_size: entries of the log under whose head the plan was stamped and witnessed.
      time_stamps: how many authorities had answered with a stamp on that head before the first step, by the signer's count, which nobody
        checked against the authorities' certificates; 0: none had.
      cosignatures: how many of the witnesses that the service asks had signed that head before the first step.
      noise_key: digest of the secret key that the run's randomness follows from; absent where every stream had a key of its own, which
        nobody kept.
      beacon: digest of the signature in the first time stamp, or else of the first witness's, from which the randomness follows too;
        absent without a noise key, and where nobody gave either.
    """

    index: Tally
    attempt: Count
    data_set: Tag
    number: Count
    earlier: Annotated[EarlierRuns | None, Field(exclude_if=is_absent)] = None
    head_size: Count
    time_stamps: Tally
    cosignatures: Tally
    noise_key: Annotated[Hex256 | None, Field(exclude_if=is_absent)] = None
    beacon: Annotated[Hex256 | None, Field(exclude_if=is_absent)] = None


@final
class PlanStatement(Value):
    r"""What is logged before the first step, as a digest of its canonical JSON.

    Attributes:
      job, attempt: whose plan it is.
      spec, plan: digests of their canonical JSON; noise and event follow from the plan.
      data_manifest: digest of the commitment to the data.
      code: digest of the code's list of digests.
      ledger: the entry that reserved the plan; absent without a ledger.
      noise_key: as in ``AnnouncedFacts``.
      data_set, number, earlier: as in ``AnnouncedFacts``.
    """

    kind: Literal["zetadp-plan"] = "zetadp-plan"
    job: Annotated[str, StringConstraints(strict=True, min_length=1, max_length=200)]
    attempt: Count
    spec: Hex256
    plan: Hex256
    data_manifest: Hex256
    code: Hex256
    ledger: Annotated[LedgerFacts | None, Field(exclude_if=is_absent)] = None
    noise_key: Annotated[Hex256 | None, Field(exclude_if=is_absent)] = None
    data_set: Tag
    number: Count
    earlier: Annotated[EarlierRuns | None, Field(exclude_if=is_absent)] = None


def announced_lines(facts: AnnouncedFacts | None) -> Sequence[str]:
    """The same in words, for a reader of the certificate."""
    if facts is None:
        return ("Plan: not logged before the first step, so nothing shows that it was fixed before its outcome was known.",)
    stamps = so_many(facts.time_stamps, "time-stamping authority", "time-stamping authorities")
    witnesses = so_many(facts.cosignatures, "witness", "witnesses")
    said = (
        f"Plan: logged as entry {facts.index + 1}, before this certificate, which the proofs beside it show. Only the signer says that "
        f"training began afterwards, and who had signed the log's head by then: {stamps} and {witnesses}. A policy counts those that its "
        "reader trusts."
    )
    if facts.noise_key is not None:
        said += (
            " The run's noise follows from a secret key to which the plan is committed: the operator can open it to an auditor, who can "
            "then repeat the run. The guarantee doesn't hold against anybody who learns that key."
        )
    return said, f"Earlier trainings of this data set: {earlier_in_words(facts)}"


def earlier_in_words(facts: AnnouncedFacts) -> str:
    """How many trainings there were before, and what they cost."""
    before = facts.number - 1
    if facts.earlier is None:
        return "this service planned none."
    earlier = facts.earlier
    said = [f"{before} planned by this service, {earlier.certified} of them certified."]
    if earlier.epsilon is not None:
        alike = before - earlier.unlike - earlier.unguaranteed
        said.append(
            f"Those with a guarantee about the same unit and adjacency ({alike}) add up, if each ran all of its steps, to epsilon "
            f"{earlier.epsilon} at delta {earlier.delta}. The sum holds for trainings that were all fixed beforehand. If one was chosen in "
            "view of what an earlier one showed, only a ledger gives a bound; one whose budget is renewed gives it for each period alone."
        )
    if earlier.unlike:
        said.append(f"With a guarantee about another unit or adjacency, which isn't in any sum: {earlier.unlike}.")
    if earlier.unguaranteed:
        said.append(f"Without a guarantee, or without one that could be computed in time: {earlier.unguaranteed}.")
    return " ".join(said)
