r"""Every fixed sentence of a certificate, from the few facts that it depends on. Issuer and verifier take them from here alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, final

from accountants.events import leaves
from app.certificates import errata, wording
from app.certificates.guarantee import ApproximateDp
from app.certificates.statement import PrivacyCertificate
from mechanisms import AnyMechanism
from trainer import ALGORITHMS
from trainer.report import HeldOut


@final
@dataclass(frozen=True)
class Setting:
    r"""What the sentences depend on.

    Attributes:
      algorithm: its name.
      mechanisms: of the noisy sums, and of the counts where there are any.
      unit: of privacy.
      records_per_unit: None where a unit is one row.
      guaranteed: whether anything is certified.
    """

    algorithm: str
    mechanisms: tuple[AnyMechanism, ...]
    unit: str
    records_per_unit: int | None
    clipping: Literal["flat", "per_layer", "adaptive"]
    held_out: HeldOut
    is_federated: bool
    precision: Literal["float32", "bfloat16"]
    guaranteed: bool

    def unit_meaning(self) -> str:
        """What one unit of the guarantee is in this data set."""
        if self.records_per_unit is None:
            return f"one {self.unit} is one row of the training data as described; a person with several rows is protected less"
        used = f"of which at most {self.records_per_unit} are used"
        return f"one {self.unit} is all rows of the training data that are that {self.unit}'s, {used}"

    def clipped(self) -> str:
        """How a unit's contribution was bounded."""
        words = wording.CLIPPING[self.clipping] + (wording.SUMMED if self.records_per_unit is not None else "")
        return self._named(words)

    def trust(self) -> str:
        """Who is trusted with what; the empty text for an algorithm that this version doesn't know."""
        return next((known.TRUST.rstrip(".") for known in ALGORITHMS if known.algorithm_name() == self.algorithm), "")

    def released(self) -> str:
        """What left the run."""
        whole = f"{wording.RELEASED[self.held_out]}; {wording.POST_PROCESSING if self.guaranteed else wording.NOTHING_COVERED}"
        return f"{wording.RELEASED_BY_NODES}; {whole}" if self.is_federated else whole

    def checkpoints(self) -> str:
        """What protects checkpoints."""
        return f"{'covered' if self.guaranteed else wording.NOT_COVERED}: {wording.CHECKPOINTS}"

    def test_metrics(self) -> str:
        """What protects the held-out records."""
        if self.held_out == "private" and not self.guaranteed:
            return f"{wording.NOT_COVERED}: noise on what was measured on them doesn't make a guarantee here"
        return self._named(wording.TEST_METRICS[self.held_out])

    def assumptions(self) -> tuple[str, ...]:
        """What everything rests on."""
        return (
            *dict.fromkeys(wording.ASSUMPTIONS[assumption] for one in self.mechanisms for assumption in type(one).FACTS.assumptions),
            *wording.RUN_ASSUMPTIONS,
            *((self._named(wording.USER_ASSUMPTION),) if self.records_per_unit is not None else ()),
            *((wording.FEDERATED_ASSUMPTION,) if self.is_federated else ()),
            *((wording.CENTRAL_EVALUATION,) if self.is_federated and self.held_out == "private" else ()),
        )

    def _named(self, words: str) -> str:
        return words.replace("{unit}", self.unit)


def foreign_sentences(predicate: PrivacyCertificate) -> Iterator[str]:
    """The fields whose words aren't those that this version writes for what the certificate states elsewhere."""
    setting = _setting_of(predicate)
    if setting is None:
        yield "all"
        return
    scope, data, federation, evaluation = predicate.scope, predicate.data, predicate.federation, predicate.scope.evaluation
    pairs: tuple[tuple[str, object, object], ...] = (
        ("data.unit_meaning", data.unit_meaning, setting.unit_meaning()),
        ("data.realised_sample_sizes", data.realised_sample_sizes, wording.SAMPLE_SIZES),
        ("federation.participation", federation and federation.participation, federation and wording.PARTICIPATION),
        ("federation.noise", federation and federation.noise, federation and wording.NODE_NOISE),
        ("clipping.meaning", predicate.clipping.meaning, setting.clipped()),
        ("scope.trust_model", scope.trust_model, setting.trust()),
        ("scope.released", scope.released, setting.released()),
        ("scope.checkpoints", scope.checkpoints, setting.checkpoints()),
        ("scope.training_metrics", scope.training_metrics, wording.TRAINING_METRICS),
        ("scope.evaluation.meaning", evaluation and evaluation.meaning, wording.EVALUATION[setting.held_out]),
        ("scope.test_metrics", scope.test_metrics, setting.test_metrics()),
        ("not_covered", predicate.not_covered, wording.not_covered(setting.held_out)),
        ("randomness.floating_point", predicate.randomness.floating_point, wording.floating_point(setting.precision)),
        ("assumptions", predicate.assumptions, setting.assumptions()),
        ("audit.detail", predicate.audit.detail, wording.AUDIT),
    )
    yield from (name for name, stated, ours in pairs if stated != ours)
    for one in predicate.errata:
        try:
            known = errata.note(one.row) == one
        except errata.UnknownErratum:
            known = False
        if not known:
            yield f"errata {one.row}"


def _setting_of(predicate: PrivacyCertificate) -> Setting | None:
    """None for a certificate from before these sentences, or one without a private part."""
    evaluation, precision = predicate.scope.evaluation, predicate.environment.precision
    if evaluation is None or precision is None or predicate.neighbourhood is None:
        return None
    return Setting(
        algorithm=predicate.job.algorithm,
        mechanisms=tuple(leaf.mechanism for leaf in leaves(predicate.event)),
        unit=predicate.neighbourhood.unit,
        records_per_unit=predicate.data.records_per_unit,
        clipping=predicate.clipping.kind,
        held_out=evaluation.kind,
        is_federated=predicate.federation is not None,
        precision=precision,
        guaranteed=isinstance(predicate.guarantee, ApproximateDp),
    )
