r"""A certificate in words: this class derives everything that a certificate says from the signed facts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import final

from zetadp.accountants.events import leaves, neighbourhood
from zetadp.app.certificates.facts import wording
from zetadp.app.certificates.facts.announced import announced_lines
from zetadp.app.certificates.facts.audit import audit_in_words
from zetadp.app.certificates.facts.confidential import confidential_line
from zetadp.app.certificates.facts.decimals import exact
from zetadp.app.certificates.facts.errata import meaning
from zetadp.app.certificates.facts.guarantee import ApproximateDp, figures
from zetadp.app.certificates.facts.ledger_entry import is_kept_for_good, ledger_line
from zetadp.app.certificates.facts.statement import PrivacyCertificate
from zetadp.app.certificates.facts.tpm import tpm_line
from zetadp.app.certificates.words import shares, sites
from zetadp.app.certificates.words.kinds import History, Kind, Setting, kind_of
from zetadp.app.certificates.words.releases import ADJACENCY_MEANING, Drawn, largest_group, releases_of
from zetadp.mechanisms.base import Adjacency
from zetadp.mechanisms.errata import Erratum, erratum
from zetadp.trainer import CERTIFIED
from zetadp.trainer.specs.algorithms.selection_plan import SelectionPlan
from zetadp.trainer.specs.base import TrainingSpec
from zetadp.trainer.specs.execution_plan import ExecutionPlan
from zetadp.trainer.specs.models import weights
from zetadp.trainer.specs.report import METRICS
from zetadp.version import VERSION


@final
@dataclass(frozen=True)
class Reading:
    """What a certificate says, in this version's words."""

    certificate: PrivacyCertificate

    @property
    def other_version(self) -> str | None:
        """A note that the run used another version than these words; None if it didn't.

        Facts that this version doesn't know can't be read at all; those that it knows are worded as for its own runs.
        """
        run = self.certificate.environment.versions.get("zetadp", VERSION)
        return None if run == VERSION else f"The run used version {run}; this text is by version {VERSION}, as for its own runs."

    @cached_property
    def kind(self) -> Kind:
        """The kind of training."""
        return kind_of(self.certificate.plan, self.certificate.parts)

    @cached_property
    def setting(self) -> Setting:
        """What the sentences depend on."""
        found, run = self.certificate, self.certificate.run
        return Setting(
            mechanisms=found.plan.mechanisms,
            unit=found.plan.unit,
            records_per_unit=found.data.records_per_unit,
            held_out=run.held_out,
            precision=found.environment.precision,
            guaranteed=isinstance(found.guarantee, ApproximateDp),
            given_weights=run.given_weights,
            averaged=run.averaged is not None,
            uploaded=found.data.uploaded is not None,
            is_declared=found.plan.declared_units is not None,
        )

    @property
    def unit(self) -> str:
        """The unit of the run, whether or not anything protects it."""
        return self.certificate.plan.unit

    @property
    def is_protected(self) -> bool:
        """Whether the algorithm protects anything at all."""
        return self.certificate.plan.is_protected

    @cached_property
    def adjacency(self) -> Adjacency | None:
        """Which data sets are neighbours; None if the event has no private part."""
        pair = neighbourhood(self.certificate.event)
        return None if pair is None else pair[0]

    @property
    def neighbours(self) -> str:
        """Which data sets are neighbours, in words; empty if the event has no private part."""
        return "" if self.adjacency is None else ADJACENCY_MEANING[self.adjacency]

    @cached_property
    def releases(self) -> tuple[Drawn, ...]:
        """Every different release that was made, from the plan, which can always be counted; verification checks that the event is its.

        Of a private selection, those of one of its runs.
        """
        plan, steps = self.certificate.plan, self.certificate.run.steps_released
        if isinstance(plan, SelectionPlan):
            return releases_of(plan.one_run.event)
        return releases_of((plan.cut_to(steps) if isinstance(plan, ExecutionPlan) else plan).event)

    @property
    def algorithm(self) -> type[TrainingSpec]:
        """The algorithm with its summary, sources and trust; the statement accepts only those that this version knows."""
        return next(known for known in CERTIFIED if known.algorithm_name() == self.certificate.job.algorithm)

    @property
    def unit_meaning(self) -> str:
        """What one unit of the guarantee is in this data set."""
        setting, kind = self.setting, self.kind
        if setting.records_per_unit is None:
            return setting.named(f"one {{unit}} is one row of the {kind.protected} as described; ") + kind.other_rows(setting)
        used = f"of which at most {setting.records_per_unit} are used"
        return setting.named("one {unit} is all rows of the training data that are that {unit}'s, ") + used

    @property
    def trust(self) -> str:
        """Who is trusted, and with what."""
        plan, connected = self._in_shares, bool(self.certificate.run.sites)
        if plan is None:
            own = sites.TRUST if connected else self.algorithm.TRUST.rstrip(".")
        else:
            own = shares.trust(plan, is_connected=connected)
        return f"{own}; {self.kind.custody}" if self.kind.custody else own

    @property
    def _in_shares(self) -> ExecutionPlan | None:
        """The plan, if its noise is shares of several nodes."""
        plan = self.certificate.plan
        return plan if isinstance(plan, ExecutionPlan) and plan.aggregation is not None else None

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What everything rests on."""
        setting = self.setting
        of_mechanisms = (wording.ASSUMPTIONS[found] for one in setting.mechanisms for found in type(one).FACTS.assumptions)
        of_data = (setting.named(wording.UPLOADED_ASSUMPTION),) if setting.uploaded else ()
        if self.certificate.run.sites:
            of_data = (*of_data, sites.CUSTODY, *((shares.KEYS,) if self._in_shares is not None else ()))
        return (*dict.fromkeys(of_mechanisms), *self.kind.run_assumptions(setting), *self.algorithm.ASSUMPTIONS, *of_data)

    @property
    def not_covered(self) -> tuple[str, ...]:
        """What the guarantee says nothing about, including weights given from outside."""
        setting = self.setting
        of_data = (wording.UPLOADED_NOT_COVERED,) if setting.uploaded else ()
        sentences = (*self.kind.not_covered(setting), *(weights.not_covered(digest) for digest in setting.given_weights), *of_data)
        return tuple(self._other_uses if one == wording.OTHER_USES else one for one in sentences)

    @property
    def _other_uses(self) -> str:
        ledger = self.certificate.ledger
        if ledger is None:
            return wording.OTHER_USES
        return wording.OTHER_USES_IN_LEDGER if is_kept_for_good(ledger) else wording.OTHER_USES_IN_RENEWED_LEDGER

    @property
    def floating_point(self) -> str:
        """What computing with floats leaves open."""
        return wording.floating_point(self.certificate.run.arithmetic, self.setting.precision)

    @property
    def errata(self) -> tuple[tuple[Erratum, str], ...]:
        """What the errata say about the papers behind it: each row with its meaning for this run."""
        rows = (erratum(row) for row in self.certificate.errata)
        return tuple((row, meaning(row, protected=self.is_protected)) for row in rows)

    @property
    def sources(self) -> tuple[str, ...]:
        """Of mechanisms and algorithm."""
        of_mechanisms = (source for one in self.certificate.plan.mechanisms for source in type(one).FACTS.sources)
        return tuple(dict.fromkeys((*of_mechanisms, *self.algorithm.SOURCES)))

    @property
    def proofs(self) -> tuple[str, ...]:
        """Files in the code's ``proofs`` folders: of mechanisms, kind of training and sampling, and of epsilon's route if it has one."""
        event, claim = self.certificate.plan.event, figures(self.certificate.guarantee)
        route = None if claim is None else wording.ROUNDING_PROOFS.get(claim.accountant)
        sampled = largest_group(event) > 1 or not all(leaf.is_whole for leaf in leaves(event))
        named = (
            *(type(one).FACTS.proof for one in self.certificate.plan.mechanisms),
            *self.kind.proofs,
            *((wording.PAIRS_PROOF,) if sampled else ()),
            *(() if route is None else (route,)),
        )
        return tuple(dict.fromkeys(named))

    def done(self) -> Iterator[str]:
        """What was done to which data, one line each; lines that explain the previous one are indented."""
        data, run = self.certificate.data, self.certificate.run
        yield f"Data: {self._size()}. {data.description}"
        if data.uploaded is not None:
            of = data.uploaded
            yield f"  Data set {of.id}, manifest SHA-256 {of.manifest_sha256}. Its maker says of it (nobody checked that): {of.words!r}"
        yield from self.kind.lines(self.setting, self._history())
        yield from sites.site_lines(run.sites, run.proposal, run.steps_released)
        if run.sites and (plan := self._in_shares) is not None:
            yield f"  {shares.sent(plan, run.parameters)}."
        yield f"Released: {self.kind.released(self.setting)}."
        yield f"Held-out records: {self.measured()}."
        yield from announced_lines(self.certificate.announced)
        yield from tpm_line(self.certificate.tpm)
        yield from confidential_line(self.certificate.confidential)
        if self.certificate.ledger is not None:
            yield f"Budget: {ledger_line(self.certificate.ledger)}."
        yield f"Random numbers: {run.generator}; {self._keyed()}.{self._shared()} Audit: {self.audit}."

    @property
    def audit(self) -> str:
        """What was tested of the run, and what it showed."""
        run = self.certificate.run
        return audit_in_words(run.noise_numbers, run.samples, run.canaries, figures(self.certificate.guarantee))

    def _keyed(self) -> str:
        announced = self.certificate.announced
        is_kept = announced is not None and announced.noise_key is not None
        return wording.KEYED_BY_THE_RUN if is_kept else wording.KEYED[self.certificate.run.random_origin]

    def measured(self) -> str:
        """What was measured on held-out records."""
        if not self.certificate.data.test_records:
            return "there are none"
        run, plan, setting = self.certificate.run, self.certificate.plan, self.setting
        private = plan.counts
        counts = ""
        if private is not None:
            number = private.releases(run.steps_released, run.steps_released)
            among = " in each run, of which the best run's last one came out," if isinstance(plan, SelectionPlan) else ""
            counts = f"; {number} counts{among} with noise of standard deviation {exact(private.mechanism.std)}"
        names = ", ".join(f"{METRICS.get(name, name)} {float(value):.4g}" for name, value in (run.metrics or {}).items())
        names = f"for the first part, {names}" if names and self.certificate.parts else names
        which = f"{names or 'no metrics'}, on {self.certificate.data.test_records} records; {wording.EVALUATION[setting.held_out]}{counts}"
        return f"{which}. They are {self.kind.test_metrics(setting)}"

    def _history(self) -> History:
        job, run = self.certificate.job, self.certificate.run
        again = f"; the run was started {_times(job.attempts)} and continued from a checkpoint {_times(job.resumptions)}"
        return History(
            released=run.steps_released,
            test_records=self.certificate.data.test_records,
            restarts=again if job.attempts > 1 else "",
            canaries=0 if run.canaries is None else run.canaries.members,
            selected=run.selected,
            checkpoints=f" Checkpoints: {run.checkpoints_released}, {self.kind.checkpoints(self.setting)}.",
        )

    def _size(self) -> str:
        data, setting, units = self.certificate.data, self.setting, self.certificate.plan.units
        used = "" if setting.records_per_unit is None else f", of which at most {setting.records_per_unit} records each are used"
        if setting.is_declared:
            return f"{units} units ({setting.unit}) by a number that was declared without counting them{used}"
        of = "" if setting.records_per_unit is None else f" of {units} units ({setting.unit})"
        return f"{data.training_records} training records{of}{used}"

    def _shared(self) -> str:
        processes = self.certificate.environment.processes
        if processes == 1:
            return ""
        return f" {processes} processes shared each sample; their sums were added before one of them added the noise, once."


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
