r"""``python -m benchmarks.audit [--runs 100 --broken 5]``: audits of honest and of broken trainings. Minutes: not in ``make bench``.

Honest runs must pass, all of them. Runs with half the noise, without clipping, or with noise on real parts alone must be found. Each is a
whole training of the service's own ``train``, with canaries.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from zetadp import accountants
from zetadp.mechanisms import ComplexGaussian, Gaussian, Laplace, NoiseSource
from zetadp.trainer import RuntimeSpec, ZetaDpSgd, load_train
from zetadp.trainer.engine.gradients import clipping
from zetadp.trainer.engine.noise import releasing
from zetadp.trainer.specs.report import RunReport

_release, _factors = releasing.release, clipping._factors
Noise = ComplexGaussian | Gaussian | Laplace


def audited(canaries: int | None) -> ZetaDpSgd:
    """Digits, in large lots for few steps; epsilon 3.3 at delta 1e-5."""
    spec = ZetaDpSgd.example().model_dump(mode="json")
    privacy = spec["privacy"] | {"epsilon": None, "noise_multiplier": 8.0}
    asked = {} if canaries is None else {"audit": {"kind": "canaries", "canaries": canaries}}
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


@contextmanager
def _broken(
    release: Callable[[Noise, Tensor, NoiseSource[Tensor]], Tensor], factors: Callable[[Tensor, float | Tensor], Tensor]
) -> Iterator[None]:
    releasing.release, clipping._factors = release, factors
    try:
        yield
    finally:
        releasing.release, clipping._factors = _release, _factors


BREAKS = {
    "honest": (_release, _factors),
    "half the noise": (_half, _factors),
    "no clipping": (_release, _unclipped),
    "noise on real parts alone": (_real_parts, _factors),
}


def rows(runs: int, broken: int, canaries: int) -> Iterator[str]:
    """One line for each way to train."""
    spec = audited(canaries)
    proven = accountants.profile(spec.plan().event).epsilon_upper(1e-5)
    yield f"{canaries} canaries, proven epsilon {proven:.4g} at delta 1e-5; 'found' counts runs that would get no certificate"
    for name, (release, factors) in BREAKS.items():
        with _broken(release, factors):
            reports = [run(spec) for _ in range(runs if name == "honest" else broken)]
        by_noise = sum(report.noise_test is not None and report.noise_test.status == "violated" for report in reports)
        audits = [report.audit for report in reports if report.audit is not None]
        by_canaries = sum(audit.status == "violated" for audit in audits)
        lower = statistics.median(audit.epsilon_lower_if_independent for audit in audits)
        least = min(audit.independent_p_value for audit in audits)
        yield (
            f"  {name:26} {len(reports):4} runs: found by the noise {by_noise}, by canaries {by_canaries}; "
            f"median lower bound {lower:.3g} if independent; smallest p-value {least:.2g}"
        )
    times: dict[int | None, list[float]] = {None: [], canaries: []}
    for _ in range(3):
        for asked, taken in times.items():
            start = time.process_time()
            run(audited(asked))
            taken.append(time.process_time() - start)
    with_, without = statistics.median(times[canaries]), statistics.median(times[None])
    yield f"  CPU time of a run with canaries over one without: {with_ / without:.2f}"


def main(arguments: list[str]) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.audit", description="Audits of honest and broken trainings.")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--broken", type=int, default=5)
    parser.add_argument("--canaries", type=int, default=2000)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for row in rows(options.runs, options.broken, options.canaries):
        sys.stdout.write(row + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
