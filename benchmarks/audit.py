r"""``python -m benchmarks.audit [--kind canaries --runs 100 --broken 5]``: audits of honest and of broken trainings.

Takes minutes: not in ``make bench``.
Honest runs must pass, all of them. Runs with half the noise, without clipping, with a bound or samples 1.5 times too large, with noise on
real parts alone, with noise that comes back or is taken back, or with fixed batches must be found. Each is a whole training of the
service's own ``train``, with marks or canaries.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zetadp import accountants
from zetadp.mechanisms import ComplexGaussian, Gaussian, Laplace, NoiseSource
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import RuntimeSpec, ZetaDpSgd, load_train
from zetadp.trainer.engine import network_run as training
from zetadp.trainer.engine.gradients import clipping, sampling
from zetadp.trainer.engine.noise import releasing
from zetadp.trainer.specs.report import RunReport

_release, _factors, _sample = releasing.release, clipping._factors, sampling.poisson_sample
_check = training.check_contributions
Noise = ComplexGaussian | Gaussian | Laplace


def audited(kind: str, canaries: int | None) -> ZetaDpSgd:
    """Digits, in large lots for few steps; epsilon 3.3 at delta 1e-5."""
    spec = ZetaDpSgd.example().model_dump(mode="json")
    privacy = spec["privacy"] | {"epsilon": None, "noise_multiplier": 8.0}
    asked = {} if canaries is None else {"audit": {"kind": kind, "canaries": canaries}}
    return ZetaDpSgd.model_validate(spec | asked | {"privacy": privacy, "steps": 40, "expected_batch_size": 700})


def run(spec: ZetaDpSgd) -> RunReport:
    """One training."""
    runtime = RuntimeSpec(device="cpu", threads=1, checkpoint_seconds=600.0)
    with tempfile.TemporaryDirectory() as folder:
        return load_train(spec)(spec, spec.plan(), runtime, Path(folder), report=lambda _event: None, should_stop=lambda: False)


def _half(mechanism: Noise, vector: Tensor, source: NoiseSource[Tensor]) -> Tensor:
    return _release(mechanism.scaled(0.5), vector, source)


def _real_parts(mechanism: Noise, vector: Tensor, source: NoiseSource[Tensor]) -> Tensor:
    released = _release(mechanism, vector, source).clone()
    released[1::2] = vector[1::2]
    return released


def _unclipped(norms: Tensor, _aims: float | Tensor) -> Tensor:
    return torch.ones_like(norms)


def _half_too_long(norms: Tensor, aims: float | Tensor) -> Tensor:
    return 1.5 * _factors(norms, aims)


def _too_often(units: int, probability: float, stream: Any) -> NDArray[np.intp]:
    return _sample(units, min(1.0, 1.5 * probability), stream)


def _fixed(units: int, probability: float, _stream: object) -> NDArray[np.intp]:
    return np.arange(round(probability * units))


class _Returning:
    """Every second release has the noise of the one before, times this."""

    def __init__(self, sign: float) -> None:
        self._sign, self._last = sign, None

    def __call__(self, mechanism: Noise, vector: Tensor, source: NoiseSource[Tensor]) -> Tensor:
        before, self._last = self._last, None
        if before is not None and len(before) == len(vector):
            return vector + self._sign * before
        released = _release(mechanism, vector, source)
        self._last = released - vector
        return released


@contextmanager
def _broken(release: object = _release, factors: object = _factors, sample: object = _sample) -> Iterator[None]:
    releasing.release, clipping._factors, sampling.poisson_sample = release, factors, sample
    if factors is not _factors:
        # It would refuse the run before its first step.
        training.check_contributions = lambda *_: None
    try:
        yield
    finally:
        releasing.release, clipping._factors, sampling.poisson_sample = _release, _factors, _sample
        training.check_contributions = _check


USUAL = {"marks": 30_000, "canaries": 1000}
BREAKS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "honest": _broken,
    "half the noise": lambda: _broken(_half),
    "no clipping": lambda: _broken(factors=_unclipped),
    "a bound 1.5 times too long": lambda: _broken(factors=_half_too_long),
    "noise on real parts alone": lambda: _broken(_real_parts),
    "noise that comes back": lambda: _broken(_Returning(1.0)),
    "noise that is taken back": lambda: _broken(_Returning(-1.0)),
    "fixed batches": lambda: _broken(sample=_fixed),
    "samples 1.5 times too large": lambda: _broken(sample=_too_often),
}


def _refused(spec: ZetaDpSgd, as_broken: Callable[[], AbstractContextManager[None]]) -> bool:
    """Whether the run ends before its first step, as it does unless the table below lets it go on."""
    with as_broken():
        training.check_contributions = _check
        try:
            run(spec)
        except InvalidParameter:
            return True
    return False


def rows(kind: str, runs: int, broken: int, canaries: int) -> Iterator[str]:
    """One line for each way to train."""
    spec = audited(kind, canaries)
    proven = accountants.profile(spec.plan().event).epsilon_upper(1e-5)
    yield f"{canaries} {kind}, proven epsilon {proven:.4g} at delta 1e-5; 'found' counts runs that would get no certificate"
    for name, as_broken in BREAKS.items():
        reports: list[RunReport] = []
        for _ in range(runs if name == "honest" else broken):
            with as_broken():
                reports.append(run(spec))
        refused = " (refused before its first step, if the check of contributions is left in)" if _refused(spec, as_broken) else ""
        by_noise = sum(report.noise_test is not None and report.noise_test.status == "violated" for report in reports)
        by_samples = sum(report.sample_test is not None and report.sample_test.status == "violated" for report in reports)
        audits = [report.audit for report in reports if report.audit is not None]
        by_audit = sum(audit.status == "violated" for audit in audits)
        free = sorted(audit.epsilon_lower for audit in audits)
        independent = statistics.median(audit.epsilon_lower_if_independent for audit in audits)
        yield (
            f"  {name:26} {len(reports):4} runs: found by the noise {by_noise}, by samples {by_samples}, by {kind} {by_audit}; epsilon at "
            f"least {free[0]:.3g} to {free[-1]:.3g}, median {statistics.median(free):.3g}; median {independent:.3g} if independent{refused}"
        )
    times: dict[int | None, list[float]] = {None: [], canaries: []}
    for _ in range(3):
        for asked, taken in times.items():
            start = time.process_time()
            run(audited(kind, asked))
            taken.append(time.process_time() - start)
    with_, without = statistics.median(times[canaries]), statistics.median(times[None])
    yield f"  CPU time of a run with {kind} over one without: {with_ / without:.2f}"


def main(arguments: list[str]) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.audit", description="Audits of honest and broken trainings.")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--broken", type=int, default=5)
    parser.add_argument("--kind", choices=("marks", "canaries"), default="marks")
    parser.add_argument("--canaries", type=int, help="how many a run has; by default 30000 marks, 1000 canaries")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for row in rows(options.kind, options.runs, options.broken, options.canaries or USUAL[options.kind]):
        sys.stdout.write(row + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
