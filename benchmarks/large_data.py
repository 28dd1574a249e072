r"""``python -m benchmarks.large_data``: a training on data larger than its memory, in the service's own training process.

Made-up records are written into a temporary folder, as an uploaded data set (``arrays``) or as fastMRI's volumes (``volumes``), and trained
on for a few steps with the records on disk and, to compare, in memory. What is told is the most anonymous memory that the process had
(RssAnon: its own pages, without those of files, which the system can drop), looked at every few milliseconds. With ``--limit`` the kernel
also refuses the process more private memory than that (RLIMIT_DATA): then no peak between two looks can have been above it.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.memory import kibibytes
from zetadp.app.kit.child_environment import child_environment
from zetadp.mechanisms.base import Adjacency
from zetadp.process import child_command
from zetadp.trainer import RuntimeSpec, ZetaDpSgd
from zetadp.trainer.data import ROOT_VARIABLE, DataRecipe, DataSetFacts, MriReconstruction, NamedDataSet, Uploaded
from zetadp.trainer.data.base import piecewise_digest
from zetadp.trainer.data.files.stored import ArrayFile
from zetadp.trainer.data.uploaded import UPLOADED_VARIABLE, StoredDataSet
from zetadp.trainer.request import REQUEST, TrainingRequest

LOOK_SECONDS = 0.003
ID = "0" * 32
WIDTH = 2**14
"""Complex numbers of a record: 128 KiB."""
SLICES, HEIGHT, COLUMNS = 32, 640, 368
"""Of a volume."""


def main() -> None:
    """Writes the report that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large_data", description="Train on data larger than memory.")
    parser.add_argument("--kind", choices=("arrays", "volumes"), default="arrays")
    parser.add_argument("--gigabytes", type=float, default=6.0, help="of the files that are written")
    parser.add_argument("--limit", type=float, help="gigabytes of private memory that a training with its records on disk may have")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--memory", action="store_true", help="also train with the records in memory")
    parser.add_argument("--folder", type=Path, help="where there is room; default: the system's temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        for line in report(options, Path(name)):
            sys.stdout.write(line + "\n")
            sys.stdout.flush()


def report(options: argparse.Namespace, folder: Path) -> Iterator[str]:
    """Lines of the report."""
    os.environ |= {UPLOADED_VARIABLE: str(folder), ROOT_VARIABLE: str(folder)}
    data = (_arrays if options.kind == "arrays" else _volumes)(folder, round(options.gigabytes * 1e9))
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    begun = time.monotonic()
    spec = _spec(data, options.steps, options.kind)
    plan = spec.plan()
    yield f"{options.kind}: {size / 1e9:.2f} GB of files; planned in {time.monotonic() - begun:.0f} s"
    for records in ("disk", "memory") if options.memory else ("disk",):
        work = folder / f"run-{records}"
        work.mkdir()
        runtime = RuntimeSpec.model_validate(
            {"records": records, "device": "cpu", "threads": 1, "microbatch_size": 8 if options.kind == "arrays" else 2}
        )
        (work / REQUEST).write_text(TrainingRequest(spec=spec, runtime=runtime, plan=plan).model_dump_json())
        yield _trained(work, records, options.limit if records == "disk" else None)
    models = {
        (folder / f"run-{records}" / "artifacts/model.safetensors").read_bytes() for records in ("disk", "memory")[: 1 + options.memory]
    }
    yield f"models that differ: {len(models) - 1}"


def _trained(work: Path, records: str, limit: float | None) -> str:
    """Runs the training process to its end, and says what memory it had."""
    command = child_command("zetadp.trainer.child", str(work))
    environment = child_environment(os.environ, Path(os.environ[ROOT_VARIABLE]), Path(os.environ[UPLOADED_VARIABLE]))
    begun, most, whole = time.monotonic(), 0, 0
    with (work / "events").open("wb") as events, (work / "errors").open("wb") as errors:
        process = subprocess.Popen(command, stdout=events, stderr=errors, env=environment)  # noqa: S603 (our own command)
        if limit is not None:
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (round(limit * 1e9),) * 2)
        while process.poll() is None:
            try:
                most, whole = max(most, kibibytes("RssAnon", process.pid)), max(whole, kibibytes("VmHWM", process.pid))
            except (OSError, AssertionError):  # it has just ended
                continue
            time.sleep(LOOK_SECONDS)
    if process.returncode:
        raise SystemExit(f"records on {records}: ended with {process.returncode}\n{(work / 'errors').read_text()[-2000:]}")
    seconds, bounded = time.monotonic() - begun, "" if limit is None else f", under a limit of {limit:g} GB"
    where = "on disk" if records == "disk" else "in memory"
    return f"records {where}: RssAnon at most {1024 * most / 1e9:.2f} GB (VmHWM {1024 * whole / 1e9:.2f} GB){bounded}; {seconds:.0f} s"


def _spec(data: DataRecipe, steps: int, kind: Literal["arrays", "volumes"]) -> ZetaDpSgd:
    mlp = {"kind": "complex_mlp", "hidden": [8], "activation": "cardioid", "head": "magnitude"}
    unet = {
        "kind": "complex_unet", "channels": 4, "pools": 2, "activation": "crelu", "norm_groups": None, "dropout": 0.0, "residual": True,
    }  # fmt: skip
    asked: dict[str, Any] = {
        "algorithm": "zeta_dp_sgd",
        "data": data.model_dump(mode="json"),
        "model": mlp if kind == "arrays" else unet,
        "optimizer": {"kind": "adam", "learning_rate": 0.001},
        "privacy": {"adjacency": Adjacency.ADD_REMOVE, "unit": data.UNIT, "delta": 1e-6, "noise_multiplier": 2.0},
        "clipping_bound": 1.0,
        "expected_batch_size": 64 if kind == "arrays" else 8,
        "steps": steps,
        "evaluation": {"kind": "public_held_out"},
        "reproducible": True,
        "seed": 1,
    }
    return ZetaDpSgd.model_validate(asked)


def _arrays(folder: Path, size: int) -> DataRecipe:
    """An uploaded data set, written some records at a time."""
    place, rng = folder / ID, np.random.default_rng(0)
    place.mkdir()
    records = {"training": size // (8 * WIDTH), "test": 200}
    for side, count in records.items():
        with (place / f"{side}_features.npy").open("wb") as file:
            np.lib.format.write_array_header_1_0(file, {"descr": "<c8", "fortran_order": False, "shape": (count, WIDTH)})
            for first in range(0, count, 256):
                file.write(rng.standard_normal((min(256, count - first), 2 * WIDTH), dtype=np.float32).tobytes())
        np.save(place / f"{side}_targets.npy", np.arange(count) % 2)
    files = {name: ArrayFile(place / f"{name}.npy") for name in ("training_features", "test_features", "training_targets", "test_targets")}
    digests = [
        piecewise_digest((files[name].dtype, files[name].shape, files[name].pieces()) for name in names)
        for names in (("training_features", "training_targets"), files)
    ]
    facts = DataSetFacts(
        training_records=records["training"],
        test_records=records["test"],
        shape=(WIDTH,),
        is_complex=True,
        task="classification",
        classes=2,
        unit="record",
        sha256=digests[0],
        description="Made up",
    )
    named = NamedDataSet(id=ID, manifest_sha256="0" * 64, words="Made up")
    stored = StoredDataSet(named=named, facts=facts, arrays_sha256=digests[1], rebuilds_itself=False)
    (place / "description.json").write_text(stored.model_dump_json())
    return Uploaded(data_set=ID)


def _volumes(folder: Path, size: int) -> DataRecipe:
    """fastMRI's folders, of noise."""
    import h5py  # only these files need it

    rng, volume = np.random.default_rng(0), (SLICES, HEIGHT, COLUMNS)
    for number in range(max(2, size // (8 * SLICES * HEIGHT * COLUMNS))):
        side = "val" if number == 0 else "train"
        path = folder / "fastmri" / f"singlecoil_{side}" / f"file{number}.h5"
        path.parent.mkdir(parents=True, exist_ok=True)
        with h5py.File(path, "w") as file:
            file["kspace"] = rng.standard_normal((SLICES, HEIGHT, 2 * COLUMNS), dtype=np.float32).view(np.complex64).reshape(volume)
            file.attrs["patient_id"] = str(number)
    return MriReconstruction(folder="fastmri", source="fastmri", split_seed=0, test_fraction=0.1)


if __name__ == "__main__":
    main()
