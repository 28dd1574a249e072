"""No field of a certificate, of whatever kind of training, can be lied about; and no run is certified that isn't the planned one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from app.certificates.errors import CertificateRefused
from app.certificates.issue import CertificateInput, issue_certificate
from app.certificates.keys import PublicKeySet
from app.certificates.report import Status
from app.certificates.verification import verify
from app.settings import Settings
from tests.app.certificates_harness import details, forged
from trainer.report import RunReport

Lie = Callable[[dict[str, Any]], None]

pytestmark = pytest.mark.usefixtures("table_of_kinds")


# Lies


def _set(*path: str | int, value: object) -> Lie:
    def change(predicate: dict[str, Any]) -> None:
        place: Any = predicate
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = value

    return change


def _drop(*path: str | int) -> Lie:
    def change(predicate: dict[str, Any]) -> None:
        place: Any = predicate
        for name in path[:-1]:
            place = place[name]
        del place[path[-1]]

    return change


FIRST = ("comparison", "parts", 0)


@pytest.mark.parametrize(
    ("name", "lie", "told"),
    [
        ("spectral", _set("clipping", "bound", value="1.3"), "the layers' bounds give 1.3000000000000003"),
        ("spectral", _set("clipping", "layers", 0, "bound", value="0.1"), "the layers' bounds give 1.2688"),
        ("spectral", _set("clipping", "layers", 0, "bound", value="0"), "every bound must be a positive number"),
        ("spectral", _set("clipping", "layers", 1, "layer", value="1_convolution"), "clipping.layers: a layer is named twice"),
        ("spectral", _drop("clipping", "layers"), "clipping.layers: stated exactly for bounds by layer"),
        ("spectral", _set("clipping", "kind", value="flat"), "clipping.layers: stated exactly for bounds by layer"),
        ("spectral", _set("projection", "layers", 1, "kept", value=[2]), "shape and kept frequencies give 48"),
        ("spectral", _set("projection", "layers", 1, "coordinates_kept", value=8), "says 8, shape and kept frequencies give 80"),
        ("spectral", _set("projection", "layers", 1, "signals", value=1), "shape and kept frequencies give 8"),
        ("spectral", _set("projection", "layers", 1, "noise_variance_ratio", value="0.1"), "shape and kept frequencies give 0.625"),
        ("spectral", _set("projection", "layers", 1, "kept", value=[9]), "projection.layers[1]: there is no such filter"),
        ("spectral", _set("projection", "layers", 1, "layer", value="9_linear"), "isn't among the layers that have a bound"),
        ("spectral", _set("projection", "layers", 1, "layer", value="1_convolution"), "projection.layers: a layer is named twice"),
        ("spectral", _drop("clipping"), "the certificate's sections aren't those of one kind of training"),
        ("spectral", _drop("data", "expected_batch_size"), "expected_batch_size: must be stated for noisy sums"),
        ("laplace", _set("clipping", "bound", value="10.0"), "says 10.0, the event's sensitivity is for 20.0"),
        ("laplace", _set("clipping", "kind", value="flat"), "the certificate says flat, the event's noise is for another norm"),
        ("spof_users", _set("local_release", "records_per_unit", value=1), "says 1, its event has 3"),
        ("spof_users", _set("local_release", "epsilon_per_record", value="0.1"), "says 0.1, its event gives 0.5"),
        ("spof_users", _set("data", "units_are_records", value=True), "data.units_are_records: the certificate says True"),
        ("spof", _set("data", "expected_batch_size", value=10), "stated only where noisy sums of samples are divided by it"),
        ("spof", _set("statistic", value={"numbers": 3, "meaning": "sums"}), "aren't those of one kind of training"),
        ("sums", _set("local_release", value=None), None),
        ("sums_gaussian", _set("guarantee", "pure_epsilon", value="2"), "pure_epsilon is stated as 2, but this event has none"),
        ("sums", _set("guarantee", "pure_epsilon", value="1"), "pure_epsilon is 1, but recomputed it is 2.0"),
        ("baseline", _set("unprotected", "reason", value="because"), "unprotected.reason: the certificate and its event give different"),
        ("baseline", _set("guarantee", "reason", value="none was asked for"), "the guarantee's reason isn't the event's"),
        ("comparison", _set(*FIRST, "by_itself", "epsilon", value="0.01"), "part spectral: by_itself.epsilon is 0.01, but it is at least"),
        ("comparison", _set(*FIRST, "by_itself", "pure_epsilon", value="0.01"), "by_itself.pure_epsilon is 0.01, but its event has none"),
        ("comparison", _set(*FIRST, "by_itself", "reason", value="luck"), "has either an epsilon or a reason why there is none"),
        ("comparison", _set(*FIRST, "steps", value={"planned": 60, "released": 60}), "steps.planned: the certificate says 60, its parts"),
        ("comparison", _set(*FIRST, "clipping", "bound", value="1.0"), "part spectral: clipping.bound: the certificate says 1.0"),
        ("comparison", _set(*FIRST, "name", value="clipped-first"), "comparison.parts: two have one name"),
        ("comparison", _drop("comparison", "parts", 0), "comparison.parts: the event isn't that of all parts together"),
        ("comparison", _drop(*FIRST, "projection"), None),
        ("comparison", _set("clipping", value={"kind": "flat", "bound": "1.0", "meaning": "m"}), "aren't those of one kind of training"),
        ("with_baseline", _set("comparison", "parts", 1, "by_itself", value={"epsilon": "1", "delta": "1e-05"}), "but there is none"),
        ("seeded_comparison", _set(*FIRST, "by_itself", value={"epsilon": "1", "delta": "1e-05"}), "there is none: not private against"),
    ],
)
def test_a_lie_about_a_kinds_own_fields_is_refused(
    name: str, lie: Lie, told: str | None, envelopes: dict[str, bytes], settings: Settings, keys: PublicKeySet
) -> None:
    report = verify(forged(envelopes[name], settings, lambda statement: lie(statement["predicate"])), keys, None)
    if told is None:  # what says nothing may be left out
        assert report.verdict == "valid"
        return
    assert report.verdict == "invalid"
    assert told in "; ".join(details(report, check) for check in ("event", "parts", "other_figures", "parts_alone"))


UNREADABLE = {"kind": "poisson_sampled", "probability": 0.1, "event": {"kind": "composed", "events": []}}
"""A shared sample, once two releases are put into it: nobody accounts for it."""


@pytest.mark.parametrize("part", [False, True])
def test_an_event_that_nobody_can_read_is_refused_and_nothing_is_raised(
    part: bool, envelopes: dict[str, bytes], settings: Settings, keys: PublicKeySet
) -> None:
    def lie(statement: dict[str, Any]) -> None:
        predicate = statement["predicate"]
        place = predicate["comparison"]["parts"][0] if part else predicate
        release = predicate["comparison"]["parts"][0]["event"]["event"]["event"]
        place["event"] = UNREADABLE | {"event": {"kind": "composed", "events": [release, release]}}

    report = verify(forged(envelopes["comparison"], settings, lie), keys, None)
    assert report.verdict == "invalid"
    assert "the event can't be read" in details(report, "event")


def test_a_delta_that_is_none_is_refused_and_nothing_is_raised(envelopes: dict[str, bytes], settings: Settings, keys: PublicKeySet) -> None:
    lie = _set("comparison", "parts", 0, "by_itself", "delta", value="2")
    report = verify(forged(envelopes["comparison"], settings, lambda statement: lie(statement["predicate"])), keys, None)
    assert "its figures can't be recomputed from its event" in details(report, "parts_alone")


@pytest.mark.parametrize(
    ("name", "lie", "field"),
    [
        ("spectral", _set("projection", "meaning", value="filters make it private"), "projection.meaning"),
        ("spectral", _set("projection", "order", value="clip_then_filter"), "projection.meaning"),
        ("spof", _set("local_release", "budget", value="there is no end of it"), "local_release.budget"),
        ("spof", _set("local_release", "meaning", value="nothing was released"), "local_release.meaning"),
        ("spof", _set("scope", "trust_model", value="Nobody is trusted"), "scope.trust_model"),
        ("sums", _set("statistic", "numbers", value=3), "statistic.meaning"),
        ("sums", _set("statistic", "meaning", value="nothing was released"), "statistic.meaning"),
        ("baseline", _set("not_covered", value=[]), "not_covered"),
        ("printed", _set("errata", 0, "meaning", value="all is well"), "errata S1"),
        ("comparison", _set("comparison", "meaning", value="the best part alone counts"), "comparison.meaning"),
        ("comparison", _set(*FIRST, "clipping", "meaning", value="unbounded"), "comparison.spectral.clipping.meaning"),
        ("comparison", _set(*FIRST, "errata", 0, "meaning", value="all is well"), "errata P1"),
    ],
)
def test_other_words_in_a_kinds_own_fields_are_nobodys_here(
    name: str, lie: Lie, field: str, envelopes: dict[str, bytes], settings: Settings, keys: PublicKeySet
) -> None:
    report = verify(forged(envelopes[name], settings, lambda statement: lie(statement["predicate"])), keys, None)
    assert field in details(report, "sentences", Status.NOT_CHECKED)


# Refusals


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("spectral", "spectral_other", "plan.projection.layers"),
        ("spof", "spof_duchi", "the number of training records was planned as 1434"),
        ("baseline", "spectral", "the number of released steps was planned as 30 and the run reports 50"),
        ("comparison", "with_baseline", "the parts was planned as"),
    ],
)
def test_a_plan_of_another_spec_is_refused(
    name: str, changed: str, message: str, finished: dict[str, CertificateInput], settings: Settings
) -> None:
    run = finished[name]
    if changed == "spectral_other":
        projection = run.plan.model_dump(mode="json")["projection"]
        projection["layers"][1]["kept"] = [1]
        plan = type(run.plan).model_validate({**run.plan.model_dump(mode="json"), "projection": projection})
        run = replace(run, plan=plan)
    elif changed == "with_baseline":
        other = finished[changed]
        run = replace(run, plan=other.plan, report=other.report, artifacts=other.artifacts)
    else:
        run = replace(run, plan=finished[changed].plan, spec=finished[changed].spec)
        run = replace(run, report=_with_event(run))
    with pytest.raises(CertificateRefused, match=message):
        issue_certificate(replace(run, job_id=f"{name}-{changed}"), settings)


def _with_event(run: CertificateInput) -> RunReport:
    return RunReport.model_validate({**dict(run.report), "event": run.plan.event, "noise_std": run.plan.noise_std})


def test_a_comparison_without_a_parts_model_is_refused(finished: dict[str, CertificateInput], settings: Settings) -> None:
    run = finished["comparison"]
    artifacts = {name: path for name, path in run.artifacts.items() if not name.startswith("clipped")}
    with pytest.raises(CertificateRefused, match=r"a model file was planned as 'clipped-first\.model\.safetensors'"):
        issue_certificate(replace(run, artifacts=artifacts), settings)
