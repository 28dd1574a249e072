"""The epsilon shown while training runs: as tight as the final one, never below the truth, and cheap at every step."""

from __future__ import annotations

import pytest

from tests.selection import chosen
from zetadp import accountants
from zetadp.accountants import deadline
from zetadp.mechanisms import Adjacency, ComplexGaussian, Sensitivity
from zetadp.trainer.engine import EpsilonSpent
from zetadp.trainer.engine.spent import QUICK_ACCOUNTANT, TIGHT_ACCOUNTANTS
from zetadp.trainer.specs.execution_plan import ExecutionPlan, FlatClipping
from zetadp.trainer.specs.sampling import PoissonSampling


def _plan(*, records: int, batch: int, std: float, steps: int, delta: float) -> ExecutionPlan:
    return ExecutionPlan(
        sampling=PoissonSampling(records=records, expected_batch_size=batch),
        clipping=FlatClipping(bound=1.0),
        mechanism=ComplexGaussian(std=std, sensitivity=Sensitivity(l2=1.0, adjacency=Adjacency.ADD_REMOVE, unit="record")),
        steps=steps,
        delta=delta,
    )


ORDINARY = _plan(records=713, batch=200, std=2.0, steps=400, delta=1e-5)
SPARSE = _plan(records=10**6, batch=100, std=0.7, steps=100_000, delta=1e-6)
WHOLE_DATA = _plan(records=713, batch=713, std=5.0, steps=100, delta=1e-5)


@pytest.mark.parametrize(("plan", "steps"), [(ORDINARY, 50), (ORDINARY, 399), (SPARSE, 10_000), (WHOLE_DATA, 1), (WHOLE_DATA, 50)])
def test_live_epsilon_is_the_one_that_a_certificate_of_those_steps_would_state(plan: ExecutionPlan, steps: int) -> None:
    EpsilonSpent(plan).after(steps)  # code and tables are loaded at the first question
    assert EpsilonSpent(plan).after(steps) == accountants.profile(plan.event_after(steps)).epsilon_upper(plan.delta)


@pytest.mark.parametrize("plan", [ORDINARY, SPARSE, WHOLE_DATA])
def test_the_last_steps_live_epsilon_is_the_runs(plan: ExecutionPlan) -> None:
    assert EpsilonSpent(plan).after(plan.steps) == accountants.profile(plan.event).epsilon_upper(plan.delta)


@pytest.mark.parametrize("steps", chosen([1, 2, 3, 5, 10, 100, 1000], [1, 2, 100, 1000]))
def test_live_epsilon_of_sparse_steps_is_never_below_the_truth_nor_above_the_whole_run(steps: int) -> None:
    live = EpsilonSpent(SPARSE)
    truth = accountants.profile(SPARSE.event_after(steps)).epsilon(SPARSE.delta).lower
    assert truth <= live.after(steps) <= live.after(SPARSE.steps)


class _Endless:
    """An accountant that answers in no time at all: only a limit ends it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked = 0

    def unsupported(self, _event: accountants.Event) -> None:
        return None

    def profile(self, _event: accountants.Event) -> accountants.PrivacyProfile:
        self.asked += 1
        while True:
            deadline.check()


def test_live_epsilon_does_not_wait_for_an_accountant_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    live = EpsilonSpent(SPARSE)
    endless = [_Endless(name) for name in TIGHT_ACCOUNTANTS]
    monkeypatch.setattr(accountants, "ACCOUNTANTS", (*endless, accountants.accountant_named(QUICK_ACCOUNTANT)))
    with deadline.time_limit(60.0):  # or the test would hang where no limit is set
        found = live.after(7)
    assert [accountant.asked for accountant in endless] == [2] * len(endless)
    quick = accountants.profile(SPARSE.event_after(7), accountant=QUICK_ACCOUNTANT).epsilon_upper(SPARSE.delta)
    assert found == min(quick, live.after(SPARSE.steps))


def test_live_epsilon_falls_back_where_no_tight_accountant_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zetadp.trainer.engine.spent.TIGHT_ACCOUNTANTS", ())
    quick = accountants.profile(ORDINARY.event_after(50), accountant="rdp").epsilon_upper(ORDINARY.delta)
    assert EpsilonSpent(ORDINARY).after(20) < EpsilonSpent(ORDINARY).after(50) == quick
