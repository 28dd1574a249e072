r"""What can void a certificate's guarantee or isn't protected by it: shown in one block directly after epsilon."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import final

from zetadp.app.certificates.facts import wording
from zetadp.app.certificates.facts.guarantee import SEED_SENTENCE, ApproximateDp, NoGuarantee
from zetadp.app.certificates.words.reading import Reading
from zetadp.trainer.specs.base import TrainingSpec
from zetadp.trainer.specs.models import weights

SEEDED = f"its random numbers come from a seed: it is {SEED_SENTENCE}, and its certificate will guarantee nothing"
RESTS = "epsilon rests on assumptions, which the certificate states beside it"


@final
@dataclass(frozen=True)
class Caveat:
    """A lead, which ends in a colon if lines follow, and the lines."""

    lead: str
    lines: tuple[str, ...] = ()


def caveats(reading: Reading, guarantee: ApproximateDp) -> Iterator[Caveat]:
    """All caveats, the most serious first."""
    units = reading.certificate.plan.units
    if Decimal(guarantee.delta) * units >= 1 and guarantee.pure_epsilon is None:
        yield Caveat(f"Delta is large: one over the number of units ({units}) or more. It would allow publishing all data of one of them.")
    if reading.assumptions:
        yield Caveat("It holds only if all of the following hold:", reading.assumptions)
    found = _beside_epsilon(reading)
    beside = tuple(found[line] for line in reading.not_covered if line in found)
    if beside:
        yield Caveat("Part of this run, and not covered by it:", beside)


def of_run(spec: TrainingSpec) -> tuple[str, ...]:
    """The caveats shown with a run's epsilon before there is a certificate, the most serious first."""
    seeded = (SEEDED,) if spec.reproducible else ()
    held_out = (f"{wording.held_out_records('public')}; {wording.NO_HELD_OUT}",) if spec.held_out == "public" else ()
    return (*seeded, *held_out, *map(weights.not_covered, spec.given_weights), RESTS)


def not_covered_elsewhere(reading: Reading) -> tuple[str, ...]:
    """What isn't covered and isn't shown with epsilon."""
    if isinstance(reading.certificate.guarantee, NoGuarantee):
        return reading.not_covered
    beside = _beside_epsilon(reading)
    return tuple(line for line in reading.not_covered if line not in beside)


def _beside_epsilon(reading: Reading) -> dict[str, str]:
    """Uncovered data that this run read, through which somebody in the training data may be exposed all the same.

    Each with the text that is shown with epsilon.
    """
    held_out = wording.held_out_records("public")
    given = map(weights.not_covered, reading.certificate.run.given_weights)
    return {held_out: f"{held_out}; {wording.NO_HELD_OUT}", **{line: line for line in given}}
