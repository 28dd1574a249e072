"""A finished run of every kind of training, and of one kind in every setting, made by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from tests.app.certificates_harness import finished_run, run_of, site_key
from zetadp.app.certificates.issuing.issue import CertificateInput
from zetadp.trainer.sites.keys import public_text

Document = dict[str, object]

DIGITS: Document = {"kind": "digits_phase_pairs", "split_seed": 0, "test_fraction": 0.2}
IMAGES: Document = {"kind": "digits_images", "split_seed": 0, "test_fraction": 0.2}
PLACED: Document = IMAGES | {"split_by": "position"}
TABLE: Document = {
    "kind": "table",
    "folder": "diaries",
    "file": "rows.csv",
    "columns": [{"name": "steps", "lower": 0.0, "upper": 10.0}, {"name": "sleep", "lower": 0.0, "upper": 10.0}],
    "outside": "clip",
    "user_column": "who",
    "held_out": {"kind": "fraction", "fraction": 0.2, "split_seed": 0},
}
"""Twenty people with five rows each; ``write_table`` puts them there."""

PUBLIC: Document = {"kind": "public_held_out"}
MLP: Document = {
    "kind": "sequential",
    "numbers": "real_pairs",
    "layers": [
        {"kind": "unflatten", "channels": 2, "height": 8, "width": 8},
        {"kind": "convolution", "outputs": 4, "kernel": 5, "padding": 2, "stride": 2},
        {"kind": "flatten"},
        {"kind": "block_circulant_linear", "outputs": 16, "block": 8},
        {"kind": "linear", "outputs": 10},
    ],
    "head": "none",
}
SGD: Document = {"kind": "sgd", "learning_rate": 0.1}


def _target(**more: object) -> Document:
    return {"adjacency": "add_remove", "unit": "record", "delta": 1e-5} | more


SPECTRAL: Document = {
    "algorithm": "spectral_dp",
    "data": DIGITS,
    "model": MLP,
    "layers": {
        "kind": "layer_by_layer",
        "settings": [
            {"clipping_bound": 0.3, "filter_ratio": 0.4, "transform_size": 9},
            {"clipping_bound": 0.4, "filter_ratio": 0.5},
            {"clipping_bound": 1.2, "filter_ratio": 0.0},
        ],
    },
    "order": "project_then_clip",
    "optimizer": SGD,
    "privacy": _target(noise_multiplier=3.0),
    "expected_batch_size": 60,
    "steps": 30,
    "evaluation": PUBLIC,
}


def _local(mechanism: str, scale: float, unit: str = "record") -> Document:
    privacy = {"adjacency": "replace_one", "unit": unit, "delta": 1e-5, "scale": scale}
    return {"kind": "local_release", "mechanism": mechanism, "privacy": privacy}


SPOF: Document = {
    "algorithm": "spof",
    "data": TABLE,
    "encoders": 2,
    "hidden": 2,
    "optimizer": SGD,
    "method": _local("local_laplace", 1.0),
    "batch_size": 32,
    "steps": 400,
    "evaluation": PUBLIC,
}
SUMS: Document = {
    "algorithm": "functional_mechanism",
    "data": IMAGES,
    "hidden": 4,
    "noise": "laplace",
    "privacy": _target(noise_multiplier=0.5),
    "evaluation": PUBLIC,
}


def _descent(noise: str, adjacency: str) -> Document:
    privacy = {"adjacency": adjacency, "unit": "record", "delta": 1e-5, "noise_multiplier": 4.0}
    return {
        "algorithm": "dp_sgd_laplace",
        "data": PLACED if adjacency == "replace_one" else IMAGES,
        "encoders": 2,
        "hidden": 8,
        "optimizer": SGD,
        "method": {"kind": noise, "privacy": privacy, "clipping_bound": 20.0, "expected_batch_size": 100},
        "steps": 20,
        "evaluation": PUBLIC,
    }


BASELINE: Document = {
    "algorithm": "non_private",
    "data": DIGITS,
    "model": MLP,
    "optimizer": SGD,
    "batch_size": 32,
    "steps": 50,
    "unit": "record",
    "evaluation": PUBLIC,
}
PRINTED: Document = {
    "algorithm": "spof_printed",
    "data": IMAGES,
    "encoders": 2,
    "hidden": 8,
    "optimizer": SGD,
    "epsilon": 1.0,
    "steps": 5,
    "data_unit": "record",
    "evaluation": PUBLIC,
}

ROTATED: Document = {
    "algorithm": "obfuscation",
    "data": {"kind": "digits", "split_seed": 0, "test_fraction": 0.2, "split_by": "position"},
    "network": {"kind": "lenet"},
    "method": {"kind": "rotation"},
    "optimizer": SGD,
    "batch_size": 32,
    "steps": 50,
    "evaluation": PUBLIC,
    "attacks": {},
}
NOISY_ROTATION: Document = ROTATED | {
    "method": {
        "kind": "noisy_rotation",
        "clipping_norm": 3.0,
        "queries": 4,
        "privacy": {"adjacency": "replace_one", "unit": "image", "delta": 1e-5, "noise_multiplier": 2.0},
    },
    "evaluation": {"kind": "none"},
    "evaluation_records": 100,
    "curve": [0.5, 2.0],
}


def _comparison(data: Document, *parts: tuple[str, Document]) -> Document:
    return {"algorithm": "comparison", "data": data, "parts": [{"name": name, "spec": spec} for name, spec in parts]}


def _selection(*candidates: tuple[str, Document]) -> Document:
    listed = [{"name": name, "spec": spec} for name, spec in candidates]
    return {"algorithm": "private_selection", "data": DIGITS, "candidates": listed, "runs": {"kind": "poisson", "mean": 3.0}}


KINDS: dict[str, Document] = {
    "spectral": SPECTRAL,
    "clipped_first": SPECTRAL | {"order": "clip_then_filter"},
    "spof": SPOF,
    "spof_duchi": SPOF | {"data": PLACED, "method": _local("duchi_linf", 0.25)},
    "spof_users": SPOF | {"method": _local("local_laplace", 4.0, "user"), "records_per_user": 3},
    "spof_gaussian": SPOF | {"method": _local("local_gaussian", 2.0, "user"), "records_per_user": 4},
    "sums": SUMS,
    "sums_gaussian": SUMS | {"noise": "gaussian", "privacy": _target(noise_multiplier=1.5)},
    "sums_users": SUMS | {"data": TABLE, "hidden": 2, "privacy": _target(noise_multiplier=0.5, unit="user"), "records_per_user": 3},
    "laplace": _descent("laplace", "replace_one"),
    "baseline": BASELINE,
    "seeded_baseline": BASELINE | {"reproducible": True, "seed": 4},
    "printed": PRINTED,
    "rotated": ROTATED,
    "sent_as_it_is": ROTATED | {"method": {"kind": "original"}, "attacks": None},
    "noisy_rotation": NOISY_ROTATION,
    "seeded_noisy_rotation": NOISY_ROTATION | {"reproducible": True, "seed": 4},
    "comparison": _comparison(DIGITS, ("spectral", SPECTRAL), ("clipped-first", SPECTRAL | {"order": "clip_then_filter"})),
    "seeded_comparison": _comparison(DIGITS, ("spectral", SPECTRAL)) | {"reproducible": True, "seed": 4},
    "with_baseline": _comparison(DIGITS, ("spectral", SPECTRAL), ("baseline", BASELINE)),
    "many": _comparison(DIGITS, ("baseline", BASELINE)) | {"repetitions": 100},
    "other_neighbours": _comparison(
        TABLE, ("spof", SPOF | {"method": _local("duchi_linf", 0.25)}), ("sums", SUMS | {"data": TABLE, "hidden": 2})
    ),
    "mixed_noise": _comparison(IMAGES, ("descent", _descent("gaussian", "add_remove")), ("sums", SUMS)),
    "selection": _selection(("slow", SPECTRAL), ("fast", SPECTRAL | {"optimizer": SGD | {"learning_rate": 0.5}})),
    "seeded_selection": _selection(("one", SPECTRAL)) | {"reproducible": True, "seed": 4},
}
"""By name, what each asks for."""

UNGUARANTEED = (
    "baseline",
    "seeded_baseline",
    "printed",
    "rotated",
    "sent_as_it_is",
    "seeded_noisy_rotation",
    "seeded_comparison",
    "seeded_selection",
    "with_baseline",
    "many",
    "other_neighbours",
)


FEDERATED: Document = {
    "algorithm": "federated_zeta_dp_sgd",
    "optimizer": None,
    "server": {"kind": "fed_adam", "learning_rate": 0.01},
    "nodes": 4,
    "distribution_seed": 0,
    "expected_batch_size": 30,
}
SITES: Document = {
    "nodes": 2,
    "declared_units": 1000,
    "transport": "flower",
    "federation": {
        "name": "two-sites",
        "coordinator": "a" * 64,
        "sites": [{"name": name, "key": public_text(site_key(name))} for name in ("north", "south")],
    },
}
PRIVATE: Document = {"evaluation": {"kind": "private_accuracy", "noise_std": 20.0, "every_steps": 15}}
PATIENTS: Document = {
    "data": {"kind": "mri_phantoms", "patients": 40, "test_patients": 2, "slices": 1, "seed": 0},
    "model": {
        "kind": "sequential",
        "numbers": "complex",
        "layers": [{"kind": "flatten"}, {"kind": "linear", "outputs": 4}],
        "head": "magnitude",
    },
    "privacy": {"adjacency": "add_remove", "unit": "patient", "delta": 1e-3, "noise_multiplier": 4.0},
    "records_per_user": 3,
    "expected_batch_size": 10,
}
SETTINGS: dict[str, Document] = {
    "plain": {},
    "patients": PATIENTS,
    "slices": PATIENTS
    | {"privacy": {"adjacency": "add_remove", "unit": "slice", "delta": 1e-4, "noise_multiplier": 4.0}, "records_per_user": None},
    "federated_patients": PATIENTS | FEDERATED | {"expected_batch_size": 5},
    "federated": FEDERATED,
    "secure": FEDERATED | {"aggregation": {"kind": "secure", "dropouts": 1, "colluding": 1}},
    "sites": FEDERATED | SITES,
    "declared": {"declared_units": 1000},
    "declared_patients": PATIENTS | {"declared_units": 64},
    "per_layer": {"clipping": {"kind": "per_layer"}},
    "adaptive": {"clipping": {"kind": "adaptive", "quantile": 0.5, "learning_rate": 0.2, "count_share": 0.01}},
    "scheduled": {"clipping": {"kind": "flat", "schedule": {"kind": "cosine", "final_share": 0.25}}},
    "private": PRIVATE,
    "unmeasured": {"evaluation": None},
    "federated_private": FEDERATED | PRIVATE,
    "seeded": {"reproducible": True, "seed": 5},
    "truncated": {"sampling": {"kind": "truncated_poisson", "largest_batch": 60}},
    "fixed_size": {"sampling": {"kind": "fixed_size"}, "privacy": _target(noise_multiplier=8.0)},
    "allocated": {"sampling": {"kind": "random_allocation"}, "expected_batch_size": 100, "steps": 7},
    "cyclic": {"sampling": {"kind": "cyclic_poisson", "groups": 3, "seed": 1}},
    "cyclic_patients": PATIENTS | {"sampling": {"kind": "cyclic_poisson", "groups": 4, "seed": 1}},
    "banded": {"sampling": {"kind": "cyclic_poisson", "groups": 3, "seed": 1}, "noise": {"kind": "banded", "bands": 2}},
    "banded_allocated": {
        "sampling": {"kind": "cyclic_allocation", "groups": 3, "seed": 1},
        "noise": {"kind": "banded", "bands": 2},
        "expected_batch_size": 50,
        "steps": 20,
    },
    "buffered": {
        "sampling": {"kind": "cyclic_poisson", "groups": 17, "seed": 1},
        "noise": {"kind": "buffered", "buffers": [{"weight": 0.5, "decay": 0.5}]},
    },
    "inverse": {"sampling": {"kind": "cyclic_poisson", "groups": 17, "seed": 1}, "noise": {"kind": "banded_inverse", "bands": 3}},
    "federated_banded": FEDERATED
    | {
        "sampling": {"kind": "cyclic_poisson", "groups": 3, "seed": 1},
        "noise": {"kind": "banded", "bands": 2},
    },
    "federated_lambda": FEDERATED
    | {
        "sampling": {"kind": "cyclic_poisson", "groups": 5, "seed": 1},
        "noise": {"kind": "lambda_cgd", "decay": 0.5},
    },
    "large_delta": {"privacy": {"adjacency": "add_remove", "unit": "record", "delta": 0.01, "noise_multiplier": 2.0}},
}
"""By name, in what each differs from the plain spec of a noisy descent."""


def write_table(folder: Path) -> None:
    """The diaries that ``TABLE`` reads, below the folder of data sets."""
    (folder / "diaries").mkdir(parents=True)
    rows = [f"{row % 10},{(3 * row) % 10},person{row // 5}" for row in range(100)]
    (folder / "diaries" / "rows.csv").write_text("\n".join(["steps,sleep,who", *rows]) + "\n")


def run_named(name: str, folder: Path) -> CertificateInput:
    """A finished run of a kind or in a setting, with its own job."""
    document = json.loads(json.dumps(KINDS | SETTINGS))[name]
    finished = run_of(document, folder / name) if name in KINDS else finished_run(folder / name, **document)
    return replace(finished, job_id=name)
