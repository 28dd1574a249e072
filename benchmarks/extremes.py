r"""A thousand random points with extremes: are all answered, how long, how wide, without contradiction? The plan is docs/comparison.md.

``python -m benchmarks.extremes 200 300`` asks points 200 to 299. Answers are kept in build/comparison, with the version of the source
that gave them, so that a run that was stopped goes on; CPU times are those of the first asking.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from itertools import islice
from pathlib import Path

from benchmarks import comparison, truths
from benchmarks.compare import goal
from benchmarks.questions import CORNERS, EXTREME_COUNT, EXTREME_SEED, Question, extreme_points
from zetadp.accountants import deadline, profile
from zetadp.mechanisms.errors import PrivacyError

WIDEST, LONGEST_SECONDS = 1e-5, 1.0
SMALLEST_WIDTH = 1e-9
"""Of an epsilon near 0 a relative width makes no sense."""

TRUTHS, ROUTES = 60, 100
"""Points that are held against a truth and against each single route: the first of a shuffle with the same seed."""

ROUTE_NAMES = ("contour", "fft", "lattice", "rdp")
ROUTE_SECONDS = 5.0
ROOT = Path(__file__).parents[1]


def run() -> Iterator[str]:
    """The report's lines."""
    yield from _corners()
    yield from report(0, EXTREME_COUNT)


def _corners() -> Iterator[str]:
    """Of the corner list: how many brackets are narrow, and how many questions take at most a second."""
    narrow = quick = 0
    for question in CORNERS:
        start = time.process_time()
        found = comparison.answered(question)
        seconds = time.process_time() - start
        narrow, quick = narrow + (found.width <= WIDEST), quick + (seconds <= LONGEST_SECONDS)
        yield f"{question.text()}: [{found.lower:.8g}, {found.upper:.8g}] by {found.route}, width {found.width:.1e}, {seconds:.2f} s"
    yield goal(f"corners at most {WIDEST:g} wide", narrow, len(CORNERS), "")
    yield goal(f"corners in at most {LONGEST_SECONDS:g} s", quick, len(CORNERS), "")


def report(first: int, last: int) -> Iterator[str]:
    """Of these points."""
    asked = list(islice(extreme_points(), first, last))
    rows = [(question, _answer(question)) for question in asked]
    classes: dict[str, list[str]] = defaultdict(list)
    for question, found in rows:
        for fault in _faults(found):
            classes[fault].append(f"{question.text()}: {_told(found)}")
    times = sorted(found["seconds"] for _, found in rows)
    widths = sorted(_width(found) for _, found in rows if "upper" in found)
    yield f"{len(rows)} points, CPU s: {_spread(times, '.2g')}"
    yield f"width / epsilon: {_spread(widths, '.1e')}"
    for fault, points in sorted(classes.items()):
        yield f"{fault}: {len(points)}"
        yield from (f"    {point}" for point in points)
    answered = sum("upper" in found for _, found in rows)
    yield goal("extremes answered", 100.0 * answered / len(rows), 100.0, "%")
    yield goal(f"extremes answered and at most {WIDEST:g} wide", 100.0 * (answered - len(classes["wide"])) / len(rows), 100.0, "%")
    yield goal(f"extremes in at most {LONGEST_SECONDS:g} s", 100.0 * (1.0 - len(classes["slow"]) / len(rows)), 100.0, "%")
    yield from _contradictions([(question, found) for question, found in rows if "upper" in found])


def _answer(question: Question) -> dict[str, float | str]:
    file = truths.FOLDER / f"extremes-{_version()}.json"
    known = _KNOWN.setdefault(str(file), json.loads(file.read_text()) if file.exists() else {})
    key = repr(question)
    if key not in known:
        start = time.process_time()
        try:
            assert question.delta is not None
            bound = profile(question.event()).epsilon(question.delta)
            found: dict[str, float | str] = {"lower": bound.lower, "upper": bound.upper, "route": bound.route}
        except (PrivacyError, ArithmeticError) as refusal:
            found = {"refusal": f"{type(refusal).__name__}: {refusal}"}
        known[key] = {**found, "seconds": time.process_time() - start}
        truths.FOLDER.mkdir(parents=True, exist_ok=True)
        # At once, for another run that reads it meanwhile.
        unfinished = file.with_suffix(f".{os.getpid()}")
        unfinished.write_text(json.dumps(known))
        unfinished.replace(file)
    return known[key]


_KNOWN: dict[str, dict[str, dict[str, float | str]]] = {}


@cache
def _version() -> str:
    """Of the sources: what git would call accountants/ and mechanisms/ as they stand."""
    names = sorted((*ROOT.glob("accountants/**/*.[cp]*"), *ROOT.glob("mechanisms/**/*.[cp]*")))
    paths = "\n".join(str(name) for name in names if name.suffix in {".py", ".c"})
    command = ["git", "hash-object", "--stdin-paths"]
    hashes = subprocess.run(command, check=True, cwd=ROOT, input=paths, capture_output=True, text=True).stdout  # noqa: S603
    whole = subprocess.run(["git", "hash-object", "--stdin"], check=True, cwd=ROOT, input=hashes, capture_output=True, text=True)  # noqa: S607
    return whole.stdout[:12]


def _faults(found: dict[str, float | str]) -> Iterator[str]:
    if "refusal" in found:
        yield "refused"
    elif _width(found) > WIDEST and float(found["upper"]) - float(found["lower"]) > SMALLEST_WIDTH:
        yield "wide"
    if float(found["seconds"]) > LONGEST_SECONDS:
        yield "slow"


def _told(found: dict[str, float | str]) -> str:
    if "refusal" in found:
        return f"{found['refusal']} after {found['seconds']:.2f} s"
    return f"[{found['lower']:.8g}, {found['upper']:.8g}] by {found['route']}, width {_width(found):.1e}, {found['seconds']:.2f} s"


def _width(found: dict[str, float | str]) -> float:
    lower, upper = float(found["lower"]), float(found["upper"])
    return 0.0 if upper == lower else (upper - lower) / upper


def _spread(ordered: list[float], form: str) -> str:
    shares = {"median": 0.5, "p95": 0.95, "p99": 0.99, "most": 1.0}
    return ", ".join(f"{name} {ordered[int(share * (len(ordered) - 1))]:{form}}" for name, share in shares.items())


def _contradictions(rows: list[tuple[Question, dict[str, float | str]]]) -> Iterator[str]:
    """Some points held against truths, and some against each route alone."""
    shuffled = random.Random(EXTREME_SEED).sample(rows, len(rows))  # noqa: S311 - no secret
    held, checked, bad = 0, 0, []
    if truths.is_installed():
        for question, found in shuffled[:TRUTHS]:
            lower, upper = float(found["lower"]), float(found["upper"])
            truth = truths.find(question, 0.5 * (lower + upper))
            if truth.exact is not None:
                held += 1
                if not Decimal(lower) <= truth.exact <= Decimal(upper):
                    bad.append(f"    {question.text()}: {_told(found)}, truth {truth.value}")
    for question, found in shuffled[:ROUTES]:
        for name in ROUTE_NAMES:
            one = _alone(question, name)
            if one is not None:
                checked += 1
                if one[0] > float(found["upper"]) or one[1] < float(found["lower"]):
                    bad.append(f"    {question.text()}: {_told(found)}, {name} [{one[0]:.17g}, {one[1]:.17g}]")
    yield f"held against {held} truths of 50 digits and {checked} answers of single routes"
    yield from bad
    yield goal("extremes that contradict a truth or a route", len(bad), 0, "", at_most=True)


def _alone(question: Question, name: str) -> tuple[float, float] | None:
    """What one route says, or None where it says nothing in time."""
    assert question.delta is not None
    try:
        with deadline.time_limit(ROUTE_SECONDS):
            bound = profile(question.event(), accountant=name).epsilon(question.delta)
    except (PrivacyError, ArithmeticError):
        return None
    return bound.lower, bound.upper


if __name__ == "__main__":
    for text in report(int(sys.argv[1]), int(sys.argv[2])):
        sys.stdout.write(text + "\n")
