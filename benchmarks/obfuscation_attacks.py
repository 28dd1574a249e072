r"""What attacks find out about obfuscated digits: the paper's method at three weights of its critic, and the sound form against its noise.

1200 public digits train network and attackers, 597 others are attacked; of the sound form 400 of the public ones. Every network is LeNet
cut in three, every figure the job's own, with a 95 % interval over victims and, behind the bar, what a guess reaches.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from zetadp.mechanisms.base import Adjacency
from zetadp.trainer import RuntimeSpec, load_train
from zetadp.trainer.data.digits import Digits
from zetadp.trainer.specs.algorithms.obfuscation import Obfuscation
from zetadp.trainer.specs.descent import Adam
from zetadp.trainer.specs.findings.attacks import AttackEffort, AttackFigure, AttackFindings
from zetadp.trainer.specs.network_training import NoEvaluation, PublicHeldOut
from zetadp.trainer.specs.obfuscation.architectures import LeNet
from zetadp.trainer.specs.obfuscation.methods import AdditionalLayers, FeaturePrivacy, Method, NoisyRotation, Rotation
from zetadp.trainer.specs.report import RunReport

DATA = Digits(split_seed=0, test_fraction=0.332, split_by="position")
EFFORT = AttackEffort(steps=1000, inversion_steps=600, property_steps=300, learning_rate=3e-3)
STEPS = 1000
WEIGHTS = (0.0, 1.0, 10.0)
TARGET = 0.1
"""Radians, of the learned attack's mean error under the paper's method."""

CURVE = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
VICTIMS = 400


def run() -> Iterator[str]:
    """The report's lines."""
    for weight in WEIGHTS:
        report = _job(Rotation(adversarial_weight=weight))
        yield f"the paper's method, critic's weight {weight:g}: accuracy with the key {_accuracy(report)}"
        yield from _table(_findings(report).figures)
        yield _verdict(_findings(report))
    report = _job(AdditionalLayers())
    yield f"baseline with additional layers, features as they are: accuracy {_accuracy(report)}"
    yield from _table(_findings(report).figures)
    privacy = FeaturePrivacy(adjacency=Adjacency.REPLACE_ONE, unit="image", delta=1e-5, noise_multiplier=CURVE[0])
    findings = _findings(_job(NoisyRotation(clipping_norm=1.0, queries=1, privacy=privacy)))
    for point in findings.curve:
        yield f"sound form, noise multiplier {point.noise_multiplier:g}, mu {1.0 / point.noise_multiplier:.4g} a query:"
        yield from _table(point.figures)


def _job(method: Method) -> RunReport:
    sound = isinstance(method, NoisyRotation)
    spec = Obfuscation(
        data=DATA,
        network=LeNet(),
        method=method,
        optimizer=Adam(learning_rate=1e-3),
        batch_size=64,
        steps=STEPS,
        evaluation=NoEvaluation() if sound else PublicHeldOut(),
        evaluation_records=VICTIMS if sound else None,
        attacks=EFFORT,
        curve=CURVE if sound else (),
        seed=1,
        reproducible=True,
    )
    with TemporaryDirectory() as folder:
        return load_train(spec)(spec, spec.plan(), RuntimeSpec(threads=1), Path(folder), report=lambda _: None, should_stop=lambda: False)


def _findings(report: RunReport) -> AttackFindings:
    assert report.attacks is not None
    return report.attacks


def _accuracy(report: RunReport) -> str:
    return f"{(report.metrics or {})['accuracy']:.4f}"


def _table(figures: tuple[AttackFigure, ...]) -> Iterator[str]:
    for found in figures:
        interval = f"{found.value:.4f} ({found.lower:.4f} .. {found.upper:.4f})"
        yield f"  {found.attack:34s} {found.measure:36s} {interval} | {found.chance:.4f} of {found.trials}"


def _verdict(findings: AttackFindings) -> str:
    found = {(figure.attack, figure.measure): figure for figure in findings.figures}
    error = found["angle_by_learned_quadratures", "mean_error_radians"]
    pairs = found["candidate_pair", "true_positive_rate"]
    met = "met" if error.upper < TARGET and pairs.value == 1.0 else "MISSED"
    return f"  target: mean error below {TARGET} rad and every pair found: {met} ({error.value:.4f}, {pairs.value:.4f})"
