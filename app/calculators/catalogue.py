r"""The catalogue: mechanisms with their proofs, accountants, training algorithms."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, final

from pydantic import Field

from zetadp.accountants import ACCOUNTANTS
from zetadp.app.calculators.proofs import path_of
from zetadp.mechanisms import DECLARED, MECHANISMS, Accounted, Facts
from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import ALGORITHMS


@final
class MechanismEntry(Value):
    """One kind of mechanism: what it is, what it needs, and where its proof is.

    Attributes:
      declared: whether others ran it and only state what it was: then an answer is true only if the declaration is.
      samplable: whether it can be in an event that samples.
      noisy: whether it has noise that can be calibrated; a bare guarantee has none.
    """

    kind: str
    declared: bool
    samplable: bool
    noisy: bool
    facts: Facts
    proof: str
    example: dict[str, Any]
    schema_: dict[str, Any] = Field(serialization_alias="schema")


@final
class AccountantEntry(Value):
    """One accountant."""

    name: str
    summary: str
    sources: tuple[str, ...]


@final
class AlgorithmEntry(Value):
    """One training algorithm: its spec's schema and an example that runs."""

    name: str
    summary: str
    sources: tuple[str, ...]
    errata: tuple[str, ...]
    example: dict[str, Any]
    schema_: dict[str, Any] = Field(serialization_alias="schema")


@final
class Proof(Value):
    """A mechanism's proof, as Markdown."""

    kind: str
    markdown: str


_ALL: tuple[type[Accounted], ...] = (*MECHANISMS, *DECLARED)


@cache
def list_mechanisms() -> tuple[MechanismEntry, ...]:
    """Every registered mechanism, then everything that can be declared."""
    return tuple(_entry(mechanism) for mechanism in _ALL)


def _entry(mechanism: type[Accounted]) -> MechanismEntry:
    example = mechanism.example()
    return MechanismEntry(
        kind=mechanism.kind_name(),
        declared=mechanism in DECLARED,
        samplable=mechanism.CAN_BE_SAMPLED,
        noisy=example.noise_scale is not None,
        facts=mechanism.FACTS,
        proof=path_of(mechanism.FACTS.proof),
        example=example.model_dump(mode="json", exclude_none=True),
        schema_=mechanism.model_json_schema(),
    )


def proof_of(kind: str) -> Proof:
    """A mechanism's proof. Raises InvalidParameter for an unknown kind."""
    for mechanism in _ALL:
        if mechanism.kind_name() == kind:
            text = files("zetadp.mechanisms").joinpath("proofs", mechanism.FACTS.proof).read_text(encoding="utf-8")
            return Proof(kind=kind, markdown=text)
    raise InvalidParameter("kind", "one of " + ", ".join(m.kind_name() for m in _ALL), kind)


@cache
def list_accountants() -> tuple[AccountantEntry, ...]:
    """Every registered accountant."""
    return tuple(
        AccountantEntry(name=accountant.name, summary=accountant.summary, sources=accountant.sources) for accountant in ACCOUNTANTS
    )


@cache
def list_algorithms() -> tuple[AlgorithmEntry, ...]:
    """Every registered training algorithm."""
    return tuple(
        AlgorithmEntry(
            name=algorithm.algorithm_name(),
            summary=algorithm.SUMMARY,
            sources=algorithm.SOURCES,
            errata=algorithm.ERRATA,
            example=algorithm.example().model_dump(mode="json", exclude_none=True),
            schema_=algorithm.model_json_schema(),
        )
        for algorithm in ALGORITHMS
    )
