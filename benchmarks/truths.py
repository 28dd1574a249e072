r"""The truth of a question of the comparison, to 50 digits, computed when it is first asked for and kept in build/comparison.

``python -m benchmarks.truths`` computes those of the seven rows, the random rows and the corners that aren't there yet.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import sys
import time
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import NamedTuple

from benchmarks.questions import CORNERS, SEVEN, Question, random_rows
from zetadp.mechanisms import Adjacency

FOLDER = Path(__file__).parents[1] / "build" / "comparison"
SOURCES = ("truth.py", "truth_few.py")
LEAST_SHARE = 1e-6
"""The other direction's delta counts as smaller where a bound on it is smaller by this share."""


class Truth(NamedTuple):
    """The number with its digits, or why there is none; and the CPU seconds that it took."""

    value: str | None
    reason: str
    seconds: float

    @property
    def exact(self) -> Decimal | None:
        """The number."""
        return None if self.value is None else Decimal(self.value)


def is_installed() -> bool:
    """Whether truths can be computed."""
    return importlib.util.find_spec("flint") is not None


def find(question: Question, near: float) -> Truth:
    """From the file, or computed and kept there. ``near`` is where to begin."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    file = FOLDER / f"truths-{_version()}.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    key = repr(question)
    if key not in known:
        start = time.process_time()
        value, reason = _computed(question, near)
        known = json.loads(file.read_text()) if file.exists() else {}
        known[key] = [value, reason, time.process_time() - start]
        fresh = file.with_suffix(".new")
        fresh.write_text(json.dumps(known, indent=1) + "\n")
        fresh.replace(file)
    return Truth(*known[key])


@cache
def _version() -> str:
    """Of the sources that this run computes with."""
    return hashlib.sha256(b"".join(Path(__file__).with_name(name).read_bytes() for name in SOURCES)).hexdigest()[:16]


def _computed(question: Question, near: float) -> tuple[str | None, str]:
    from benchmarks import truth

    law = _law(question)
    if law is None:
        return None, "no contour for this kind of question"
    try:
        if question.epsilon is not None:
            at = truth.arb(truth.exact(question.epsilon))
            both = [_either(law, removed=removed, count=question.count).delta(at) for removed in (False, True)]
            return _text(max(both, key=lambda value: value.mid())), ""
        assert question.delta is not None
        return _text(_epsilon(law, truth.exact(question.delta), near)), ""
    except (truth.Unsettled, ArithmeticError, ValueError) as unsettled:
        return None, f"{type(unsettled).__name__}: {unsettled}"


def _law(question: Question):
    """The law of the losses, or None."""
    from benchmarks import truth

    if question.noise != "gaussian" or (question.sizes is not None and question.group > 1):
        return None
    if question.adjacency is Adjacency.REPLACE_ONE:
        # Of a fixed size the worse direction may change from release to release: another kind of question.
        plain = question.sizes is None and question.group == 1
        return truth.replaced(question.probability, question.multiplier, question.count) if plain else None
    if question.sizes is not None:
        return truth.poisson(truth.fmpq(*question.sizes), question.multiplier, question.count, far=2)
    return truth.poisson(truth.exact(question.probability), question.multiplier, question.count, question.group)


def _either(law, *, removed: bool, count: int):
    from benchmarks import truth, truth_few

    return truth_few.Few(law, removed=removed) if count <= 2 else truth.Direction(law, removed=removed)


def _epsilon(law, delta, near: float):
    """The larger of both directions' roots; 0 where delta at 0 is at most ``delta``."""
    from benchmarks import truth

    target = truth.arb(delta)
    if near == 0.0 and _is_zero(law, target):
        return truth.arb(0)
    root = _either(law, removed=False, count=law.count).epsilon(target, near)
    if law.below != ((1, 0),) or _is_smaller(law, root, target):
        return root
    other = _either(law, removed=True, count=law.count)
    if other.delta(root, 12) < target * (1 - truth.arb(LEAST_SHARE)):
        return root
    return max(root, other.epsilon(target, near), key=lambda value: value.mid())


def _is_zero(law, target) -> bool:
    """Whether delta(0), the same in both directions, is at most the target: it is at most the probability that any release differs."""
    if law.above[0][1] == 0 and law.below[0][1] == 0 and 1 - law.above[0][0] ** law.count <= target:
        return True
    from benchmarks import truth

    return bool(_either(law, removed=False, count=law.count).delta(truth.arb(0), 20) < target)


def _is_smaller(law, root, target) -> bool:
    """Whether the other direction's delta is surely smaller at the root: no loss is that large, or by Chernoff's bound."""
    from benchmarks import truth

    epsilon = float(root.mid())
    if law.above[0][1] == 0 and -law.count * truth.arb(law.above[0][0]).log() < root:
        return True
    direction = truth.Direction(law, removed=True)
    height = min(
        direction.log_moment(theta) - theta * epsilon + theta * math.log(theta / (1.0 + theta)) - math.log1p(theta)
        for theta in (10.0 ** (0.25 * k) for k in range(-8, 13))
        if theta * law.span < 2e3
    )
    return height < float(target.log().mid()) - 1e-3


def _text(value) -> str:
    return value.str(55, radius=False)


def main() -> None:
    """Computes what isn't there yet."""
    from zetadp.accountants import profile

    for question in (*SEVEN, *random_rows(), *CORNERS):
        near = 0.0
        if question.delta is not None:
            bound = profile(question.event()).epsilon(question.delta)
            near = 0.5 * (bound.lower + bound.upper)
        found = find(question, near)
        sys.stdout.write(f"{question.text():60s} {found.value or found.reason}   {found.seconds:.1f} s\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
