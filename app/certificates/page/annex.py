r"""A certificate as the annex of a data protection impact assessment: in plain words, for people who didn't train the model.

What such an assessment contains is what Article 35(7) of the GDPR lists: processing and purposes, necessity, risks, measures. A certificate
answers the part about risks to one person from what was released, and says of the rest that somebody else has to. Odds come first because
people understood them best (Nanayakkara, Smart, Cummings, Kaptchuk and Redmiles 2023), then what follows for a person, in the manner of a
label (Smart, Nanayakkara, Cummings, Kaptchuk and Redmiles 2024).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zetadp.accountants.attack_sentences import NEIGHBOURS
from zetadp.app.certificates.facts.announced import earlier_in_words
from zetadp.app.certificates.facts.guarantee import ApproximateDp
from zetadp.app.certificates.facts.ledger_entry import is_kept_for_good, renewed
from zetadp.app.certificates.facts.phrases import sentence
from zetadp.app.certificates.facts.report import Check
from zetadp.app.certificates.facts.statement import PrivacyCertificate, Subject
from zetadp.app.certificates.page.blocks import Document, Section, Table
from zetadp.app.certificates.page.factors import ANSWERED, NOT_HELD, OPEN, Row, report_of
from zetadp.app.certificates.words.reading import Reading
from zetadp.app.certificates.words.releases import release_phrase
from zetadp.app.certificates.words.strength import at_certified_pair, attack_sentences, is_weak, nothing_promised, strength_in_words

NOTE = (
    "For a data protection impact assessment. Answers are taken from a certificate by its own words; rows marked OPEN are for whoever is "
    "responsible for the data. This page is no legal advice and proves nothing; check the certificate itself with `zetadp verify`. Risks "
    "are stated as odds first, and then as what follows from them, since people understood these best (Nanayakkara et al. 2023, "
    "arXiv:2303.00738; Smart et al. 2024, arXiv:2408.08475). Factors and hazards follow NIST SP 800-226 (2025). The wording is ours; "
    "none of them has endorsed it."
)

_HEADER = ("question", "answer", "state")


def annex_of(certificate: PrivacyCertificate, files: Sequence[Subject] = (), checks: Sequence[Check] = ()) -> Document:
    """The annex, followed by the report for an evaluator. Arguments as of ``document_of``."""
    whole, reading = report_of(certificate, files, checks), Reading(certificate)
    risks = Section("What this means for the people in the data", (Table(_HEADER, tuple(_risks(reading))),))
    measures = Section("Processing, necessity and measures", (Table(_HEADER, tuple(_assessment(reading))),))
    fields = Section("What published statements often leave out", (Table(_HEADER, tuple(_fields(reading))),))
    return Document(
        title="Annex to a data protection impact assessment",
        subtitle=whole.subtitle,
        verdict=whole.verdict,
        note=NOTE,
        sections=(risks, measures, fields, *whole.sections),
    )


def _risks(reading: Reading) -> Iterator[Row]:
    """Odds by the certified pair, as in the headline: two figures for one question would need an explanation of which is which."""
    guarantee, unit = reading.certificate.guarantee, reading.unit.replace("_", " ")
    hidden = None if reading.adjacency is None else NEIGHBOURS[reading.adjacency]
    asked = f"whether the data of one {unit} were used" if hidden is None else hidden.question.replace("{unit}", unit)
    odds = f"the odds that somebody finds out {asked}"
    deleted = f"deleting a {unit}'s data doesn't change a model that was released"
    if isinstance(guarantee, ApproximateDp):
        naming, guessing = attack_sentences(reading, at_certified_pair(guarantee))
        state = NOT_HELD if is_weak(reading, guarantee) else ANSWERED
        yield odds, guessing, state
        yield f"the odds that a test that is seldom wrong names one {unit}", naming, state
        yield "how strong that is", strength_in_words(reading, guarantee), state
        deleted += f"; what it shows of one {unit}'s data is within the odds above"
    else:
        yield odds, nothing_promised(reading), NOT_HELD
    if hidden is not None and hidden.shown:
        yield f"whether a {unit} was in the data at all", hidden.shown.replace("{unit}", unit), NOT_HELD
    yield "who sees the data before noise is added", f"{reading.trust}.", OPEN
    yield (
        f"what may still be learned about a {unit}",
        f"what is true of every {unit} like it, which the model may show whether or not that {unit}'s data were used; and whatever isn't "
        "covered: " + " ".join(map(sentence, reading.not_covered)),
        OPEN,
    )
    yield "somebody who wants their data deleted", deleted, OPEN
    several = "" if reading.setting.records_per_unit is None else f"; several {unit}s together are protected less"
    yield "somebody with several rows or units", f"{reading.unit_meaning}{several}", OPEN


def _assessment(reading: Reading) -> Iterator[Row]:
    certificate = reading.certificate
    yield "what was done with which data", f"{reading.algorithm.SUMMARY} {certificate.data.description}", ANSWERED
    yield "purposes, and on which legal basis", "not in a certificate", OPEN
    yield "why these data are needed, and no fewer", "not in a certificate", OPEN
    yield "how long data, keys and checkpoints are kept", "not in a certificate", OPEN
    ledger = certificate.ledger
    kept = "this run was charged to no privacy budget" if ledger is None else f"this run was charged to a privacy budget{renewed(ledger)}"
    yield "a limit for several uses of the same data", kept, ANSWERED if is_kept_for_good(ledger) else OPEN
    yield "what was tested of this run", reading.audit, OPEN
    yield "what everything rests on", " ".join(reading.assumptions), OPEN
    yield "who was asked for advice or for their view", "not in a certificate", OPEN


def _fields(reading: Reading) -> Iterator[Row]:
    """Six things that one needs to judge a statement of privacy, and that announcements of large trainings often don't say."""
    certificate = reading.certificate
    guarantee, run = certificate.guarantee, certificate.run
    told = isinstance(guarantee, ApproximateDp)
    yield "what one unit is, and how many a person has", reading.unit_meaning, OPEN
    neighbours = reading.neighbours or "none: nothing is private"
    yield "which data sets are compared", neighbours, ANSWERED if reading.neighbours else NOT_HELD
    drawn = "; ".join(release_phrase(release, reading.unit) for release in reading.releases) or "no release has noise"
    yield "how records were drawn for each step, as run and as accounted for", drawn, ANSWERED if reading.releases else NOT_HELD
    figures = f"epsilon {guarantee.epsilon} at delta {guarantee.delta}, by {guarantee.route}" if told else "there is no guarantee"
    yield "how epsilon was computed, with its delta", figures, ANSWERED if told else NOT_HELD
    announced = certificate.announced
    earlier = "Its plan wasn't logged, so nothing shows how many there were." if announced is None else earlier_in_words(announced)
    yield "other trainings on these data, and how settings were chosen", f"{earlier} How settings were chosen isn't known.", OPEN
    made = f"{run.generator}; {reading.floating_point}"
    yield "how the noise was made, in which arithmetic", made, ANSWERED
