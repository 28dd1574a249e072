r"""``make results``, or ``python -m benchmarks.results [NAME ...] [--seeds 3]``: every recipe's figures beside its paper's, as a page.

Each run is written to ``results.json`` when it is over, and what is there already isn't run again: it may be stopped at any time, and goes
on the next time. ``--seeds 1`` is the quick form. ``--estimate`` runs a few steps of each instead, and says how long all of them take.
The page, ``docs/results.md``, has a figure or a reason for every recipe.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NotRequired, TypedDict

import torch

from benchmarks.kept_memory import keep_memory
from benchmarks.recipes import DEFAULT, PLAIN, Device, plain_run, private_run
from zetadp import accountants
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.numerics.rounding import text_up
from zetadp.trainer.data import data_set_facts
from zetadp.trainer.recipes import RECIPES, Recipe
from zetadp.trainer.specs.algorithms.obfuscation import Obfuscation
from zetadp.trainer.specs.network_training import NetworkTraining, NoEvaluation

FILE = Path(__file__).with_name("results.json")
PAGE = Path(__file__).parent.parent / "docs" / "results.md"
FIGURES = ("accuracy", "psnr")
"""What the page shows, the first that a recipe has."""

FEW_STEPS, CLEARLY = 2, 1.5
"""Steps of the shortest run that an estimate is made from, and how many times longer the other one must take."""

ELSEWHERE = {
    "spof": "fitbit",
    "functional_mechanism": "fitbit",
    "dp_sgd_laplace": "fitbit",
    "digits_activations": "activations",
    "speech_activations": "activations --data speech",
}
"""What other benchmarks measure: beginnings of algorithms, and recipes' names."""

NOT_RUN = {"speech_activations": ", hours, and not run: its network, trained as `speech_commands`, is at chance with these data"}
"""What to say of those that weren't."""


INTRODUCTION = """\
This page shows what each [recipe](papers.md) reaches, beside what its paper prints. `make results` trains every recipe whose data it
finds, and writes this page; if it is stopped, it continues the next time. `make results SEEDS=1` trains each once.

**Private** and **without privacy** are accuracies on held-out records, or PSNR in decibels: the mean over seeds, and +- the standard
deviation over them where there were several. Without privacy means the same network, trained as usual on the same data. **The paper's
print** is the paper's own claim: it may be of other data, more of them, another network or another epsilon, and the recipe says which.
**Proven epsilon** is that of one private run, at the delta and for the unit beside it. **Steps** are those of a private run, with the
number of units that each step is expected to sample. **Time** is processor time on one thread, of one private run with its evaluations;
where an accelerator is named, the time it took there. An `obfuscation` recipe's figure is the accuracy on features as they are sent,
with the time of the attacks on them.
""".splitlines()


class Run(TypedDict):
    """One seed: metrics of the private and of the ordinary training, none of that where it is another network; the private one's time."""

    private: dict[str, float]
    plain: dict[str, float]
    seconds: float
    accelerator: NotRequired[str]


class Results(TypedDict):
    """Of one recipe; ``spec`` is a digest: with another spec the runs are of something else, and start anew; no epsilon, no guarantee.

    ``estimate``: processor seconds of one private run, from a few steps of it.
    """

    spec: str
    estimate: NotRequired[float]
    epsilon: float | None
    delta: float
    unit: str
    records: int
    runs: list[Run]


Kept = dict[str, Results]


def reason(recipe: Recipe) -> str | None:
    """Why a recipe has no figure here; None if it can be run."""
    for beginning, benchmark in ELSEWHERE.items():
        if recipe.spec.algorithm.startswith(beginning) or recipe.name == beginning:
            return f"measured by `python -m benchmarks.{benchmark}`{NOT_RUN.get(recipe.name, '')}"
    if not isinstance(recipe.spec, NetworkTraining | Obfuscation):
        return "trainings side by side, whose results a job of it shows"
    try:
        recipe.spec.data.sources()
    except InvalidParameter as error:
        return _not_here(error)
    return None


def _not_here(error: InvalidParameter) -> str:
    return f"not run: {error.field} must be {error.expected}"


def results_of(recipe: Recipe, kept: Kept) -> Results:
    """What is kept of the recipe, or new results without runs. Raises InvalidParameter where its data aren't as it needs them."""
    spec = recipe.spec
    digest = hashlib.sha256(spec.model_dump_json().encode()).hexdigest()
    if recipe.name in kept and kept[recipe.name]["spec"] == digest:
        return kept[recipe.name]
    plan = spec.plan()
    bound = accountants.profile(plan.event).epsilon(plan.delta).upper if plan.is_protected else None
    records = data_set_facts(spec.data).training_records
    kept[recipe.name] = Results(spec=digest, epsilon=bound, delta=plan.delta, unit=plan.unit, records=records, runs=[])
    return kept[recipe.name]


def measure(recipe: Recipe, kept: Kept, seeds: int, keep: Callable[[Kept], None], device: Device = "cpu") -> None:
    """Runs what is missing of one recipe, and keeps each run as it is over."""
    spec, own = recipe.spec, results_of(recipe, kept)
    while len(own["runs"]) < seeds:
        seed, clock = len(own["runs"]), time.process_time if device == "cpu" else time.monotonic
        # First the ordinary one: what is wrong with it shows before a private run is lost.
        plain = plain_run(spec, PLAIN.get(recipe.name, DEFAULT), seed, device) if isinstance(spec, NetworkTraining) else {}
        start = clock()
        private, _ = private_run(spec, device)
        seconds = clock() - start
        run = Run(private=private, plain=plain, seconds=seconds)
        if device != "cpu":
            run["accelerator"] = torch.cuda.get_device_name()
        own["runs"].append(run)
        keep(kept)


def estimate(recipe: Recipe, kept: Kept, keep: Callable[[Kept], None]) -> None:
    """Keeps how long a run takes by what more steps add to a short one; nothing where that was done, or a whole run was."""
    spec, own = recipe.spec, results_of(recipe, kept)
    if own["runs"] or "estimate" in own or not isinstance(spec, NetworkTraining):
        return
    more, shortest = 4 * FEW_STEPS, _seconds(spec, FEW_STEPS)
    while (longer := _seconds(spec, more)) < CLEARLY * shortest and more < spec.steps:
        more *= 4  # reading the data takes longer than these steps
    own["estimate"] = shortest + (spec.steps - FEW_STEPS) * max(0.0, longer - shortest) / (more - FEW_STEPS)
    keep(kept)


def _seconds(spec: NetworkTraining, steps: int) -> float:
    """Processor seconds of a run of so many steps, with any noise: neither calibrating to a guarantee nor evaluating is timed."""
    privacy = {**spec.privacy.model_dump(exclude={"epsilon"}), "noise_multiplier": 1.0}
    shorter = type(spec).model_validate({**dict(spec), "privacy": privacy, "steps": steps, "evaluation": NoEvaluation()})
    start = time.process_time()
    private_run(shorter)
    return time.process_time() - start


def page(recipes: Iterable[Recipe], kept: Mapping[str, Results], reasons: Mapping[str, str]) -> str:
    """The page as Markdown."""
    lines = [
        "# Results",
        "",
        *INTRODUCTION,
        "",
        "| recipe | the paper's print | private | proven epsilon | without privacy | steps | training records | seeds | time |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for recipe in recipes:
        found = kept.get(recipe.name)
        if (found is None or not found["runs"]) and recipe.measured and recipe.name not in reasons:
            lines.append(_measured_before(recipe, found))
            continue
        if found is None or not found["runs"]:
            why = reasons.get(recipe.name) or _not_yet(found)
            lines.append(f"| `{recipe.name}` | {_printed(recipe)} | {why} | | | {_steps(recipe)} | | | |")
            continue
        runs = found["runs"]
        private, plain = (_figure([run[side] for run in runs]) for side in ("private", "plain"))
        epsilon = _epsilon(found)
        last = f"{_steps(recipe)} | {found['records']} | {len(runs)} | {_times(runs)} |"
        lines.append(f"| `{recipe.name}` | {_printed(recipe)} | {private} | {epsilon} | {plain} | {last}")
    return "\n".join(lines) + "\n"


def _epsilon(found: Results) -> str:
    if found["epsilon"] is None:
        return "no guarantee"
    return f"{text_up(found['epsilon'], 4)} at {found['delta']:g}, one {_spelled(found['unit'])}"


def _measured_before(recipe: Recipe, found: Results | None) -> str:
    """The line of a recipe that carries a figure of its own, by ``benchmarks.recipes``, and wasn't run for this page."""
    of = recipe.measured[-1]
    spec = recipe.spec
    assert isinstance(spec, NetworkTraining)  # ``reason`` said so
    figure = f"{_number(of.metric, of.mean)} +- {_spread(of.metric, of.deviation)}, by `python -m benchmarks.recipes`"
    epsilon = f"{text_up(of.epsilon, 4)} at {spec.privacy.delta:g}, one {_spelled(spec.privacy.unit)}"
    seconds = "not measured" if found is None or "estimate" not in found else f"about {_time(found['estimate'])}, without evaluations"
    last = f"{_steps(recipe)} | {recipe.declared.training_records} | {of.runs} | {seconds} |"
    return f"| `{recipe.name}` | {_printed(recipe)} | {figure} | {epsilon} | in [Papers](papers.md#results) | {last}"


def _not_yet(found: Results | None) -> str:
    if found is None or "estimate" not in found:
        return "not run yet"
    return f"not run yet: one private run takes about {_time(found['estimate'])}, without its evaluations"


def _steps(recipe: Recipe) -> str:
    return f"{recipe.spec.steps}, each of {recipe.spec.expected_batch_size}" if isinstance(recipe.spec, NetworkTraining) else ""


def _time(seconds: float) -> str:
    """Of a processor, in the unit that suits it.

    >>> _time(45.2), _time(700.0), _time(20000.0)
    ('45 s', '12 min', '5.6 h')
    """
    return f"{seconds:.0f} s" if seconds < 100.0 else f"{seconds / 60.0:.0f} min" if seconds < 6000.0 else f"{seconds / 3600.0:.1f} h"


def _times(runs: Sequence[Run]) -> str:
    """On the processor, and on each accelerator, the mean."""
    by_place: dict[str, list[float]] = {}
    for run in runs:
        by_place.setdefault(run.get("accelerator", ""), []).append(run["seconds"])
    return ", ".join(f"{_time(statistics.fmean(of))}{f' on an {where}' if where else ''}" for where, of in sorted(by_place.items()))


def _printed(recipe: Recipe) -> str:
    printed = recipe.compared_result
    name = None if printed is None else next((name for name in FIGURES if name in printed.figures), None)
    if printed is None or name is None:
        return "-"
    return f"{_number(name, printed.figures[name])} ({printed.of}, {printed.where})"  # pyright: ignore[reportArgumentType]


def _figure(runs: list[dict[str, float]]) -> str:
    name = next((name for name in FIGURES if name in runs[0]), None)
    if name is None:
        return "-"
    values = [run[name] for run in runs]
    spread = f" +- {_spread(name, statistics.stdev(values))}" if len(values) > 1 else ""
    return _number(name, statistics.fmean(values)) + spread


def _number(name: str, value: float) -> str:
    return f"{value:.1f} dB" if name == "psnr" else f"{value:.3f}"


def _spread(name: str, value: float) -> str:
    """The same of a deviation, never as exactly 0, which no measurement shows.

    >>> _spread("accuracy", 0.0004), _spread("accuracy", 0.014)
    ('less than 0.001', '0.014')
    """
    least = 0.1 if name == "psnr" else 0.001
    return _number(name, value) if value >= least else f"less than {_number(name, least)}"


def _spelled(unit: str) -> str:
    return unit.replace("_", " ")


def read(file: Path) -> Kept:
    """What earlier calls kept."""
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def write(file: Path, kept: Kept) -> None:
    """All of it or nothing, also if it is interrupted."""
    beside = file.with_suffix(".part")
    beside.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(beside, file)


def main(arguments: list[str]) -> None:
    """Runs what is missing of the named recipes, or of all, and writes the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.results", description="Train recipes and write their page.")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--estimate", action="store_true")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--file", type=Path, default=FILE, help="where the figures are kept")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    kept = read(options.file)
    reasons = {recipe.name: why for recipe in RECIPES if (why := reason(recipe)) is not None}

    def keep(all_kept: Kept) -> None:
        write(options.file, all_kept)

    for recipe in RECIPES:
        if recipe.name in reasons or (options.names and recipe.name not in options.names):
            continue
        try:
            if options.estimate:
                estimate(recipe, kept, keep)
            else:
                measure(recipe, kept, options.seeds, keep, options.device)
        except InvalidParameter as error:
            reasons[recipe.name] = _not_here(error)
        sys.stdout.write(page([recipe], kept, reasons).splitlines()[-1] + "\n")
        sys.stdout.flush()
        PAGE.write_text(page(RECIPES, kept, reasons), encoding="utf-8")


if __name__ == "__main__":
    keep_memory("benchmarks.results")
    main(sys.argv[1:])
