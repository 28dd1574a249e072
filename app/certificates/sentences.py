r"""Every fixed sentence of a certificate, from the few facts that it depends on. Issuer and verifier take them from here alike."""

from __future__ import annotations

from collections.abc import Iterator

from accountants.events import neighbourhood, releases
from app.certificates import errata, wording
from app.certificates.attacks import attack_sentences
from app.certificates.audit import detail_of
from app.certificates.guarantee import ApproximateDp
from app.certificates.kinds import Kind, Setting, kind_of
from app.certificates.kinds.base import Sentence
from app.certificates.statement import PrivacyCertificate
from trainer import ALGORITHMS
from trainer.models import weights


def unit_meaning(setting: Setting, kind: Kind) -> str:
    """What one unit of the guarantee is in this data set."""
    if setting.records_per_unit is None:
        return setting.named(f"one {{unit}} is one row of the {kind.protected} as described; ") + kind.other_rows(setting)
    used = f"of which at most {setting.records_per_unit} are used"
    return setting.named("one {unit} is all rows of the training data that are that {unit}'s, ") + used


def trust(algorithm: str, kind: Kind) -> str:
    """Who is trusted with what; the empty text for an algorithm that this version doesn't know."""
    own = next((known.TRUST.rstrip(".") for known in ALGORITHMS if known.algorithm_name() == algorithm), "")
    return f"{own}; {kind.custody}" if own and kind.custody else own


def assumptions(kind: Kind, setting: Setting) -> tuple[str, ...]:
    """What everything rests on."""
    of_mechanisms = (wording.ASSUMPTIONS[found] for one in setting.mechanisms for found in type(one).FACTS.assumptions)
    of_data = (setting.named(wording.UPLOADED_ASSUMPTION),) if setting.uploaded else ()
    return (*dict.fromkeys(of_mechanisms), *kind.run_assumptions(setting), *of_data)


def not_covered(kind: Kind, setting: Setting) -> tuple[str, ...]:
    """What the guarantee says nothing about, weights that were given from outside among it."""
    of_data = (wording.UPLOADED_NOT_COVERED,) if setting.uploaded else ()
    sentences = (*kind.not_covered(setting), *(weights.not_covered(digest) for digest in setting.given_weights), *of_data)
    return tuple(wording.OTHER_USES_IN_LEDGER if setting.in_ledger and one == wording.OTHER_USES else one for one in sentences)


def foreign_sentences(predicate: PrivacyCertificate) -> Iterator[str]:
    """The fields whose words aren't those that this version writes for what the certificate states elsewhere."""
    setting, kind = setting_of(predicate), kind_of(predicate, predicate.comparison)
    if setting is None or kind is None:
        yield "all"
        return
    yield from (name for name, stated, ours in (*_pairs(predicate, kind, setting), *kind.sentences(setting)) if stated != ours)
    parts = () if predicate.comparison is None else predicate.comparison.parts
    for protected, notes in (
        (predicate.unprotected is None, predicate.errata),
        *((part.unprotected is None, part.errata) for part in parts),
    ):
        yield from (f"errata {one.row}" for one in notes if not errata.is_known(one, protected=protected))


def setting_of(predicate: PrivacyCertificate) -> Setting | None:
    """None for a certificate from before these sentences, or one that names no unit."""
    evaluation, precision, unit = predicate.scope.evaluation, predicate.environment.precision, unit_of(predicate)
    if evaluation is None or precision is None or unit is None:
        return None
    events = (predicate.event,) if predicate.comparison is None else tuple(part.event for part in predicate.comparison.parts)
    return Setting(
        mechanisms=tuple(leaf.mechanism for event in events for leaf in releases(event)),
        unit=unit,
        records_per_unit=predicate.data.records_per_unit,
        held_out=evaluation.kind,
        precision=precision,
        guaranteed=isinstance(predicate.guarantee, ApproximateDp),
        given_weights=predicate.given_weights,
        in_ledger=predicate.ledger is not None,
        uploaded=predicate.data.uploaded is not None,
        is_declared=predicate.data.declared_units is not None,
    )


def unit_of(predicate: PrivacyCertificate) -> str | None:
    """What the run is about one of, whether or not anything protects it; None where nothing says so."""
    if predicate.neighbourhood is not None:
        return predicate.neighbourhood.unit
    if predicate.unprotected is not None:
        return predicate.unprotected.unit
    parts = () if predicate.comparison is None else predicate.comparison.parts
    named = (neighbourhood(part.event) for part in parts)
    return next((pair[1] for pair in named if pair is not None), next((one.unprotected.unit for one in parts if one.unprotected), None))


def _pairs(predicate: PrivacyCertificate, kind: Kind, setting: Setting) -> tuple[Sentence, ...]:
    scope, data, evaluation, audit = predicate.scope, predicate.data, predicate.scope.evaluation, predicate.audit
    sampled = predicate.clipping is not None
    return (
        ("data.uploaded.meaning", data.uploaded and data.uploaded.meaning, wording.UPLOADED_WORDS if setting.uploaded else None),
        ("data.unit_meaning", data.unit_meaning, unit_meaning(setting, kind)),
        ("data.realised_sample_sizes", data.realised_sample_sizes, wording.SAMPLE_SIZES if sampled else None),
        ("scope.trust_model", scope.trust_model, trust(predicate.job.algorithm, kind)),
        ("scope.released", scope.released, kind.released(setting)),
        ("scope.checkpoints", scope.checkpoints, kind.checkpoints(setting)),
        ("scope.training_metrics", scope.training_metrics, kind.training_metrics),
        ("scope.evaluation.meaning", evaluation and evaluation.meaning, wording.EVALUATION[setting.held_out]),
        ("scope.test_metrics", scope.test_metrics, kind.test_metrics(setting)),
        ("not_covered", predicate.not_covered, not_covered(kind, setting)),
        ("randomness.floating_point", predicate.randomness.floating_point, kind.floating_point(setting)),
        ("assumptions", predicate.assumptions, assumptions(kind, setting)),
        *attack_sentences(predicate.attacks),
        ("audit.detail", audit.detail, detail_of(audit.noise_numbers, audit.canaries)),
    )
