r"""The preparing process: reads one training's data set, calibrates its noise and prices its plan. It dies with its worker.

    python -m zetadp.process zetadp.app.worker.preparer --parent PID

Reads a request on standard input, writes the answer on standard output and ends with 0, whether there is a plan or a reason why there is
none. It releases nothing and leaves nothing behind but the facts of the data set, for the next one (``trainer/data/kept_facts.py``). It
runs with low priority, since its machine may be training meanwhile.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import traceback
from contextlib import nullcontext
from pathlib import Path
from typing import final

from zetadp.accountants.filters import Price
from zetadp.app.certificates.policy.judging import verdict_before
from zetadp.app.certificates.policy.schema import Policy
from zetadp.app.kit.errors import ServiceError
from zetadp.app.ledgers.ledger_definition import LedgerDefinition
from zetadp.app.ledgers.pricing import price_of
from zetadp.app.submissions.planning import plan_of
from zetadp.mechanisms.base import Positive, Value
from zetadp.mechanisms.errors import PrivacyError
from zetadp.trainer import AnyPlan, AnyTrainingSpec
from zetadp.trainer.data.kept_facts import kept_in
from zetadp.trainer.parent import die_with_parent

DONE, ORPHANED = 0, 4
NICENESS = 10


@final
class PreparingRequest(Value):
    r"""What a worker asks.

    Attributes:
      ledger: whose price for the plan is wanted; None without one.
      pricing_seconds: how long computing that price may take.
      policy: of the operator, which the plan has to meet; None without one.
      facts_dir: where the facts of data sets are kept.
    """

    spec: AnyTrainingSpec
    ledger: LedgerDefinition | None
    pricing_seconds: Positive
    policy: Policy | None = None
    facts_dir: Path | None


@final
class Prepared(Value):
    """The plan and, if a ledger was named, its price; or, without a plan, why there is none."""

    plan: AnyPlan | None = None
    price: Price | None = None
    refused: str | None = None


def prepared(request: PreparingRequest) -> Prepared:
    """The answer. Errors of ours are among the answers, with the texts that a request would be refused with."""
    try:
        with nullcontext() if request.facts_dir is None else kept_in(request.facts_dir):
            plan = plan_of(request.spec)
        if request.policy is not None:
            judged = verdict_before(request.policy, request.spec, plan, request.ledger)
            if not judged.accepted:
                return Prepared(refused=f"refused by this service's policy {judged.policy!r}: {'; '.join(judged.failing)}")
        price = None if request.ledger is None else price_of(request.ledger, plan.event, request.pricing_seconds)
    except (PrivacyError, ServiceError) as error:
        return Prepared(refused=" ".join(str(error).split()))
    except OSError as error:
        return Prepared(refused=f"{error.strerror or type(error).__name__}: {error.filename}")
    return Prepared(plan=plan, price=price)


def main(arguments: list[str]) -> int:
    """Answers one request and returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m zetadp.process zetadp.app.worker.preparer", description="Plan one training.")
    parser.add_argument("--parent", type=int, required=True, help="id of the process that this one must not outlive")
    options = parser.parse_args(arguments)
    if not die_with_parent(options.parent, signal.SIGKILL):
        sys.stderr.write(f"process {options.parent} isn't the parent: not started\n")
        return ORPHANED
    os.nice(NICENESS)
    # What libraries print belongs to the log, not into the answer.
    answer = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        found = prepared(PreparingRequest.model_validate_json(sys.stdin.buffer.read()))
    except Exception as error:  # the trace is for the log, its type for the user
        traceback.print_exc()
        found = Prepared(refused=f"internal error ({type(error).__name__}); the traceback is in the job's log")
    with os.fdopen(answer, "w", encoding="utf-8") as out:
        out.write(found.model_dump_json())
    return DONE
