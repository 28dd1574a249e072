"""Audits of whole runs: honest ones pass, and half the noise, no clipping and noise on real parts alone are found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file
from torch import Tensor

from tests.selection import chosen, thinned
from tests.trainer.broken_noise import FAR, REPEATING, Release
from zetadp import accountants
from zetadp.mechanisms import ComplexGaussian, Gaussian, Laplace, NoiseSource
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import FederatedZetaDpSgd, RuntimeSpec, ZetaDpSgd, load_train
from zetadp.trainer.engine import network_run as training
from zetadp.trainer.engine.gradients import clipping, sampling
from zetadp.trainer.engine.gradients.sampling import SiteSampler
from zetadp.trainer.engine.loop import TrainingState
from zetadp.trainer.engine.membership import at_one_place
from zetadp.trainer.engine.noise import releasing
from zetadp.trainer.engine.run import Attempt, RunOptions, begin
from zetadp.trainer.errors import TrainingStopped
from zetadp.trainer.specs.algorithms.dp_sgd_laplace import DpSgdLaplace
from zetadp.trainer.specs.algorithms.functional_mechanism import FunctionalMechanism
from zetadp.trainer.specs.algorithms.spectral_dp import SpectralDp
from zetadp.trainer.specs.algorithms.spof import Spof
from zetadp.trainer.specs.findings.runs import SampleFindings
from zetadp.trainer.specs.report import CheckpointWritten, RunReport, TrainingEvent

Algorithm = type[ZetaDpSgd] | type[FederatedZetaDpSgd] | type[SpectralDp]
Audited = ZetaDpSgd | FederatedZetaDpSgd | SpectralDp

RUNTIME = RuntimeSpec(threads=1, checkpoint_seconds=600.0)
CANARIES = 600
RELEASE = releasing.release


def audited(kind: Algorithm = ZetaDpSgd, noise_multiplier: float = 4.0, **changes: Any) -> Audited:
    """The algorithm's example with canaries and much noise, which a short run has enough of."""
    spec = kind.example().model_dump(mode="json")
    spec["privacy"] = spec["privacy"] | {"epsilon": None, "noise_multiplier": noise_multiplier}
    fewer = {"steps": 40, "expected_batch_size": 150, "audit": {"kind": "canaries", "canaries": CANARIES}}
    # From a seed: what an audit finds is a matter of chance.
    return kind.model_validate(spec | fewer | {"reproducible": True, "seed": 3} | changes)


def run(spec: Audited, folder: Path, *, should_stop: Callable[[], bool] = lambda: False, **runtime: Any) -> RunReport:
    settings = RuntimeSpec.model_validate(RUNTIME.model_dump() | runtime)
    return load_train(spec)(spec, spec.plan(), settings, folder, report=lambda _event: None, should_stop=should_stop)


def half_the_noise(mechanism: ComplexGaussian | Gaussian | Laplace, vector: Tensor, source: NoiseSource[Tensor]) -> Tensor:
    return RELEASE(mechanism.scaled(0.5), vector, source)


def noise_on_real_parts(mechanism: ComplexGaussian | Gaussian | Laplace, vector: Tensor, source: NoiseSource[Tensor]) -> Tensor:
    released = RELEASE(mechanism, vector, source).clone()
    released[1::2] = vector[1::2]
    return released


def unclipped(norms: Tensor, _aims: float | Tensor) -> Tensor:
    return torch.ones_like(norms)


@pytest.mark.parametrize("kind", chosen([ZetaDpSgd, FederatedZetaDpSgd, SpectralDp], [FederatedZetaDpSgd]), ids=lambda kind: kind.__name__)
def test_an_honest_run_is_consistent_and_its_guarantee_is_that_of_the_run_without_canaries(kind: Algorithm, tmp_path: Path) -> None:
    spec = audited(kind, expected_batch_size=60)
    report = run(spec, tmp_path)
    assert report.noise_test is not None
    assert report.noise_test.status == "consistent"
    assert report.noise_test.numbers >= 40 * 100
    assert report.audit is not None
    assert report.audit.status == "consistent"
    assert report.audit.canaries == CANARIES
    assert 240 <= report.audit.members <= 360
    plain = kind.model_validate(spec.model_dump() | {"audit": None})
    assert plain.plan() == spec.plan()
    assert report.event == plain.plan().event
    proven = accountants.profile(report.event).epsilon_upper(1e-5)
    # The federated run's canaries are weighed against four nodes' noise, the bound is for one.
    assert report.audit.epsilon_lower_if_independent < proven


@pytest.mark.slow
def test_canaries_see_a_good_part_of_what_is_proved(tmp_path: Path) -> None:
    spec = audited(expected_batch_size=700, noise_multiplier=8.0, audit={"kind": "canaries", "canaries": 1000})
    report = run(spec, tmp_path)
    assert report.audit is not None
    proven = accountants.profile(report.event).epsilon_upper(1e-5)
    assert 0.3 * proven < report.audit.epsilon_lower_if_independent < proven


def test_half_the_noise_is_found_by_the_test_of_the_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releasing, "release", half_the_noise)
    report = run(audited(audit=None), tmp_path)
    assert report.audit is None
    assert report.noise_test is not None
    assert report.noise_test.status == "violated"


def _autoencoder() -> DpSgdLaplace:
    spec = DpSgdLaplace.example().model_dump(mode="json")
    return DpSgdLaplace.model_validate(spec | {"method": spec["method"] | {"expected_batch_size": 200}, "steps": 40})


@pytest.mark.parametrize("spec", thinned([audited(audit=None), _autoencoder()], every=2), ids=["network", "autoencoder"])
def test_fixed_batches_are_found_by_the_test_of_samples(
    spec: ZetaDpSgd | DpSgdLaplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ran(name: str) -> RunReport:
        return load_train(spec)(spec, spec.plan(), RUNTIME, tmp_path / name, report=lambda _: None, should_stop=lambda: False)

    steps, right = spec.plan().steps, ran("right")
    assert right.sample_test == SampleFindings(status="consistent", samples=steps)
    monkeypatch.setattr(sampling, "poisson_sample", lambda units, probability, _stream: np.arange(round(probability * units)))
    broken = ran("broken")
    assert broken.sample_test == SampleFindings(status="violated", samples=steps)
    # Nothing else tells.
    assert broken.noise_test == right.noise_test


def test_half_the_noise_is_found_by_canaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releasing, "release", half_the_noise)
    # Large lots, so that members stand out: the rarer a canary is drawn, the more of them it takes.
    report = run(audited(expected_batch_size=700, noise_multiplier=8.0, audit={"kind": "canaries", "canaries": 3000}), tmp_path)
    assert report.audit is not None
    assert report.audit.status == "violated"
    assert report.audit.epsilon_lower_if_independent > accountants.profile(report.event).epsilon_upper(1e-5)


@pytest.mark.slow
def test_a_missing_clip_is_found_by_canaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clipping, "_factors", unclipped)
    # Which would refuse the run before its first step.
    monkeypatch.setattr(training, "check_contributions", lambda *_: None)
    report = run(audited(), tmp_path)
    assert report.noise_test is not None
    assert report.noise_test.status == "consistent"
    assert report.audit is not None
    assert report.audit.status == "violated"


SAMPLERS: dict[str, dict[str, Any]] = {
    "fixed size": {"sampling": {"kind": "fixed_size"}},
    "allocation": {"sampling": {"kind": "random_allocation"}},
    "cyclic": {"sampling": {"kind": "cyclic_poisson", "groups": 3, "seed": 2}},
    "bands": {"sampling": {"kind": "cyclic_poisson", "groups": 3, "seed": 2}, "noise": {"kind": "banded", "bands": 3}},
    "allocated bands": {"sampling": {"kind": "cyclic_allocation", "groups": 3, "seed": 2}, "noise": {"kind": "banded", "bands": 3}},
}
BUFFERS: dict[str, Any] = {
    "sampling": {"kind": "cyclic_poisson", "groups": 4, "seed": 2},
    "noise": {"kind": "buffered", "buffers": [{"weight": 0.8, "decay": 0.8}]},
}
INVERSE: dict[str, Any] = BUFFERS | {"noise": {"kind": "banded_inverse", "bands": 3}}
VARIED = {"augmentation": {"copies": 2, "phase": True}}
DROPOUT = {
    "model": {
        "kind": "sequential",
        "numbers": "complex",
        "layers": [{"kind": "flatten"}, {"kind": "dropout", "probability": 0.1}, {"kind": "linear", "outputs": 10}],
        "head": "magnitude",
    }
}
OTHERS = {**SAMPLERS, "variants": VARIED, "masks": DROPOUT, "variants and masks": VARIED | DROPOUT | {"steps": 100}}


@pytest.mark.parametrize("name", chosen(OTHERS, ["cyclic"]))
def test_a_missing_clip_is_found_in_every_kind_of_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = run(audited(**OTHERS[name]), tmp_path / "honest").audit
    monkeypatch.setattr(clipping, "_factors", unclipped)
    monkeypatch.setattr(training, "check_contributions", lambda *_: None)
    broken = run(audited(**OTHERS[name]), tmp_path / "broken").audit
    assert honest is not None
    assert broken is not None
    assert (honest.status, broken.status) == ("consistent", "violated")


@pytest.mark.parametrize("changes", thinned([{}, SAMPLERS["bands"], BUFFERS, INVERSE], every=3))
def test_noise_that_comes_back_is_found_whether_or_not_noise_is_correlated(
    changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for broken in (None, "every third noise", "slowly changing", "swinging", "equal halves"):
        if broken is not None:
            monkeypatch.setattr(releasing, "release", Release((FAR | REPEATING)[broken]))
        report = run(audited(audit=None, **changes), tmp_path / str(broken))
        assert report.noise_test is not None
        assert report.noise_test.status == ("consistent" if broken is None else "violated")


def begun(spec: Audited, folder: Path) -> Attempt:
    """A run whose steps the test takes."""
    assert isinstance(spec, ZetaDpSgd)
    options = RunOptions(RUNTIME, folder, report=lambda _event: None, should_stop=lambda: False)
    return begin(training.NoisyGradients(spec, spec.plan(), at_one_place), options, executed=0)


@pytest.mark.parametrize("name", thinned(["fixed size", "allocation", "cyclic"], every=3))
def test_canaries_that_take_part_are_sampled_as_everybody_is(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples: list[Tensor] = []
    original = SiteSampler.sample

    def sample(sampler: SiteSampler, *given: Any) -> Tensor:
        samples.append(original(sampler, *given))
        return samples[-1]

    monkeypatch.setattr(SiteSampler, "sample", sample)
    attempt = begun(audited(**SAMPLERS[name]), tmp_path)
    state = attempt.start.state
    units, members = 710, torch.nonzero(state.canaries["members"]).squeeze(1)
    for _ in range(8):
        state = attempt.prepared.step(state)
    drawn = [sample[sample >= units] - units for sample in samples]
    assert not set(torch.cat(drawn).tolist()) - set(members.tolist())
    match name:
        case "fixed size":
            assert {len(sample) for sample in samples} == {150}
            # Hypergeometric: 150 of 710 units and the canaries that take part, eight times; six deviations.
            share = len(members) / (710 + len(members))
            assert abs(len(torch.cat(drawn)) - 1200 * share) < 6.0 * (1200 * share * (1.0 - share)) ** 0.5
        case "allocation":
            for first in (0, 4):
                assert torch.equal(torch.cat(drawn[first : first + 4]).sort().values, members)
        case _:
            assert all(set((one % 3).tolist()) == {step % 3} for step, one in enumerate(drawn, 1))


@pytest.mark.parametrize("name", thinned(["variants", "masks", "variants and masks"], every=3))
def test_nothing_of_a_seeded_run_depends_on_torchs_own_generator(name: str, tmp_path: Path) -> None:
    attempt = begun(audited(**OTHERS[name]), tmp_path)
    ends: list[TrainingState] = []
    for seed in (1, 2):
        state = attempt.start.state
        for _ in range(2):
            torch.manual_seed(seed)
            state = attempt.prepared.step(state)
        ends.append(state)
    assert torch.equal(ends[0].parameters, ends[1].parameters)
    assert torch.equal(ends[0].canaries["scores"], ends[1].canaries["scores"])
    assert bool(ends[0].canaries["scores"].any())


def test_noise_on_the_real_parts_alone_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releasing, "release", noise_on_real_parts)
    report = run(audited(audit=None), tmp_path)
    assert report.noise_test is not None
    assert report.noise_test.status == "violated"


MARKS = {"kind": "marks", "canaries": 30_000}
ADAPTIVE = {"kind": "adaptive", "quantile": 0.5, "learning_rate": 0.2, "count_share": 0.1}
SURE = {"expected_batch_size": 700, "noise_multiplier": 8.0, "audit": MARKS}
MARKED: dict[str, tuple[Algorithm, dict[str, Any]]] = {
    "poisson": (ZetaDpSgd, SURE),
    "adaptive": (ZetaDpSgd, SURE | {"clipping": ADAPTIVE}),
    "per layer": (ZetaDpSgd, SURE | {"clipping": {"kind": "per_layer"}}),
    "allocation": (ZetaDpSgd, {"audit": MARKS} | SAMPLERS["allocation"]),
    "cyclic": (ZetaDpSgd, {"audit": MARKS} | SAMPLERS["cyclic"]),
    "federated": (FederatedZetaDpSgd, {"audit": MARKS, "expected_batch_size": 160}),
}


@pytest.mark.parametrize("name", chosen(MARKED, ["cyclic"]))
def test_marks_show_half_of_what_is_proved_without_any_assumption(name: str, tmp_path: Path) -> None:
    kind, changes = MARKED[name]
    report = run(audited(kind, **changes), tmp_path)
    proven = accountants.profile(report.event).epsilon_upper(1e-5)
    assert report.audit is not None
    assert report.noise_test is not None
    assert report.sample_test is not None
    assert report.audit.status == report.noise_test.status == report.sample_test.status == "consistent"
    assert (report.audit.kind, report.audit.canaries) == ("marks", 30_000)
    found = [report.audit.epsilon_lower, report.audit.epsilon_lower_if_gaussian, report.audit.epsilon_lower_if_independent]
    assert 0.5 * proven < found[0]
    assert found == sorted(found)
    assert found[-1] < proven


BROKEN: dict[str, tuple[Any, str, Any]] = {
    "half the noise": (releasing, "release", half_the_noise),
    "noise on real parts": (releasing, "release", noise_on_real_parts),
    "no clipping": (clipping, "_factors", unclipped),
}


@pytest.mark.parametrize("name", chosen(BROKEN, ["half the noise"]))
def test_what_is_wrong_is_found_by_marks_alone(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, attribute, broken = BROKEN[name]
    monkeypatch.setattr(place, attribute, broken)
    monkeypatch.setattr(training, "check_contributions", lambda *_: None)
    report = run(audited(**SURE), tmp_path)
    assert report.audit is not None
    assert report.audit.status == "violated"
    assert report.audit.epsilon_lower_if_independent > accountants.profile(report.event).epsilon_upper(1e-5)


@pytest.mark.parametrize(
    "changes", [SAMPLERS["fixed size"], SAMPLERS["bands"], {"sampling": {"kind": "truncated_poisson", "largest_batch": 200}}]
)
def test_marks_are_refused_where_they_would_crowd_samples_or_noise_is_correlated(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter, match="audit must be"):
        audited(audit=MARKS, **changes).plan()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["canaries", "marks"])
def test_a_run_taken_up_again_keeps_coins_and_scores(kind: str, tmp_path: Path) -> None:
    spec = audited(audit={"kind": kind, "canaries": CANARIES})
    whole = run(spec, tmp_path / "whole")
    steps: list[TrainingEvent] = []
    settings = RuntimeSpec.model_validate(RUNTIME.model_dump() | {"checkpoint_seconds": 0.0})

    def enough() -> bool:
        return any(isinstance(event, CheckpointWritten) and event.step >= 20 for event in steps)

    with pytest.raises(TrainingStopped):
        load_train(spec)(spec, spec.plan(), settings, tmp_path / "parts", report=steps.append, should_stop=enough)
    again = run(spec, tmp_path / "parts")
    assert again.resumptions == 1
    assert again.audit == whole.audit
    kept, uninterrupted = (load_file(tmp_path / name / "checkpoint.safetensors") for name in ("parts", "whole"))
    for name in ("canaries.members", "canaries.scores"):
        assert torch.equal(kept[name], uninterrupted[name])
    # Nothing of the noise itself: beside a release it would tell of the data.
    assert sorted(name for name in kept if not name.startswith("optimizer.")) == ["canaries.members", "canaries.scores", "parameters"]
    # The noise of the first twenty steps was another attempt's.
    assert again.noise_test is not None
    assert whole.noise_test is not None
    assert again.noise_test.numbers < whole.noise_test.numbers


def test_several_processes_are_refused_with_canaries(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="1 for a run with canaries"):
        run(audited(), tmp_path, processes=2)


@pytest.mark.parametrize("canaries", thinned([99, 10_001, 0, -5, 1.5, "many"], every=2))
def test_other_numbers_of_canaries_are_refused(canaries: object) -> None:
    with pytest.raises(ValidationError, match="audit"):
        audited(audit={"kind": "canaries", "canaries": canaries})


def test_a_spec_without_an_audit_has_the_bytes_it_always_had() -> None:
    assert "audit" not in ZetaDpSgd.example().model_dump(mode="json")


def _spof(mechanism: str) -> Spof:
    spec = Spof.example().model_dump(mode="json")
    spec["method"]["mechanism"] = mechanism
    if mechanism == "local_gaussian":
        spec["method"]["privacy"]["delta"] = 1e-5
    return Spof.model_validate(spec)


@pytest.mark.parametrize(
    "spec",
    thinned([_spof("local_laplace"), _spof("local_gaussian"), FunctionalMechanism.example(), DpSgdLaplace.example()], every=2),
    ids=["local laplace", "local gaussian", "functional mechanism", "descent"],
)
def test_every_kind_of_noise_is_looked_at(spec: Spof | FunctionalMechanism | DpSgdLaplace, tmp_path: Path) -> None:
    report = load_train(spec)(spec, spec.plan(), RUNTIME, tmp_path, report=lambda _event: None, should_stop=lambda: False)
    assert report.noise_test is not None
    assert report.noise_test.status == "consistent"
    assert report.noise_test.numbers >= 16


def test_random_signs_are_no_noise_of_a_scale(tmp_path: Path) -> None:
    spec = _spof("duchi_linf")
    report = load_train(spec)(spec, spec.plan(), RUNTIME, tmp_path, report=lambda _event: None, should_stop=lambda: False)
    assert report.noise_test is None
