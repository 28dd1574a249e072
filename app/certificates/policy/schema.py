r"""A policy: what somebody demands of a certificate, or of a training before it runs. A YAML or JSON file with one form."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Annotated, Any, Literal, final

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from zetadp.app.certificates.facts.confidential import Attributes, Hex384, SnpFacts, TdxFacts
from zetadp.app.certificates.facts.decimals import DecimalText, fraction
from zetadp.app.certificates.facts.statement import Sha256
from zetadp.app.certificates.log.notes import COSIGNATURE, NoteKey, NoteRefused
from zetadp.app.certificates.log.time_stamps import check_authority
from zetadp.app.certificates.log.trust import Trust
from zetadp.app.certificates.signing.machine_keys import revoked_in
from zetadp.app.certificates.signing.snp_reports import endorsement_in
from zetadp.mechanisms.base import Adjacency, PrivacyUnit, Tally, Value, is_absent
from zetadp.mechanisms.errors import InvalidParameter


def _as_text(value: object) -> object:
    """A number in JSON is the decimal number that its shortest text says."""
    return repr(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _as_count(value: object) -> object:
    """A file holds texts."""
    return int(value) if isinstance(value, str) and _COUNT.fullmatch(value) else value


_COUNT = re.compile(r"0|[1-9][0-9]{0,17}")
Decimal = Annotated[DecimalText, BeforeValidator(_as_text)]
CountText = BeforeValidator(_as_count)
CheckName = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=200)]
Demand = Literal["required", "any"]


def _checked(check: Callable[[str], object]) -> AfterValidator:
    """Of a text that this check doesn't refuse."""

    def checked(text: str) -> str:
        try:
            check(text)
        except NoteRefused as refused:  # the others are such errors themselves
            raise ValueError(str(refused)) from refused
        return text

    return AfterValidator(checked)


_PEM = StringConstraints(strict=True, max_length=32_000)


@final
class TimeStamps(Value):
    r"""Whose clocks are trusted.

    Attributes:
      least: how many different authorities' stamps are needed.
      authorities: of each, one PEM text: the certificate that signs its stamps, its root, and those between.
    """

    least: Annotated[int, Field(strict=True, ge=1, le=16), CountText]
    authorities: Annotated[
        tuple[Annotated[str, _PEM, _checked(check_authority)], ...],
        Field(min_length=1, max_length=16),
    ]


def _check_witness(text: str) -> None:
    if NoteKey.read(text).kind != COSIGNATURE:
        raise ValueError("is a log's key, not a witness's")


@final
class Witnesses(Value):
    r"""Who must have seen that the log only grew.

    Attributes:
      least: how many of them; more than half, since two histories could otherwise both be signed by so many.
      keys: of the witnesses, each as ``name+hash+key`` (C2SP signed-note), which ``zetadp witness`` prints.
    """

    least: Annotated[int, Field(strict=True, ge=1, le=32), CountText]
    keys: Annotated[
        tuple[Annotated[str, StringConstraints(strict=True, max_length=300), _checked(_check_witness)], ...],
        Field(min_length=1, max_length=32),
    ]

    @model_validator(mode="after")
    def _check(self) -> Witnesses:
        count = len({NoteKey.read(key).raw for key in self.keys})
        if count != len(self.keys):
            raise InvalidParameter("keys", "keys of different witnesses", f"{len(self.keys)} with {count} different ones")
        if not count < 2 * self.least <= 2 * count:
            raise InvalidParameter("least", f"more than half of the {count} witnesses, and at most all", self.least)
        return self


SerialNumber = Annotated[str, StringConstraints(strict=True, pattern=r"^[1-9a-f][0-9a-f]{0,39}$")]
Digests = Annotated[tuple[Hex384, ...], Field(max_length=1000, exclude_if=is_absent)]


@final
class TdxGuests(Value):
    r"""Which Intel TDX guests a certificate may have been made in; of each measurement any if none is named.

    Attributes:
      mrtd: of one of which the guest was launched with.
      rtmr0, rtmr1, rtmr2, rtmr3: of which its registers have one each.
      mrseam: of the TDX module that measured it.
      attributes: of the guest, which has exactly one of these.
      pck: serial numbers of machines' certificates (PCK), in hexadecimal as ``verify`` prints them, of which one signed; any if empty, and
        then also one whose owner has opened it.
    """

    mrtd: Digests = ()
    rtmr0: Digests = ()
    rtmr1: Digests = ()
    rtmr2: Digests = ()
    rtmr3: Digests = ()
    mrseam: Digests = ()
    attributes: Annotated[tuple[Attributes, ...], Field(max_length=1000, exclude_if=is_absent)] = ()
    pck: Annotated[tuple[SerialNumber, ...], Field(max_length=1000, exclude_if=is_absent)] = ()

    @property
    def named(self) -> tuple[str, ...]:
        """The measurements that are asked for."""
        return tuple(name for name in type(self).model_fields if name != "pck" and getattr(self, name))

    def accepts(self, facts: TdxFacts) -> bool:
        """Whether each that is asked for is one of those."""
        return all(getattr(facts, name) in getattr(self, name) for name in self.named)


@final
class Machines(Value):
    r"""Which confidential machines a certificate may have been made in: AMD's with one of these keys, or Intel's of this kind.

    Attributes:
      keys: by one of which a report of AMD's is signed; of each, one PEM text: the certificate of the key, of a chip (VCEK) or a cloud
        (VLEK), and AMD's two above it.
      measurements: one of which an AMD guest was launched with; any if empty, and then nothing is known of what is in the guest.
      tdx: what is asked of an Intel guest, whose quote is signed up to Intel's root; absent: none is accepted.
      revocations: the makers' lists of revoked certificates, each as one PEM text; a report by a certificate on one of them is refused.
    """

    keys: Annotated[tuple[Annotated[str, _PEM, _checked(endorsement_in)], ...], Field(max_length=100, exclude_if=is_absent)] = ()
    measurements: Digests = ()
    tdx: Annotated[TdxGuests | None, Field(exclude_if=is_absent)] = None
    revocations: Annotated[tuple[Annotated[str, _PEM, _checked(revoked_in)], ...], Field(max_length=16, exclude_if=is_absent)] = ()

    @model_validator(mode="after")
    def _check(self) -> Machines:
        if not self.keys and self.tdx is None:
            raise InvalidParameter("machines", "keys of AMD's machines, or what is asked of Intel's (tdx)", "neither")
        return self

    @property
    def required(self) -> str:
        """What is asked for, in words."""
        of = f", launched with one of {len(self.measurements)} measurements" if self.measurements else ""
        signed = [f"a report signed by one of {len(self.keys)} known keys of AMD's{of}"] if self.keys else []
        if self.tdx is not None:
            like = f" with the {', '.join(self.tdx.named)} that are named" if self.tdx.named else ""
            on = f" on one of {len(self.tdx.pck)} machines" if self.tdx.pck else ""
            signed.append(f"a quote of an Intel TDX guest{like}{on}")
        return f"{' or '.join(signed)}; of a guest without debugging and migration"

    def accepts(self, facts: SnpFacts | TdxFacts) -> bool:
        """Whether such a guest is one of these, if what it says is signed as it has to be."""
        if facts.allowed:
            return False
        if isinstance(facts, TdxFacts):
            return self.tdx is not None and self.tdx.accepts(facts)
        return not self.measurements or facts.measurement in self.measurements  # without keys none is signed as it has to be


@final
class Policy(Value):
    r"""What is demanded; a certificate that isn't valid meets no policy.

    Attributes:
      name: whose policy it is, and for what; refusals name it.
      unit: the units of privacy that are accepted, as data sets name them.
      adjacency: the relations between neighbouring data sets that are accepted.
      largest_epsilon, largest_delta: one pair that was proved lies at or below both: the certified one, another of the stated curve
        (if every point of it was recomputed), or pure epsilon at delta 0.
      exact_release: ``required``: all noise was drawn exactly, on a grid, as it is accounted. It asks nothing of the values that noise is
        added to, which are computed with floats; what was done about their rounding, and what of it was only tested, the certificate says.
      noise_test: ``required``: the drawn noise was tested for scale and repetitions.
      least_canaries: how many made-up records, with gradients of their own, audited the run, at least.
      least_marks: how many marks did, which say nothing of how gradients come about. A run has one of the two.
      ledger: ``required``: the entry of a budget that is never renewed paid for the run; ``may_be_renewed``: of any budget. One that is
        renewed bounds the uses of the data in each period alone.
      public_held_out: ``forbidden``: no held-out records that were declared public, of which the guarantee says nothing.
      given_weights: ``forbidden``: training started from no weights that the guarantee takes as public.
      plan_logged: ``required``: it is proved that the plan was in the log, under the head that the certificate names, before the
        certificate was. That training began only after that is the signer's word.
      time_stamps: at least so many of these authorities stamped the time on the log's head with the plan in it; absent: none is asked for.
      witnesses: at least so many of these witnesses of logs signed the heads that plan and certificate are under; absent: none is asked
        for.
      tpm_keys: one of the keys with these names, which ``verify`` prints, gave a TPM's quote on the code and on the head that the plan is
        under, as is proved. Whether such a key is in a TPM is known to whoever wrote down its name; absent: no quote is asked for.
      machines: a confidential machine's report on the code and on the head that the plan is under, as is proved, is by one of these
        machines, and the guest was launched without debugging and migration; absent: no report is asked for.
      most_earlier_runs: how many trainings of the same data set its service may have planned before, at most, by a number that is proved to
        be in the log; absent: any number.
      checks: checks that must have passed; without this, one that couldn't be made for want of a file is accepted. ``log``,
        ``revocation`` and ``file model.safetensors`` are among them.
    """

    name: Annotated[str, StringConstraints(strict=True, min_length=1, max_length=200)]
    unit: Annotated[tuple[PrivacyUnit, ...], Field(min_length=1, max_length=100)]
    adjacency: Annotated[tuple[Adjacency, ...], Field(min_length=1, max_length=10)]
    largest_epsilon: Decimal
    largest_delta: Decimal
    exact_release: Demand = "any"
    noise_test: Demand = "any"
    least_canaries: Annotated[Tally, CountText] = 0
    least_marks: Annotated[Tally, CountText] = 0
    ledger: Literal["required", "may_be_renewed", "any"] = "any"
    public_held_out: Literal["forbidden", "any"] = "any"
    given_weights: Literal["forbidden", "any"] = "any"
    plan_logged: Demand = "any"
    time_stamps: Annotated[TimeStamps | None, Field(exclude_if=is_absent)] = None
    witnesses: Annotated[Witnesses | None, Field(exclude_if=is_absent)] = None
    tpm_keys: Annotated[tuple[Sha256, ...], Field(max_length=1000, exclude_if=is_absent)] = ()
    machines: Annotated[Machines | None, Field(exclude_if=is_absent)] = None
    most_earlier_runs: Annotated[Tally | None, Field(exclude_if=is_absent), CountText] = None
    checks: Annotated[tuple[CheckName, ...], Field(max_length=100)] = ()

    @model_validator(mode="after")
    def _check(self) -> Policy:
        if not fraction(self.largest_delta) < 1:
            raise InvalidParameter("largest_delta", "below 1", self.largest_delta)
        if self.least_canaries and self.least_marks:
            raise InvalidParameter("least_marks", "0 where canaries are asked for: a run has one of the two", self.least_marks)
        if self.time_stamps is not None and self.time_stamps.least > len(self.time_stamps.authorities):
            given = len(self.time_stamps.authorities)
            raise InvalidParameter("time_stamps.least", f"at most {given}, the number of authorities", self.time_stamps.least)
        return self

    @property
    def trust(self) -> Trust:
        """Whom verification trusts beside the keys that sign certificates."""
        stamps, witnesses = self.time_stamps, self.witnesses
        return Trust(
            authorities=() if stamps is None else stamps.authorities,
            least_time_stamps=1 if stamps is None else stamps.least,
            witnesses=() if witnesses is None else tuple(map(NoteKey.read, witnesses.keys)),
            least_witnesses=1 if witnesses is None else witnesses.least,
            machines=() if self.machines is None else self.machines.keys,
            pck=() if self.machines is None or self.machines.tdx is None else self.machines.tdx.pck,
            revoked=() if self.machines is None else self.machines.revocations,
        )

    def admits(self, epsilon: str, delta: str) -> bool:
        """Whether this pair is small enough; compared as the decimal numbers that both say."""
        return fraction(epsilon) <= self.most[0] and fraction(delta) <= self.most[1]

    @property
    def most(self) -> tuple[Fraction, Fraction]:
        """The largest epsilon and delta."""
        return fraction(self.largest_epsilon), fraction(self.largest_delta)


def policy_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a policy."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Policy.model_json_schema(), "title": "zetadp policy"}
